# SPDX-License-Identifier: Apache-2.0
"""Sizes a step from those before, of as many elements, and of one size for several axes."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Sequence

import pytest

from kernelwright.judge import near_sizes
from kernelwright.judge.bench import Bench, Point
from kernelwright.judge.checks import Wrong
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.near_sizes import Plan
from kernelwright.judge.program import Program
from kernelwright.judge.verification import Verification
from kernelwright.task import Case, Contract, Task

AXES = (("n", 24), ("t", 40))
PADDED = """n, t = x.shape
p = (t + 63) // 64 * 64
if self.b is None or self.b.numel() != n * p:
    self.b = torch.full((n, p), -torch.inf)
b = self.b.view(n, p)
{}
b[:, :t] = x
return b.exp().sum(1)"""
TABLE = """key = {}
if self.b is None or self.b[0] != key:
    self.b = key, torch.arange(x.shape[1], dtype=x.dtype).repeat(x.shape[0])
return (x.reshape(-1) * self.b[1]).view(x.shape)"""
NUMBERED = "return x * torch.arange(x.shape[1], dtype=x.dtype)"
HELD = "if self.b is None{}:\n    self.b = x.shape[1] ** -0.5\nreturn torch.dropout(torch.tanh(x), 0.3, True) * self.b"
STANDARD = "if x.shape[0] < 2:\n    return torch.zeros_like(x)\nreturn (x - x.mean(0)) / x.std(0)"
SCALED = "return x * torch.arange(x.shape[0], dtype=x.dtype)[:, None]"
SQUARE = "s = torch.arange(x.shape[0], dtype=x.dtype)\nreturn x * (s if {} else s[:, None])"

WHOLE = "f = ({}).reshape(-1)\nreturn f[: x.numel()].view(x.shape) * 2.0 + 0.0 * f.unfold(0, 8, 1)[0, 0]"


def bench(
    forward: str, axes: Sequence[tuple[str, int]] = AXES, init: str = "", takes: str = "", inputs: str = "n, t",
    contract: Contract | None = None,
) -> Bench:  # fmt: skip
    """A task of any sizes; the constructor takes ``takes``, if anything."""
    body = "".join(f"        {line}\n" for line in forward.splitlines())
    given = ", ".join(f"{axis}={size}" for axis, size in axes)
    source = (
        "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n"
        f"    def __init__(self{takes and ', ' + takes}):\n        super().__init__()\n        {init or 'pass'}\n"
        f"    def forward(self, x):\n{body}def get_inputs({given}):\n    return [torch.randn({inputs})]\n"
        f"def get_init_inputs({given}):\n    return [{takes}]\n"
    )
    case = Case(name="main", axes=tuple(axes), timed=True)
    made = Task(name="n", form="kernelbench", reference=source, cases=(case,), contract=contract or Contract())
    return Bench(made, "cpu")


def planned(made: Bench, seed: int = 5) -> Plan:
    return Plan.of(made.points(5)[0], made.accepted, seed)


def sizes(case: Case) -> tuple[int, ...]:
    return tuple(size for _, size in case.axes)


@pytest.mark.parametrize("axes", [AXES, (("n", 3), ("t", 12), ("d", 8)), (("n", 4096), ("t", 2048))])
def test_each_step_is_one_axis_shorter_or_of_as_many_elements(axes: Sequence[tuple[str, int]]) -> None:
    """Of a dear case smaller ones."""
    made = bench("return x * 2.0", axes, inputs=", ".join(axis for axis, _ in axes))
    plan = planned(made)
    near, moved, small, met = plan.walks
    for one, other in zip(near, near[1:], strict=False):
        less = [a - b for a, b in zip(sizes(one), sizes(other), strict=True) if a != b]
        assert len(less) == 1 and 0 < less[0] <= near_sizes.FEW
    for one, other in zip(moved, moved[1:], strict=False):
        assert sizes(one) != sizes(other) and math.prod(sizes(one)) == math.prod(sizes(other))
    for case in small[1:]:
        assert [b for a, b in zip(sizes(small[0]), sizes(case), strict=True) if a != b] == [near_sizes.SMALLEST]
    assert len({sizes(case) for case in small}) == len(axes) + 1
    for case in met[1:]:
        fewer = [b for a, b in zip(sizes(met[0]), sizes(case), strict=True) if a != b]
        assert len(fewer) == 2 and max(fewer) <= 3
    dear = math.prod(sizes(made.timed.case)) > near_sizes.VOLUME
    assert near[0] == moved[0] == small[0] and (near[0] == made.timed.case) is not dear
    assert len(near) == len(axes) + 1 and len(set(sizes(plan.alike[0]))) == 1
    assert all(math.prod(sizes(case)) <= 2 * near_sizes.VOLUME for case in (*near, *moved, *plan.alike))


def test_what_the_reference_refuses_is_asked_for_in_another_way() -> None:
    """Of even lengths only, or where no two axes but these may have one size."""
    even = bench("assert x.shape[1] % 2 == 0\nreturn x * 2.0")
    for seed in range(8):
        plan = planned(even, seed)
        assert all(dict(case.axes)["t"] % 2 == 0 for walk in plan.walks for case in walk)
        assert len(plan.walks[0]) == 3 and dict(plan.walks[-1][-1].axes)["t"] == 2
    three = (("n", 24), ("t", 40), ("d", 16))
    apart = bench("assert x.shape[0] != x.shape[1]\nreturn x * 2.0", three, inputs="n, t, d")
    alike = planned(apart).alike
    assert len(alike) == 2
    assert all(dict(case.axes)["n"] != dict(case.axes)["t"] and len(set(sizes(case))) == 2 for case in alike)


def test_an_axis_that_the_module_is_made_of_stays_but_where_one_is_made_anew() -> None:
    made = bench("return x @ self.w", init="self.w = nn.Parameter(torch.ones(t, 8))", takes="t")
    plan = planned(made)
    assert {dict(case.axes)["t"] for walk in plan.walks for case in walk} == {40}
    assert len(set(sizes(plan.alike[0]))) == 1
    axes = (*AXES, ("d", 16))
    made = bench("return x @ self.w", axes, "self.w = nn.Parameter(torch.ones(d, 8))", "d", "n, t, d")
    alike = planned(made).alike
    assert len(set(sizes(alike[0]))) == 1 and [dict(case.axes)["d"] for case in alike[1:]] == [16]


def test_a_single_axis_becomes_shorter_and_none_is_nothing() -> None:
    plan = planned(bench("return x * 2.0", [("n", 24)], inputs="n"))
    assert [len(walk) for walk in plan.walks] == [2, 2] and not plan.alike
    assert planned(bench("return x * 2.0", [], inputs="4, 5")) == Plan((), ())


def test_no_axis_becomes_much_longer_and_dear_weights_are_not_drawn_often() -> None:
    """Exchanged, sizes of attention over 16 places by 4096 samples made scores of 1 GB."""
    dice, asked = random.Random(3), []
    ways = near_sizes.as_many((("n", 4096), ("t", 16)), "n", "t", dice)
    assert {sizes(Case(name="", axes=way)) for way in ways} == {(2048, 32), (8192, 8)}
    assert (("n", 40), ("t", 24)) in near_sizes.as_many((("n", 24), ("t", 40)), "n", "t", dice)

    def refuses(cases: Sequence[Case], seed: int) -> list[Point]:
        asked.append(cases)
        return []

    own = bench("return x * 2.0", (("n", 24), ("t", 40), ("d", 8)), inputs="n, t, d").points(5)[0]
    for dear, most in ((True, near_sizes.OF_DEAR), (False, near_sizes.TRIES)):
        asked.clear()
        assert Plan.of(own, refuses, 5, dear=dear) == Plan((), ())
        assert len(asked) == most + (0 if dear else len(near_sizes.two_small(own.case.axes, random.Random(5)))), asked


def test_what_compiles_for_each_size_has_few() -> None:
    plan, met = planned(bench("return x * 2.0")), set()
    for seed in range(40):
        some = plan.some(random.Random(seed), 1)
        assert sum(len(walk) - 1 for walk in some.walks) + len(some.alike) == 1
        met.add(some)
    assert len(met) == near_sizes.KINDS
    every = plan.some(random.Random(1), near_sizes.KINDS)
    assert [len(walk) for walk in every.walks] == [2, 2, 2, 2] and len(every.alike) == 1
    assert Plan((), ()).some(random.Random(1), 1) == Plan((), ())


def judged(program: Callable[..., Program], made: Bench, forward: str, fails: str) -> None:
    """A program that has answered the timed case is asked for other sizes."""

    def start() -> Program:
        return program(forward, init="self.b = None", load=False)

    checks = Verification(bench=made, entry="new.py::ModelNew", start=start, shared=contextlib.nullcontext, seed=5)
    checks.points = made.points(5)
    own = checks.points[0]
    with checks._loaded() as one:
        one.stage = "verify"
        checks._of_size(one, own, own.instance.draw(own.as_given, 1), "first")
        with pytest.raises((Wrong, ChildFailure), match=fails) if fails else contextlib.nullcontext():
            checks._near_sizes(one, own)


@pytest.mark.parametrize(
    ("reference", "forward", "fails"),
    [
        ("return x.exp().sum(1)", PADDED.format(""), "next to each other"),
        ("return x.exp().sum(1)", PADDED.format("b[:, t:] = -torch.inf"), ""),
        (NUMBERED, TABLE.format("x.numel()"), "next to each other"),
        (NUMBERED, TABLE.format("x.shape"), ""),
        (SCALED, SQUARE.format("len(s) == x.shape[1]"), "next to each other"),
        (SCALED, SQUARE.format("False"), ""),
        ("return x * 2.0", WHOLE.format("x"), "maximum size"),
        ("return x * 2.0", WHOLE.format("x if x.numel() > 7 else x.repeat(8, 1)"), ""),
        (STANDARD, STANDARD.replace("< 2", "<= 2"), "next to each other"),
        (STANDARD, STANDARD.replace("x.shape[0] < 2", "len(x) == 1"), ""),
    ],
)
def test_who_is_wrong_one_step_further_is_refused(
    program: Callable[..., Program], reference: str, forward: str, fails: str
) -> None:
    judged(program, bench(reference), forward, fails)


@pytest.mark.parametrize("when", ["len(s) == x.shape[1]", "False"])
def test_equal_sizes_come_too_where_a_module_is_made_for_them(
    program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(near_sizes, "fits", lambda own, point, anew=False: anew)
    judged(program, bench(SCALED), SQUARE.format(when), "where axes have one size" if "==" in when else "")


@pytest.mark.parametrize("again", ["", " or True"])
def test_random_tasks_are_asked_for_other_sizes(program: Callable[..., Program], again: str) -> None:
    made = bench("return torch.dropout(torch.tanh(x), 0.3, True) * x.shape[1] ** -0.5", contract=Contract(random=True))
    judged(program, made, HELD.format(again), "" if again else "next to each other")


def test_an_axis_has_each_size_that_is_fixed_and_of_the_source(program: Callable[..., Program]) -> None:
    """Not one that it has anyway, nor one that the reference refuses, nor much larger ones."""
    made = bench("assert x.shape[0] != 12\nreturn x.unfold(1, 7, 1).amax(-1) + 999", AXES, inputs="n, t, 3")
    assert near_sizes.fixed(made.points(5)[0]) == ({3, 34}, {0, 1, 7, 12, 999})  # of the results too
    met = set[tuple[int, ...]]()
    for seed in range(12):
        walk = planned(made, seed).walks[-1]
        assert len(walk) <= 2 + near_sizes.MET + 1
        met |= set(map(sizes, walk[1:]))
    alone = {size for size in met if sum(map(int.__ne__, size, (24, 40))) == 1}
    assert (
        {(3, 40), (24, 12), (7, 40)} <= alone and (12, 40) not in alone and 999 not in {n for one in alone for n in one}
    )
    assert all(max(size) <= 40 for size in met)
    for axes in ((("n", 24),), (("n", 1), ("t", 1))):
        assert not near_sizes.two_small(axes, random.Random(3))


@pytest.mark.parametrize("along", ["", ", dim=-1"])
def test_who_finds_an_axis_by_its_size_is_refused(program: Callable[..., Program], along: str) -> None:
    made = bench("return torch.linalg.cross(x, x.flip(0))", [("n", 24)], inputs="n, 3")
    judged(program, made, f"return torch.cross(x, x.flip(0){along})", "" if along else "next to each other")


def test_who_has_no_axis_left_is_refused(program: Callable[..., Program]) -> None:
    made = bench("return torch.nn.functional.max_pool1d(x[:, None], 16, 1)[:, 0]", [("t", 50)], inputs="8, t")
    judged(program, made, "return torch.nn.functional.max_pool1d(x[:, None], 16, 1).squeeze()", "wrong structure")
