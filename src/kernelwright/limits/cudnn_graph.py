# SPDX-License-Identifier: Apache-2.0
"""Questions to cuDNN about a convolution: what workspace it would take, without a tensor that exists.

torch describes a convolution as a graph of one operation, takes the engine configurations that cuDNN's heuristics
propose in their order, leaves out those whose numbers it was not allowed, and allocates the workspace of the first that
becomes a plan (ATen/native/cudnn/Conv_v8.cpp: run_single_conv, filterEngineConfigs, try_configs). The same is asked
here through the backend interface (cudnn_graph.h of cuDNN 9, from where the numbers below are); running a plan and what
happens where memory is short are left out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch

VERSIONS = range(90000, 100000)
"""Whose numbers these are."""
SUCCESS = 0
CROSS_CORRELATION = 1
INSTANT, FALLBACK = 0, 2
"""Modes of the heuristics, in torch's order."""
TENSOR_CORE, DOWN_CONVERT, NONDETERMINISTIC = 0, 1, 4
"""What is noted of an engine's numbers."""
NOTES = 32
"""Room for them; there are 10 kinds in 9.19."""
DATA = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 9}


class Kind(IntEnum):
    """Of descriptors (cudnnBackendDescriptorType_t)."""

    CONVOLUTION = 1
    ENGINE = 2
    ENGINECFG = 3
    ENGINEHEUR = 4
    EXECUTION_PLAN = 5
    OPERATION_CONVOLUTION_FORWARD = 10
    OPERATION_CONVOLUTION_BACKWARD_FILTER = 11
    OPERATION_CONVOLUTION_BACKWARD_DATA = 12
    OPERATIONGRAPH = 15
    TENSOR = 17


class Attribute(IntEnum):
    """Of descriptors (cudnnBackendAttributeName_t)."""

    CONVOLUTION_COMP_TYPE = 100
    CONVOLUTION_CONV_MODE = 101
    CONVOLUTION_DILATIONS = 102
    CONVOLUTION_FILTER_STRIDES = 103
    CONVOLUTION_POST_PADDINGS = 104
    CONVOLUTION_PRE_PADDINGS = 105
    CONVOLUTION_SPATIAL_DIMS = 106
    ENGINEHEUR_MODE = 200
    ENGINEHEUR_OPERATION_GRAPH = 201
    ENGINEHEUR_RESULTS = 202
    ENGINECFG_ENGINE = 300
    EXECUTION_PLAN_HANDLE = 400
    EXECUTION_PLAN_ENGINE_CONFIG = 401
    EXECUTION_PLAN_WORKSPACE_SIZE = 402
    FORWARD_ALPHA = 700
    FORWARD_BETA = 701
    FORWARD_CONV_DESC = 702
    FORWARD_W = 703
    FORWARD_X = 704
    FORWARD_Y = 705
    BWD_DATA_ALPHA = 706
    BWD_DATA_BETA = 707
    BWD_DATA_CONV_DESC = 708
    BWD_DATA_W = 709
    BWD_DATA_DX = 710
    BWD_DATA_DY = 711
    BWD_FILTER_ALPHA = 712
    BWD_FILTER_BETA = 713
    BWD_FILTER_CONV_DESC = 714
    BWD_FILTER_DW = 715
    BWD_FILTER_X = 716
    BWD_FILTER_DY = 717
    OPERATIONGRAPH_HANDLE = 800
    OPERATIONGRAPH_OPS = 801
    TENSOR_BYTE_ALIGNMENT = 900
    TENSOR_DATA_TYPE = 901
    TENSOR_DIMENSIONS = 902
    TENSOR_STRIDES = 903
    TENSOR_UNIQUE_ID = 906
    ENGINE_NUMERICAL_NOTE = 1303


class Type(IntEnum):
    """Of an attribute's elements (cudnnBackendAttributeType_t)."""

    HANDLE = 0
    DATA_TYPE = 1
    INT64 = 3
    FLOAT = 4
    DOUBLE = 5
    CONVOLUTION_MODE = 7
    HEUR_MODE = 8
    NUMERICAL_NOTE = 11
    DESCRIPTOR = 15


ELEMENTS: dict[Type, type[Any]] = dict.fromkeys(Type, ctypes.c_int) | {
    Type.HANDLE: ctypes.c_void_p,
    Type.DESCRIPTOR: ctypes.c_void_p,
    Type.INT64: ctypes.c_int64,
    Type.FLOAT: ctypes.c_float,
    Type.DOUBLE: ctypes.c_double,
}
"""How they lie in memory; enumerations are ints."""

