# SPDX-License-Identifier: Apache-2.0
"""judge/opposite.py: inputs on either side of zero, and above it beside weights below."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance, task

from kernelwright.judge import inputs, opposite
from kernelwright.judge.bench import Bench
from kernelwright.judge.checks import Wrong
from kernelwright.judge.correctness import Correctness
from kernelwright.judge.inputs import Variant
from kernelwright.judge.loading import load
from kernelwright.judge.opposite import ABOVE, SIDES
from kernelwright.judge.program import Program

VECTORS = "[torch.randn(16, 48), torch.randn(48)]"
WEIGHT = "self.w = torch.nn.Parameter(torch.randn(48))"


def side(leaf: torch.Tensor) -> int:
    """1 or -1 where all of it lies on one side of zero, else 0."""
    return int(bool((leaf >= 0).all())) - int(bool((leaf <= 0).all()))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_each_input_has_one_sign_and_two_differ(count: int) -> None:
    given, met = [torch.randn(8, 6) for _ in range(count)], set()
    for seed in range(60):
        made = opposite.sides(given, inputs.generator(seed, "cpu"))
        found = tuple(map(side, made))
        met.add(found)
        assert set(found) == {1, -1}
        times = [float((other / one).abs().mean()) for one, other in zip(given, made, strict=True)]
        of_side = {sign: {t for t, s in zip(times, found, strict=True) if s == sign} for sign in (1, -1)}
        assert sorted(map(tuple, of_side.values())) == [(1 / 8,), (1.0,)], "sums of both sides do not cancel"
    assert len(met) == 2**count - 2


def test_masks_numbers_and_what_is_alone_stay() -> None:
    rng, x = inputs.generator(1, "cpu"), torch.randn(4, 4)
    mask, places = torch.full((4, 4), -torch.inf).triu(1), torch.arange(4) - 2
    for made in (opposite.sides([mask, places, x], rng), opposite.above([mask, places, x.abs()], rng)):
        assert made[0] is mask and made[1] is places and torch.equal(made[2].abs(), x.abs())
    assert opposite.sides([mask, places, x], rng)[2] is x, "there is no other that it could differ from"
    assert side(opposite.above([x], rng)[0]) == 1


def offered(forward: str, given: str, **more: str) -> list[Variant]:
    made = instance(forward, given, **more)
    return [variant for variant in made.offered(3) if variant.change in (SIDES, ABOVE)]


def test_several_inputs_and_weights_are_offered_the_largest_scale_first() -> None:
    assert offered("x.amax(-1)", "[torch.randn(16, 48)]") == []
    [first, *less] = offered("(x * y).amax(-1)", VECTORS, args="x, y")
    assert (first.name, first.scale, first.draws) == (SIDES, 1000.0, 2) and not first.fresh_weights
    assert [variant.scale for variant in less] == [20.0, 4.0, 1.0] and {v.group for v in (first, *less)} == {SIDES}
    [first, *_] = offered("(x * self.w).amax(-1)", "[torch.randn(16, 48)]", init=WEIGHT)
    assert (first.name, first.scale, first.fresh_weights) == (ABOVE, 1000.0, True)


def test_weights_lie_below_zero_beside_inputs_above() -> None:
    made = instance("(x * self.w).amax(-1)", "[torch.randn(16, 48)]", init=WEIGHT)
    [variant, *_] = [v for v in made.offered(3) if v.change == ABOVE]
    [leaf], [(_, weight)] = made.draw(variant, 5), made.draw_state(5, variant.moved)
    assert (side(leaf), side(weight)) == (1, -1) and 100 < inputs.size_of(leaf) and 0.5 < inputs.size_of(weight) < 2


@pytest.mark.parametrize("fill", [0.0, float("-inf")])
def test_rows_that_are_filled_up_with_zeros_are_refused(program: Callable[..., Program], fill: float) -> None:
    made = Bench(task("(x * self.w).amax(-1)", "[torch.randn(16, 48)]", init=WEIGHT), "cpu")
    body = f"return torch.nn.functional.pad(x * self.w, (0, 16), value=float('{fill}')).amax(-1)"
    one = program(body, init=WEIGHT, load=False)
    checks = Correctness(bench=made, entry="new.py::ModelNew", start=lambda: one, shared=contextlib.nullcontext, seed=5)
    checks.points = made.points(5)
    [point] = checks.points
    load(one, checks.entry, point.instance)
    chosen = [variant for variant in point.offered if variant.change == ABOVE]
    with pytest.raises(Wrong, match=ABOVE) if fill == 0.0 else contextlib.nullcontext():
        assert [variant.name for variant in checks._variants(one, point, chosen)] == [ABOVE]
