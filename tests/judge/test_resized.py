# SPDX-License-Identifier: Apache-2.0
"""One program is asked for several sizes in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from kernelwright.judge import resized
from kernelwright.judge.bench import Bench, Point
from kernelwright.judge.checks import Wrong
from kernelwright.judge.correctness import Correctness
from kernelwright.judge.program import Program
from kernelwright.task import Case, Contract, Task


def bench(forward: str = "return x / x.shape[1]", init: str = "pass", taken: str = "", random: bool = False) -> Bench:
    """A task of any length ``t``; the constructor takes ``taken``, if anything."""
    source = (
        "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n"
        f"    def __init__(self{taken and ', ' + taken}):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x):\n        {forward}\ndef get_inputs(t=24):\n    return [torch.randn(4, t)]\n"
        f"def get_init_inputs(t=24):\n    return [{taken}]\n"
    )
    case = Case(name="main", axes=(("t", 24),), timed=True)
    made = Task(name="n", form="kernelbench", reference=source, cases=(case,), contract=Contract(random=random))
    return Bench(made, "cpu")


def asked(points: tuple[Point, ...], own: int = 0) -> list[str]:
    return [point.case.name for point, _ in resized.in_turn(points[own], points, 7)]


def test_a_case_is_asked_for_others_and_then_for_its_own_size_again() -> None:
    points = bench().points(5)
    for own in range(len(points)):
        *others, last = asked(points, own)
        assert others and points[own].case.name not in others and last == points[own].case.name


def test_each_axis_has_another_size() -> None:
    """Where the first one changes a batch alone, a mask of the first length is still right."""
    source = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x / x.shape[1]\n"
        "def get_inputs(b=4, t=24, d=8):\n    return [torch.randn(b, t, d)]\ndef get_init_inputs():\n    return []\n"
    )
    case = Case(name="main", axes=(("b", 4), ("t", 24), ("d", 8)), timed=True)
    points = Bench(Task(name="n", form="kernelbench", reference=source, cases=(case,)), "cpu").points(5)
    for own in points:
        met = [point.case.axes for point, _ in resized.in_turn(own, points, 7)]
        assert all(len(set(sizes)) > 1 for sizes in zip(*met, strict=True))


@pytest.mark.parametrize(
    "given",
    [
        {"taken": "t"},
        {"init": "self.w = nn.Parameter(torch.ones(t))", "taken": "t"},
        {"init": "self.n = 0", "forward": "self.n = self.n or x.shape[1]; return x / self.n"},
        {
            "init": "self.n = 0",
            "forward": "self.n = self.n or x.shape[1]; return torch.dropout(x, 0.5, True) / self.n",
            "random": True,
        },
    ],
)
def test_what_is_made_for_one_size_is_asked_for_that_alone(given: dict[str, object]) -> None:
    points = bench(**given).points(5)  # type: ignore[arg-type]
    assert len(points) > 1 and asked(points) == []


def test_random_answers_are_asked_for_in_other_sizes_too() -> None:
    points = bench("return torch.dropout(x, 0.5, True)", random=True).points(5)
    assert asked(points)[-1] == "main" and len(asked(points)) > 1


@pytest.mark.parametrize("kept", [True, False])
def test_who_keeps_the_first_length_is_refused(program: Callable[..., Program], kept: bool) -> None:
    made = bench()
    checks = Correctness(bench=made, entry="new.py::ModelNew", start=lambda: one, shared=contextlib.nullcontext, seed=5)
    checks.points = made.points(5)
    one = program(f"self.n = {'self.n or ' * kept}x.shape[1]\nreturn x / self.n", init="self.n = 0")
    own = checks.points[0]
    buffers = own.bind(one, own.as_given, 1)
    checks._call(one, own, own.as_given, buffers, 0, own.instance.draw(own.as_given, 1), own.instance.first_state)
    with pytest.raises(Wrong, match="several sizes") if kept else contextlib.nullcontext():
        checks._other_sizes(one, own)
