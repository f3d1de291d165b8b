# SPDX-License-Identifier: Apache-2.0
"""cuDNN asked for its workspace, on a library that remembers what it was told and answers as it is made to."""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kernelwright.limits import cudnn, scratch
from kernelwright.limits.cudnn_graph import ELEMENTS, Attribute, Convolution, Kind, Laid, Refused, Type, ask
from kernelwright.limits.memory import memory
from kernelwright.limits.scratch import Part

HANDLE = 0x77
FORMATS = {0: "P", 1: "i", 3: "q", 4: "f", 5: "d", 7: "i", 8: "i", 15: "P"}
"""How elements of each type lie in memory, by the header's numbers."""


class Library:
    """Descriptors as dicts. ``engines``: by mode of the heuristics: (numerical notes, workspace; None: no plan)."""

    def __init__(
        self, engines: dict[int, list[tuple[list[int], int | None]]], failing: tuple[str, int] = ("", 0)
    ) -> None:
        self.engines, self.failing = engines, failing
        self.made: dict[int, dict[str, Any]] = {}
        self.alive: set[int] = set()
        self.graphs = 0

    def _status(self, what: str) -> int:
        return self.failing[1] if what == self.failing[0] else 0

    def cudnnCreate(self, place: Any) -> int:  # noqa: N802
        place[0] = HANDLE
        return self._status("create a handle")

    def cudnnBackendCreateDescriptor(self, kind: int, place: Any) -> int:  # noqa: N802
        name = Kind(kind).name
        place[0] = 1000 + len(self.made)
        self.made[place[0]] = {"kind": name}
        self.alive.add(place[0])
        self.graphs += name == "OPERATIONGRAPH"
        return self._status(f"create {name}")

    def cudnnBackendDestroyDescriptor(self, made: int) -> int:  # noqa: N802
        self.alive.remove(made)
        return 0

    def cudnnBackendSetAttribute(self, made: int, name: int, of: int, count: int, elements: Any) -> int:  # noqa: N802
        values = struct.unpack(f"={count}{FORMATS[of].replace('P', 'Q')}", bytes(elements))
        self.made[made][Attribute(name).name] = values
        return self._status(f"set {Attribute(name).name}")

    def cudnnBackendFinalize(self, made: int) -> int:  # noqa: N802
        about = self.made[made]
        if about["kind"] == "EXECUTION_PLAN" and self._engine(about["EXECUTION_PLAN_ENGINE_CONFIG"][0])[1] is None:
            return 3000
        return self._status(f"finalize {about['kind']}")

    def cudnnBackendGetAttribute(  # noqa: N802
        self, made: int, name: int, of: int, room: int, count: Any, elements: Any
    ) -> int:
        about, asked = self.made[made], Attribute(name).name
        if asked == "ENGINEHEUR_RESULTS":
            found = self.engines[about["ENGINEHEUR_MODE"][0]]
            count[0] = len(found)
            for place in range(room):
                self.made[elements[place]]["engine"] = found[place]
        elif asked == "ENGINECFG_ENGINE":
            count[0], self.made[elements[0]]["engine"] = 1, about["engine"]
        elif asked == "ENGINE_NUMERICAL_NOTE":
            count[0] = len(about["engine"][0])
            for place, note in enumerate(about["engine"][0]):
                elements[place] = note
        else:
            count[0], elements[0] = 1, self._engine(about["EXECUTION_PLAN_ENGINE_CONFIG"][0])[1]
        return self._status(f"get {asked}")

    def _engine(self, configuration: int) -> tuple[list[int], int | None]:
        engine: tuple[list[int], int | None] = self.made[configuration]["engine"]
        return engine

    def only(self, kind: str) -> dict[str, Any]:
        """The one descriptor of a kind."""
        (found,) = [about for about in self.made.values() if about["kind"] == kind]
        return found

    def tensors(self) -> dict[str, dict[str, Any]]:
        """Those that were described, by their unique letter."""
        found = [about for about in self.made.values() if about["kind"] == "TENSOR"]
        return {chr(about["TENSOR_UNIQUE_ID"][0]): about for about in found}


