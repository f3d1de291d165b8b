# SPDX-License-Identifier: Apache-2.0
"""Memory shared by the judge and one confined program: guarded regions of one arena, seen as tensors on both sides.

The judge lays regions out from a ``CallPlan`` that both sides hold, allocates one arena (a sealed memfd for
``cpu``, ``CudaArena`` for ``cuda:N``: the same interface), and the program maps it from a descriptor.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernelwright.judge import gaps, skeletons
from kernelwright.judge.buffers_cuda import CudaArena

GUARD_BYTES = 4096
GUARD_VALUE = 0xFF
"""Every floating dtype reads it as NaN: what a program wrongly reads beside its inputs shows in what it answers."""
ALIGN = 512  # what torch's CUDA allocator promises; more than any vector load needs
SEALS = 0x0002 | 0x0004 | 0x0001  # F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL: no SIGBUS by truncation
ADD_SEALS = 1033


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Shape, strides and offset (elements) and dtype name of one tensor inside its region.

    ``offset`` shifts the first element inside the 512-byte aligned region: a misaligned or offset layout.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: str

    @classmethod
    def contiguous(cls, shape: Sequence[int], dtype: torch.dtype | str, offset: int = 0) -> TensorSpec:
        """Row-major layout of ``shape``."""
        stride, step = [], 1
        for size in reversed(shape):
            stride.append(step)
            step *= max(size, 1)
        name = str(dtype).removeprefix("torch.")
        return cls(shape=tuple(shape), stride=tuple(reversed(stride)), offset=offset, dtype=name)

    @classmethod
    def like(cls, tensor: torch.Tensor, offset: int = 0) -> TensorSpec:
        """The layout of ``tensor``: its shape, strides and dtype."""
        name = str(tensor.dtype).removeprefix("torch.")
        return cls(shape=tuple(tensor.shape), stride=tuple(tensor.stride()), offset=offset, dtype=name)

    def nbytes(self) -> int:
        """Bytes from the start of the region to the last element; at least one element."""
        empty = any(size == 0 for size in self.shape)
        last = 0 if empty else sum((s - 1) * t for s, t in zip(self.shape, self.stride, strict=True))
        return (self.offset + last + 1) * skeletons.dtype(self.dtype).itemsize

    def to_json(self) -> list[Any]:
        """Plain data for the wire."""
        return [list(self.shape), list(self.stride), self.offset, self.dtype]

    @classmethod
    def from_json(cls, data: Any) -> TensorSpec:
        """Inverse of ``to_json``."""
        shape, stride, offset, dtype = data
        return cls(shape=tuple(shape), stride=tuple(stride), offset=offset, dtype=dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """What one call takes and gives. Leaves are numbered depth first.

    ``arguments`` is the skeleton (see ``skeletons``) of ``{"args": [...], "kwargs": {...}}`` or simply of the list of
    positional arguments.
    """

    arguments: Any
    inputs: tuple[TensorSpec, ...]
    results: Any
    """Skeleton of the returned object."""
    outputs: tuple[TensorSpec, ...]
    """Contiguous buffers the returned tensors are copied into."""
    sets: int
    """How many independent sets of inputs and outputs exist."""
    gradients: tuple[tuple[str, TensorSpec], ...] = ()
    """Gradients to deliver, by name: ``input:3`` (leaf 3) or ``parameter:fc.weight``; contiguous buffers."""
    orders: tuple[tuple[int, ...], ...] = ()
    """Strides of the reference's outputs, where a result must be laid out like one of them or row-major."""
    seeds: tuple[int, ...] = ()
    """Output leaves that receive an incoming gradient from the judge, where gradients are asked for."""
    incoming: tuple[TensorSpec, ...] = ()
    """How these gradients lie; row-major where nothing is said."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for the wire."""
        return {
            "arguments": self.arguments,
            "inputs": [spec.to_json() for spec in self.inputs],
            "results": self.results,
            "outputs": [spec.to_json() for spec in self.outputs],
            "sets": self.sets,
            "gradients": [[name, spec.to_json()] for name, spec in self.gradients],
            "orders": [list(steps) for steps in self.orders],
            "seeds": list(self.seeds),
            "incoming": [spec.to_json() for spec in self.incoming],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CallPlan:
        """Inverse of ``to_json``."""
        return cls(
            arguments=data["arguments"],
            inputs=tuple(TensorSpec.from_json(item) for item in data["inputs"]),
            results=data["results"],
            outputs=tuple(TensorSpec.from_json(item) for item in data["outputs"]),
            sets=data["sets"],
            gradients=tuple((name, TensorSpec.from_json(item)) for name, item in data["gradients"]),
            orders=tuple(map(tuple, data["orders"])),
            seeds=tuple(data["seeds"]),
            incoming=tuple(TensorSpec.from_json(item) for item in data["incoming"]),
        )

    def regions(self) -> list[TensorSpec]:
        """The regions of one set, in arena order: inputs, outputs, gradients, incoming gradients."""
        incoming = self.incoming or [self.outputs[leaf] for leaf in self.seeds]
        return [*self.inputs, *self.outputs, *(spec for _, spec in self.gradients), *incoming]


def laid_out_oddly(strides: Sequence[int], expected: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a result is neither row-major nor laid out as the reference's; steps over one element do not count."""
    if 0 in shape:
        return False
    plain = TensorSpec.contiguous(shape, "float32").stride

    def steps(of: Sequence[int]) -> list[int]:
        return [step for step, size in zip(of, shape, strict=True) if size > 1]

    return steps(strides) not in (steps(plain), steps(expected))


class Arena(Protocol):
    """One segment of memory two processes share; ``CpuArena`` and ``CudaArena`` have this shape."""

    size: int
    fd: int
    """Open in the creating process; travels to the other over a unix socket."""
    inode: int
    """Of the file behind it, by which a process's memory map names it; 0 where there is none."""
    tensor: torch.Tensor | None
    """Flat uint8 view of the whole segment; None once closed."""

    def close_fd(self) -> None:
        """Close the descriptor; the memory stays mapped."""

    def close(self) -> None:
        """Unmap. Views of ``tensor`` must not be used afterwards."""


class CpuArena:
    """Host memory behind a sealed memfd: neither side can shrink it under the other."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size, self.inode = fd, size, os.fstat(fd).st_ino
        self._map = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.tensor: torch.Tensor | None = torch.frombuffer(self._map, dtype=torch.uint8)

    @classmethod
    def create(cls, size: int) -> CpuArena:
        """Allocate ``size`` bytes (at least one page), zeroed. Raises OSError or MemoryError when there are none."""
        size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        fd = os.memfd_create("kernelwright", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, ADD_SEALS, SEALS)
            return cls(fd, size)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int, size: int) -> CpuArena:
        """Map the memory behind a received ``fd``; the descriptor stays the caller's."""
        return cls(fd, size)

    def close_fd(self) -> None:
        """Close the descriptor; the memory stays mapped. Safe to call twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        """Let go of descriptor and mapping; the pages go when the last view does. Safe to call twice."""
        self.tensor = None
        self.close_fd()


def create_arena(size: int, device: str) -> Arena:
    """An arena on ``cpu`` or ``cuda:N``."""
    return CudaArena.create(size, _index(device)) if device != "cpu" else CpuArena.create(size)


def attach_arena(fd: int, size: int, device: str) -> Arena:
    """Map an arena from the other process's descriptor; ``size`` is the creator's ``arena.size``."""
    return CudaArena.attach(fd, size, _index(device)) if device != "cpu" else CpuArena.attach(fd, size)


def _index(device: str) -> int:
    return int(device.partition(":")[2] or 0)


def place(specs: Sequence[TensorSpec]) -> tuple[list[int], int]:
    """Byte offset of each region and the total size; a guard of GUARD_BYTES or more lies around every region."""
    offsets, at = [], GUARD_BYTES
    for spec in specs:
        offsets.append(at)
        at = -(-(at + spec.nbytes()) // ALIGN) * ALIGN + GUARD_BYTES
    return offsets, at


class Form:
    """What views of one spec share, worked out once: a program on a GPU gets thousands of them in a race."""

    __slots__ = ("dtype", "nbytes", "offset", "shape", "stride")

    def __init__(self, spec: TensorSpec) -> None:
        self.dtype, self.nbytes = skeletons.dtype(spec.dtype), spec.nbytes()
        self.offset, self.shape, self.stride = spec.offset, spec.shape, spec.stride


def view(arena: Arena, offset: int, form: Form) -> torch.Tensor:
    """A tensor over the region at ``offset``. It is no autograd view of anything and has its own version counter."""
    flat = arena.tensor
    assert flat is not None, "the arena is closed"
    tensor = torch.empty(0, dtype=form.dtype, device=flat.device)
    return tensor.set_(_own_storage(flat, offset, form.nbytes), form.offset, form.shape, form.stride)


def _own_storage(flat: torch.Tensor, offset: int, size: int) -> torch.UntypedStorage:
    """The region as a storage of its own, so that a program sees unrelated tensors, as in an ordinary call."""
    made = getattr(torch._C, "_construct_storage_from_data_pointer", None)  # what torch's own CUDA graph trees use
    if made is not None and flat.device.type != "cpu":
        # By the array interface, which has the driver look the pointer up, all inputs of 256 calls took a program 8 ms.
        storage: torch.UntypedStorage = made(flat.data_ptr() + offset, flat.device, size)
        return storage
    part = flat[offset : offset + size]
    if flat.device.type == "cpu":
        return torch.frombuffer(part.numpy(), dtype=torch.uint8).untyped_storage()
    return torch.as_tensor(_DeviceBytes(part), device=flat.device).untyped_storage()


class _DeviceBytes:
    """A part of a CUDA tensor as the array interface describes it; keeps the part alive."""

    def __init__(self, part: torch.Tensor) -> None:
        self.part = part
        self.__cuda_array_interface__ = {
            "shape": (part.numel(),), "typestr": "|u1", "data": (part.data_ptr(), False), "strides": None, "version": 3,
        }  # fmt: skip


class Regions:
    """A list of guarded regions in one arena: the form in which weights travel."""

    def __init__(self, arena: Arena, specs: Sequence[TensorSpec]) -> None:
        self.arena, self.specs = arena, tuple(specs)
        self.offsets, _ = place(specs)

    @classmethod
    def create(cls, specs: Sequence[TensorSpec], device: str) -> Regions:
        """Allocate an arena for ``specs``."""
        return cls(create_arena(place(specs)[1], device), specs)

    def tensors(self) -> list[torch.Tensor]:
        """Fresh tensor objects over all regions."""
        return [view(self.arena, at, Form(spec)) for at, spec in zip(self.offsets, self.specs, strict=True)]


@dataclass(frozen=True, slots=True)
class Region:
    """One tensor of a call set: ``kind`` is ``input``, ``output``, ``gradient`` or ``incoming gradient``."""

    set: int
    kind: str
    position: int


class Buffers:
    """The call sets of a plan in one arena: ``inputs[s][i]``, ``outputs[s][j]``, ``grads[s][k]``, ``seeds[s][m]``."""

    def __init__(self, arena: Arena, plan: CallPlan) -> None:
        self.arena, self.plan = arena, plan
        specs = plan.regions()
        self._offsets, self._size = place(specs * plan.sets)
        self._specs, self._per_set = specs, len(specs)
        self._forms = [Form(spec) for spec in specs]
        sets = [self.tensors(index) for index in range(plan.sets)]
        self.inputs = [parts[0] for parts in sets]
        self.outputs = [parts[1] for parts in sets]
        self.grads = [parts[2] for parts in sets]
        self.seeds = [parts[3] for parts in sets]
        """Incoming gradients, one per leaf of ``plan.seeds``; the judge fills them."""

    @classmethod
    def create(cls, plan: CallPlan, device: str) -> Buffers:
        """Allocate and guard the memory of ``plan`` (judge side)."""
        return cls.anew(create_arena(place(plan.regions() * plan.sets)[1], device), plan)

    @classmethod
    def anew(cls, arena: Arena, plan: CallPlan) -> Buffers:
        """Lay ``plan`` out in memory that holds it, and guard it (judge side)."""
        buffers = cls(arena, plan)
        buffers.fill_guards()
        return buffers

    def holds(self, plan: CallPlan) -> bool:
        """Whether the memory is large enough for another plan."""
        return place(plan.regions() * plan.sets)[1] <= self.arena.size

    def tensors(self, index: int) -> tuple[list[torch.Tensor], ...]:
        """Fresh tensor objects of set ``index``: inputs, outputs, gradients, incoming gradients."""
        start = index * self._per_set
        offsets = self._offsets[start : start + self._per_set]
        parts = [view(self.arena, at, form) for at, form in zip(offsets, self._forms, strict=True)]
        first = len(self.plan.inputs)
        second = first + len(self.plan.outputs)
        third = second + len(self.plan.gradients)
        return parts[:first], parts[first:second], parts[second:third], parts[third:]

    def arguments(self, index: int) -> list[torch.Tensor]:
        """Fresh tensor objects of the inputs of set ``index`` alone."""
        start = index * self._per_set
        inputs = len(self.plan.inputs)
        places = zip(self._offsets[start : start + inputs], self._forms[:inputs], strict=True)
        return [view(self.arena, at, form) for at, form in places]

    def locate(self, offset: int) -> Region | None:
        """What lies at a byte of the arena; None for a guard band."""
        index = bisect_right(self._offsets, offset) - 1
        if index < 0 or offset >= self._offsets[index] + self._specs[index % self._per_set].nbytes():
            return None
        number, position = divmod(index, self._per_set)
        kinds = (("input", self.plan.inputs), ("output", self.plan.outputs), ("gradient", self.plan.gradients))
        for kind, members in kinds:
            if position < len(members):
                return Region(number, kind, position)
            position -= len(members)
        return Region(number, "incoming gradient", position)

    def across(self, kind: str, position: int) -> torch.Tensor:
        """One region of every set as one tensor, sets first. ``kind`` and ``position`` as in ``Region``."""
        counts = {
            "input": len(self.plan.inputs), "output": len(self.plan.outputs), "gradient": len(self.plan.gradients)
        }  # fmt: skip
        index = {"input": 0, "output": counts["input"], "gradient": counts["input"] + counts["output"]}[kind] + position
        flat, spec = self.arena.tensor, self._specs[index]
        assert flat is not None and position < counts[kind]
        apart = self._offsets[index + self._per_set] - self._offsets[index] if self.plan.sets > 1 else ALIGN
        values = flat.view(skeletons.dtype(spec.dtype))
        size = values.element_size()
        return values.as_strided(
            (self.plan.sets, *spec.shape), (apart // size, *spec.stride), self._offsets[index] // size + spec.offset
        )

    def answers(self, index: int) -> list[torch.Tensor]:
        """What a call is compared on: outputs, then gradients."""
        return [*self.outputs[index], *self.grads[index]]

    def fill_guards(self) -> None:
        """Write the guard pattern around every region, and between the elements of each."""
        for part in self._guards():
            part.fill_(GUARD_VALUE)
        for elements, nobodys in gaps.rows(self._bytes, self._specs, self._offsets):
            elements[nobodys] = GUARD_VALUE

    def guards_intact(self) -> bool:
        """Whether no byte around any region, or between its elements, has changed since ``fill_guards``."""
        inside = (rows[nobodys].reshape(-1) for rows, nobodys in gaps.rows(self._bytes, self._specs, self._offsets))
        return bool((torch.cat([*self._guards(), *inside]) == GUARD_VALUE).all())

    def close(self) -> None:
        """Let go of the memory; no tensor of these buffers may be used afterwards."""
        self.inputs, self.outputs, self.grads, self.seeds = [], [], [], []
        self.arena.close()

    @property
    def _bytes(self) -> torch.Tensor:
        assert self.arena.tensor is not None, "the arena is closed"
        return self.arena.tensor

    def _guards(self) -> list[torch.Tensor]:
        ends = [0, *(at + spec.nbytes() for at, spec in zip(self._offsets, self._specs * self.plan.sets, strict=True))]
        starts = [*self._offsets, self._size]
        return [self._bytes[end:start] for end, start in zip(ends, starts, strict=True)]
