# SPDX-License-Identifier: Apache-2.0
"""Outputs in float32 beside one in float64."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.inputs import Variant
from kernelwright.judge.units import DOUBLE, SINGLE, Units
from kernelwright.judge.verify import Checker

OUTLIERS = Variant(name="outliers", required=True, change="outliers")
FAR = Variant(name="far from zero", required=True, change="far")
GIVEN = Variant(name="as given", required=True)
MOMENTS = (
    "(lambda z: ((z ** 3).mean(0), (z ** 4).mean(0) - 3, n + 1))((x - x.mean(0)) / x.var(0, False).add(1e-12).sqrt())"
)
COLUMNS = "[torch.randn(200, 32), torch.tensor(100.0, dtype=torch.float64)]"
SUMS = "(x.double().sum(1).float(), x.double().mean(1))"


def moments(x: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
    """Powers of distances from the mean, and of the root of one over the variance."""
    c = x - x.mean(0)
    squares = c * c
    r = torch.rsqrt(squares.sum(0) / len(x) + 1e-12)
    return [(squares * c).mean(0) * (r * r) * r, (squares * squares).mean(0) * (r * r) * (r * r) - 3, n + 1]


def one_pass(x: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
    """The same of powers of x itself, which cancel."""
    m, square, cube, fourth = (x.pow(k).mean(0) for k in (1, 2, 3, 4))
    var = square - m * m
    third, last = cube - 3 * m * square + 2 * m**3, fourth - 4 * m * cube + 6 * m * m * square - 3 * m**4
    return [third / (var + 1e-12).pow(1.5), last / (var + 1e-12) ** 2 - 3, n + 1]


def test_moments_beside_a_count_in_float64_may_err_as_float32_does() -> None:
    """Of 40 draws 10 were refused, by up to 3.0 times, elsewhere by 6.6. Moments of one pass are, far from zero, and
    those of inputs in half precision, and a count in float32."""
    made = instance(MOMENTS, COLUMNS, args="x, n")
    checker, found = Checker(made, seed=3), []

    def passes(variant: Variant, leaves: list[torch.Tensor], got: list[torch.Tensor]) -> bool:
        return checker.check(variant, leaves, None, got, leaves).passed

    for seed in range(40):
        x, n = leaves = made.draw(OUTLIERS, seed)
        found.append(checker.check(OUTLIERS, leaves, None, moments(x, n), leaves).error_ratio)
        if seed < 4:
            assert not passes(OUTLIERS, leaves, moments(x.bfloat16().float(), n))
            assert not passes(OUTLIERS, leaves, [*moments(x, n)[:2], (n.float() * 1.1 / 1.1).double() + 1])
            x, n = far = made.draw(FAR, seed)
            assert passes(FAR, far, moments(x, n)) and not passes(FAR, far, one_pass(x, n))
    assert max(found) <= 2.0


def test_what_float64_rounds_once_is_still_held_to_that() -> None:
    """Computed in float32 it is refused, beside an output in float64 as before."""
    made = instance(SUMS, "[torch.randn(64, 1024)]")
    leaves, checker = made.draw(GIVEN, 3), Checker(made, seed=3)
    x = leaves[0]
    right = [x.double().sum(1).float(), x.double().mean(1)]
    assert checker.check(GIVEN, leaves, None, right, leaves).passed
    assert made.units.of(0) == DOUBLE
    assert not checker.check(GIVEN, leaves, None, [x.sum(1), right[1]], leaves).passed


@pytest.mark.parametrize(
    ("out", "unit"),
    [
        (torch.full((64,), 1 / 3, dtype=torch.float64).float(), DOUBLE),
        (torch.full((64,), 1 / 3, dtype=torch.float64).float() + 2**-25, SINGLE),
        (torch.full((8,), 1 / 3, dtype=torch.float64).float(), SINGLE),
        (torch.full((64,), 1 / 3, dtype=torch.float64), DOUBLE),
        (torch.zeros(64, dtype=torch.int64), DOUBLE),
    ],
)
def test_which_outputs_are_computed_in_float32(out: torch.Tensor, unit: float) -> None:
    """Of few elements that is taken for granted; of references without float64 nothing is asked."""
    true = torch.full(out.shape, 1 / 3, dtype=torch.float64)
    units = Units([TensorSpec.like(out), TensorSpec.like(true)])
    units.look([out, true], [true, true])
    assert [unit, DOUBLE] == [units.of(0), units.of(1)] and not units.single
    plain = Units([TensorSpec.like(true.float())])
    assert plain.single and plain.of(0) == SINGLE


def test_each_output_is_drawn_with_its_own_unit() -> None:
    """As often as there are units."""
    true, asked = torch.full((4,), 1 / 3, dtype=torch.float64), []
    units = Units([TensorSpec.like(true.float()), TensorSpec.like(true)])
    units.look([true.float(), true], [true, true])

    def draw(unit: float) -> list[float]:
        asked.append(unit)
        return [unit, unit, unit]

    assert [SINGLE, DOUBLE, DOUBLE] == units.each(3, draw) and asked == [SINGLE, DOUBLE]