def images(operation: str = "forward", *, last: bool = False, **changed: Any) -> Convolution:
    """3 x 5 to 7 channels, 3 x 3 with stride 2."""
    x, w, y = Laid((3, 5, 8, 10), last), Laid((7, 5, 3, 3), last), Laid((3, 7, 4, 5), last, 16)
    given: dict[str, Any] = {"dtype": torch.float32, "tf32": True, "deterministic": False} | changed
    return Convolution(operation, x=x, w=w, y=y, stride=(2, 2), padding=(1, 1), dilation=(1, 1), **given)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Library]]:
    """A device whose library is the last of the list; convolutions are cuDNN's."""
    libraries = [Library({0: [([], 4096)]})]
    monkeypatch.setattr(cudnn, "ASKING", cudnn.Asking())
    monkeypatch.setattr(cudnn, "loaded", lambda: libraries[-1])
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(scratch, "_backend", lambda call: "CudnnTranspose" if call.given["transposed"] else "Cudnn")
    monkeypatch.setattr(Part, "of", lambda _: Part("cuda", here=True))
    yield libraries


def test_a_convolution_is_described_as_torch_does() -> None:
    """Numbers and bytes are those of the header: what is read here is decoded from memory by the types' numbers."""
    library = Library({0: [([], 640)], 2: []})
    assert ask(library, HANDLE, images()) == 640
    tensors = library.tensors()
    assert (3, 5, 8, 10) == tensors["x"]["TENSOR_DIMENSIONS"] and (400, 80, 10, 1) == tensors["x"]["TENSOR_STRIDES"]
    assert (32,) == tensors["x"]["TENSOR_BYTE_ALIGNMENT"] and (16,) == tensors["y"]["TENSOR_BYTE_ALIGNMENT"]
    described = library.only("CONVOLUTION")
    assert ((2, 2), (1, 1), (2,)) == tuple(
        described[f"CONVOLUTION_{name}"] for name in ("FILTER_STRIDES", "PRE_PADDINGS", "SPATIAL_DIMS")
    )
    assert (1,) == described["CONVOLUTION_CONV_MODE"] and (0,) == described["CONVOLUTION_COMP_TYPE"]
    operation = library.only("OPERATION_CONVOLUTION_FORWARD")
    assert [tensors[letter] for letter in "xwy"] == [library.made[operation[f"FORWARD_{at}"][0]] for at in "XWY"]
    assert ((1.0,), (0.0,)) == (operation["FORWARD_ALPHA"], operation["FORWARD_BETA"])
    assert (HANDLE,) == library.only("OPERATIONGRAPH")["OPERATIONGRAPH_HANDLE"]
    assert library.alive == set()


@pytest.mark.parametrize(
    ("operation", "kind", "names"),
    [("data", "DATA", ("DX", "W", "DY")), ("filter", "FILTER", ("X", "DW", "DY"))],
)
def test_gradients_are_operations_of_their_own(operation: str, kind: str, names: tuple[str, ...]) -> None:
    """On the same three tensors, each under the name that it has there."""
    library = Library({0: [([], 1)]})
    ask(library, HANDLE, images(operation))
    found = library.only(f"OPERATION_CONVOLUTION_BACKWARD_{kind}")
    assert ["x", "w", "y"] == [
        chr(library.made[found[f"BWD_{kind}_{name}"][0]]["TENSOR_UNIQUE_ID"][0]) for name in names
    ]


def test_channels_last_is_a_matter_of_strides() -> None:
    """Sizes stay as they are; a size of 1 has the stride that it would have if it were larger."""
    assert (400, 1, 50, 5) == Laid((3, 5, 8, 10), True).strides
    assert (70, 1, 70, 7) == Laid((3, 7, 1, 10), True).strides
    assert (20, 20, 20, 1) == Laid((2, 1, 1, 20), False).strides