OPERATIONS = {
    "forward": (Kind.OPERATION_CONVOLUTION_FORWARD, "FORWARD_X", "FORWARD_W", "FORWARD_Y", "FORWARD_"),
    "data": (Kind.OPERATION_CONVOLUTION_BACKWARD_DATA, "BWD_DATA_DX", "BWD_DATA_W", "BWD_DATA_DY", "BWD_DATA_"),
    "filter": (Kind.OPERATION_CONVOLUTION_BACKWARD_FILTER, "BWD_FILTER_X", "BWD_FILTER_DW", "BWD_FILTER_DY",
               "BWD_FILTER_"),
}  # fmt: skip
"""Descriptor, attributes of x, weight and y, and what the others' names begin with."""


class Refused(Exception):
    """What cuDNN was asked, and the status that it gave."""


@dataclass(frozen=True, slots=True)
class Laid:
    """A tensor that need not exist: its sizes, whether channels lie last, what its address is a multiple of."""

    sizes: tuple[int, ...]
    last: bool
    alignment: int = 32
    """Bytes; torch looks no further than 32 (Conv_v8.cpp: getAlignment)."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Without gaps, of sizes of 1 too, as cuDNN wants them (ATen/cudnn/Descriptors.h: fixSizeOneDimStride)."""
        inner = list(range(len(self.sizes) - 1, 1, -1))
        found, step = [0] * len(self.sizes), 1
        for dim in [1, *inner, 0] if self.last else [*inner, 1, 0]:
            found[dim] = step
            step *= self.sizes[dim]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Convolution:
    """What decides on the engine. ``operation`` is a key of ``OPERATIONS``; x, w and y are input, weight and result of
    the convolution that it belongs to, whichever of them it computes."""

    operation: str
    dtype: torch.dtype
    x: Laid
    w: Laid
    y: Laid
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    tf32: bool
    deterministic: bool