def test_doubles_are_scaled_and_summed_in_double() -> None:
    """Halves are summed in float."""
    library = Library({0: [([], 1)]})
    ask(library, HANDLE, images(dtype=torch.float64))
    assert (1,) == library.only("CONVOLUTION")["CONVOLUTION_COMP_TYPE"]
    assert (1.0,) == library.only("OPERATION_CONVOLUTION_FORWARD")["FORWARD_ALPHA"]
    library = Library({0: [([], 1)]})
    ask(library, HANDLE, images(dtype=torch.bfloat16))
    assert (0,) == library.only("CONVOLUTION")["CONVOLUTION_COMP_TYPE"]
    assert (9,) == library.tensors()["w"]["TENSOR_DATA_TYPE"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, 10),
        ({"tf32": False}, 30),
        ({"tf32": False, "dtype": torch.float16}, 10),
        ({"deterministic": True}, 20),
        ({"deterministic": True, "tf32": False}, 40),
    ],
)
def test_engines_are_left_out_as_torch_does(changed: dict[str, Any], expected: int) -> None:
    """Those that round inputs always; tensor cores for floats without TF32; others where results must repeat. What
    becomes no plan is passed over, and fallbacks come last."""
    engines = {0: [([1], 5), ([], None), ([0, 4], 10), ([0, 5], 20), ([4], 30)], 2: [([], 40)]}
    assert expected == ask(Library(engines), HANDLE, images(**changed))


@pytest.mark.parametrize(
    "what",
    ["create TENSOR", "set TENSOR_STRIDES", "finalize OPERATIONGRAPH", "finalize ENGINEHEUR", "get ENGINEHEUR_RESULTS",
     "get ENGINECFG_ENGINE", "get ENGINE_NUMERICAL_NOTE", "get EXECUTION_PLAN_WORKSPACE_SIZE"],
)  # fmt: skip
def test_whatever_is_refused_is_named_and_nothing_is_left(what: str) -> None:
    """The status too; descriptors made so far are destroyed."""
    library = Library({0: [([], 10)], 2: []}, (what, 4004))
    with pytest.raises(Refused, match=f"{what}: status 4004"):
        ask(library, HANDLE, images())
    assert {made for made in library.alive if not what.startswith("create")} == set()


def test_a_shape_is_asked_about_once(here: list[Library]) -> None:
    """Refusals too."""
    first, second = images(), images("data")
    assert [4096] * 3 == [cudnn.ASKING.workspace(0, one) for one in (first, first, images())]
    assert here[-1].graphs == 1
    here.append(Library({}, ("finalize OPERATIONGRAPH", 2000)))
    assert all(isinstance(cudnn.ASKING.workspace(0, second), Refused) for _ in range(3))
    assert here[-1].graphs == 1 and cudnn.ASKING.workspace(0, first) == 4096


def test_without_the_library_nothing_is_said() -> None:
    """torch without CUDA has none in the process, and no device is touched for it."""
    if torch.version.cuda is None:
        found = cudnn.Asking().workspace(0, images())
        assert isinstance(found, Refused) and "OSError" in str(found)


@pytest.mark.parametrize("failure", [("create a handle", 1001), ("finalize TENSOR", 2000)])
def test_a_refusal_leaves_the_rule_and_its_note(here: list[Library], failure: tuple[str, int]) -> None:
    """Input and weight at the least, and that it is the library's choice."""
    module, x = torch.nn.Conv2d(16, 32, 3, padding=1), torch.empty(8, 16, 64, 64)
    with torch.no_grad():
        asked = memory(module, (x,))
        here.append(Library({}, failure))
        cudnn.ASKING = cudnn.Asking()
        refused = memory(module, (x,))
    result = 8 * 32 * 64 * 64 * 4
    assert (result + 4096, ()) == (asked.activations, asked.unknown)
    assert refused.activations >= result + x.nbytes + module.weight.nbytes
    assert "its own choice" in refused.unknown[0]