class _Descriptors:
    """Those of one question, destroyed in the end, the last first."""

    def __init__(self, library: Any) -> None:
        self.lib = library
        self.made: list[int] = []

    def __enter__(self) -> _Descriptors:
        return self

    def __exit__(self, *_: object) -> None:
        while self.made:
            self.lib.cudnnBackendDestroyDescriptor(self.made.pop())

    def create(self, kind: Kind) -> int:
        """An empty one."""
        place = (ctypes.c_void_p * 1)()
        _check(self.lib.cudnnBackendCreateDescriptor(int(kind), place), f"create {kind.name}")
        self.made.append(_pointer(place[0], f"create {kind.name}"))
        return self.made[-1]

    def build(self, kind: Kind, *attributes: tuple[Attribute, Type, Sequence[Any]]) -> int:
        """One with these attributes, finalized."""
        made = self.create(kind)
        for name, of, values in attributes:
            elements = (ELEMENTS[of] * len(values))(*values)
            status = self.lib.cudnnBackendSetAttribute(made, int(name), int(of), len(values), elements)
            _check(status, f"set {name.name}")
        _check(self.lib.cudnnBackendFinalize(made), f"finalize {kind.name}")
        return made

    def get(self, made: int, name: Attribute, of: Type, elements: Any) -> int:
        """Fill ``elements`` (None: nothing); how many there are, no more than there is room for."""
        count, room = (ctypes.c_int64 * 1)(), 0 if elements is None else len(elements)
        status = self.lib.cudnnBackendGetAttribute(made, int(name), int(of), room, count, elements)
        _check(status, f"get {name.name}")
        return int(count[0]) if elements is None else min(int(count[0]), room)

    def graph(self, handle: int, asked: Convolution) -> int:
        """The operation on its three tensors, as torch describes it."""
        compute = DATA[asked.dtype if asked.dtype == torch.float64 else torch.float32]
        kind, *names, prefix = OPERATIONS[asked.operation]
        tensors = [self._tensor(asked.dtype, one, of) for one, of in ((asked.x, "x"), (asked.w, "w"), (asked.y, "y"))]
        described = self.build(
            Kind.CONVOLUTION,
            (Attribute.CONVOLUTION_COMP_TYPE, Type.DATA_TYPE, [compute]),
            (Attribute.CONVOLUTION_CONV_MODE, Type.CONVOLUTION_MODE, [CROSS_CORRELATION]),
            (Attribute.CONVOLUTION_SPATIAL_DIMS, Type.INT64, [len(asked.stride)]),
            (Attribute.CONVOLUTION_PRE_PADDINGS, Type.INT64, asked.padding),
            (Attribute.CONVOLUTION_POST_PADDINGS, Type.INT64, asked.padding),
            (Attribute.CONVOLUTION_DILATIONS, Type.INT64, asked.dilation),
            (Attribute.CONVOLUTION_FILTER_STRIDES, Type.INT64, asked.stride),
        )
        scale = Type.DOUBLE if asked.dtype == torch.float64 else Type.FLOAT
        operation = self.build(
            kind,
            *((Attribute[name], Type.DESCRIPTOR, [one]) for name, one in zip(names, tensors, strict=True)),
            (Attribute[prefix + "CONV_DESC"], Type.DESCRIPTOR, [described]),
            (Attribute[prefix + "ALPHA"], scale, [1.0]),
            (Attribute[prefix + "BETA"], scale, [0.0]),
        )
        return self.build(
            Kind.OPERATIONGRAPH,
            (Attribute.OPERATIONGRAPH_OPS, Type.DESCRIPTOR, [operation]),
            (Attribute.OPERATIONGRAPH_HANDLE, Type.HANDLE, [handle]),
        )

    def _tensor(self, dtype: torch.dtype, one: Laid, name: str) -> int:
        return self.build(
            Kind.TENSOR,
            (Attribute.TENSOR_DATA_TYPE, Type.DATA_TYPE, [DATA[dtype]]),
            (Attribute.TENSOR_DIMENSIONS, Type.INT64, one.sizes),
            (Attribute.TENSOR_STRIDES, Type.INT64, one.strides),
            (Attribute.TENSOR_UNIQUE_ID, Type.INT64, [ord(name)]),
            (Attribute.TENSOR_BYTE_ALIGNMENT, Type.INT64, [one.alignment]),
        )

    def configurations(self, graph: int, mode: int) -> Iterator[int]:
        """Of engines, best first, as the heuristics see it."""
        heuristics = self.build(
            Kind.ENGINEHEUR,
            (Attribute.ENGINEHEUR_OPERATION_GRAPH, Type.DESCRIPTOR, [graph]),
            (Attribute.ENGINEHEUR_MODE, Type.HEUR_MODE, [mode]),
        )
        count = self.get(heuristics, Attribute.ENGINEHEUR_RESULTS, Type.DESCRIPTOR, None)
        if count > 0:
            made = [self.create(Kind.ENGINECFG) for _ in range(count)]
            place = (ctypes.c_void_p * count)(*made)
            yield from made[: self.get(heuristics, Attribute.ENGINEHEUR_RESULTS, Type.DESCRIPTOR, place)]

    def barred(self, configuration: int, asked: Convolution) -> bool:
        """Whether torch leaves it out for what is noted of its numbers."""
        engine = self.create(Kind.ENGINE)
        self.get(configuration, Attribute.ENGINECFG_ENGINE, Type.DESCRIPTOR, (ctypes.c_void_p * 1)(engine))
        notes = (ctypes.c_int * NOTES)()
        count = self.get(engine, Attribute.ENGINE_NUMERICAL_NOTE, Type.NUMERICAL_NOTE, notes)
        unwanted = {DOWN_CONVERT} | ({NONDETERMINISTIC} if asked.deterministic else set())
        unwanted |= {TENSOR_CORE} if asked.dtype == torch.float32 and not asked.tf32 else set()
        return not unwanted.isdisjoint(notes[:count])

    def planned(self, handle: int, configuration: int) -> int:
        """Bytes of workspace of the plan that it becomes."""
        plan = self.build(
            Kind.EXECUTION_PLAN,
            (Attribute.EXECUTION_PLAN_HANDLE, Type.HANDLE, [handle]),
            (Attribute.EXECUTION_PLAN_ENGINE_CONFIG, Type.DESCRIPTOR, [configuration]),
        )
        size = (ctypes.c_int64 * 1)()
        if self.get(plan, Attribute.EXECUTION_PLAN_WORKSPACE_SIZE, Type.INT64, size) != 1 or size[0] < 0:
            raise Refused(f"get EXECUTION_PLAN_WORKSPACE_SIZE: {size[0]}")
        return int(size[0])


def ask(library: Any, handle: int, asked: Convolution) -> int:
    """Bytes of workspace of the first plan that torch would run.

    Raises Refused with what failed; a configuration that becomes no plan is passed over, as torch does.
    """
    passed = []
    with _Descriptors(library) as made:
        graph = made.graph(handle, asked)
        for mode in (INSTANT, FALLBACK):
            for configuration in made.configurations(graph, mode):
                if made.barred(configuration, asked):
                    passed.append("barred")
                    continue
                try:
                    return made.planned(handle, configuration)
                except Refused as refused:
                    passed.append(str(refused))
    raise Refused(f"no engine of {len(passed)}: {'; '.join(passed[:8])}")


def opened(library: Any) -> int:
    """A handle for the device that is current in this thread."""
    place = (ctypes.c_void_p * 1)()
    _check(library.cudnnCreate(place), "create a handle")
    return _pointer(place[0], "create a handle")


def _check(status: int, what: str) -> None:
    if status != SUCCESS:
        raise Refused(f"{what}: status {status}")


def _pointer(found: int | None, what: str) -> int:
    if not found:
        raise Refused(f"{what}: nothing made")
    return found