def test_trying_all_engines_is_not_predicted(here: list[Library], monkeypatch: pytest.MonkeyPatch) -> None:
    """torch then takes the workspace of the largest."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with torch.no_grad():
        assert memory(torch.nn.Conv2d(4, 4, 3), (torch.empty(2, 4, 8, 8),)).unknown
    assert not cudnn.ASKING.answers


def of(*shape: int) -> torch.Tensor:
    """Of no values."""
    return torch.empty(shape, device="meta")


def questions(func: Any, *args: Any) -> list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """What one call asks: operation and sizes."""
    scratch.scratch(func, args, {}, func(*args), Part("cuda", here=True))
    return [(one.operation, one.x.sizes, one.w.sizes, one.y.sizes) for _, one in cudnn.ASKING.answers]


@pytest.mark.usefixtures("here")
def test_a_transposed_convolution_is_a_gradient_and_its_gradients_are_a_convolution() -> None:
    """Input and result change their places."""
    x, w, y = (2, 6, 10, 12), (6, 4, 3, 3), (2, 4, 12, 14)
    common = ([1, 1], [0, 0], [1, 1], True, [0, 0], 1)
    assert [("data", y, w, x)] == questions(torch.ops.aten.convolution.default, of(*x), of(*w), None, *common)
    cudnn.ASKING.answers.clear()
    found = questions(
        torch.ops.aten.convolution_backward.default, of(*y), of(*x), of(*w), None, *common, [True, True, False]
    )
    assert [("forward", y, w, x), ("filter", y, w, x)] == found


@pytest.mark.usefixtures("here")
def test_rows_are_images_of_one_row() -> None:
    """torch gives them a height of one."""
    args = of(2, 6, 50), of(8, 6, 5), None, [3], [2], [1], False, [0], 1
    found = questions(torch.ops.aten.convolution.default, *args)
    ((_, asked),) = cudnn.ASKING.answers
    assert [("forward", (2, 6, 1, 50), (8, 6, 1, 5), (2, 8, 1, 17))] == found
    assert ((1, 3), (0, 2), (1, 1)) == (asked.stride, asked.padding, asked.dilation)


@pytest.mark.usefixtures("here")
def test_what_lies_otherwise_is_copied_first() -> None:
    """Weights for an image with channels last; an image that was turned."""
    x, w = of(2, 16, 8, 8), of(16, 16, 3, 3)
    func, rest = torch.ops.aten.convolution.default, (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    part = Part("cuda", here=True)
    for given, copy in (
        (x, []),
        (x.to(memory_format=torch.channels_last), [w.nbytes]),
        (x.transpose(2, 3), [x.nbytes]),
    ):
        args = (given, w, *rest)
        assert [*copy, 4096] == scratch.scratch(func, args, {}, func(*args), part)


def test_the_gradient_of_the_input_comes_while_that_of_the_weight_is_not_there(here: list[Library]) -> None:
    """The second moment is the worse one but where the first needs more than the weight besides."""
    x, w = of(2, 16, 8, 8), of(16, 16, 3, 3)
    func = torch.ops.aten.convolution_backward.default
    args = (x, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
    sizes = {"data": 0, "filter": 100}
    cudnn.ASKING.workspace = lambda _, asked: sizes[asked.operation]  # type: ignore[method-assign]
    for sizes["data"], expected in ((w.nbytes + 90, 100), (w.nbytes + 110, 110)):
        assert [expected] == scratch.scratch(func, args, {}, func(*args), Part("cuda", here=True))
    assert here


def test_elements_are_as_wide_as_the_header_says() -> None:
    """Enumerations are ints, sizes 64 bits."""
    wide = {"DATA_TYPE": 4, "HEUR_MODE": 4, "CONVOLUTION_MODE": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8, "DESCRIPTOR": 8}
    assert wide == {name: ctypes.sizeof(ELEMENTS[Type[name]]) for name in wide}


def test_the_header_counts_attributes_of_an_operation_in_its_own_order() -> None:
    """cudnn_graph.h: 700 to 717, weights before inputs but in the gradient of the weight, where it is the result."""
    rows = ("FORWARD_", "W", "X", "Y"), ("BWD_DATA_", "W", "DX", "DY"), ("BWD_FILTER_", "DW", "X", "DY")
    names = [prefix + name for prefix, *own in rows for name in ("ALPHA", "BETA", "CONV_DESC", *own)]
    assert list(range(700, 718)) == [int(Attribute[name]) for name in names]
