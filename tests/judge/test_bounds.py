# SPDX-License-Identifier: Apache-2.0
"""Probabilities that are clamped just below 1, and then taken from it."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import bounds
from kernelwright.judge.inputs import Variant
from kernelwright.judge.oracle import Float64Trace
from kernelwright.judge.verify import Checker

FAR = Variant(name="far from zero", required=True, change="far")
SMALL = Variant(name="small", required=True, scale=5e-8)
FOCAL = "(lambda p: -((1 - p) ** 2 * p.log() * (torch.arange(96) % 2)).sum(-1))(torch.sigmoid(x).clamp(1e-7, 1 - 1e-7))"
CROSS = "(lambda p: -(p.log() + (1 - p).log()).mean())(torch.sigmoid(x).clamp(1e-7, 1 - 1e-7))"
ROWS = "[torch.randn(64, 96)]"


def focal(x: torch.Tensor, most: float = 1 - 1e-7) -> torch.Tensor:
    """The sum of every second loss, one after the other."""
    p = (1 / (1 + (-x[:, 1::2]).exp())).clamp(1e-7, most)
    return sum((-(1 - p) * (1 - p) * p.log()).unbind(-1))


def cross(x: torch.Tensor, most: float = 1 - 1e-7) -> torch.Tensor:
    """The mean of rows, and of these."""
    p = (1 / (1 + (-x).exp())).clamp(1e-7, most)
    return -(p.log() + (1 - p).log()).mean(-1).mean()


@pytest.mark.parametrize(("forward", "program"), [(FOCAL, focal), (CROSS, cross)])
def test_the_bound_of_float32_is_right_and_its_neighbours_are_not(forward: str, program: object) -> None:
    """On logits that are all large, and on such as are nearly zero, asked of one case."""
    made = instance(forward, ROWS)

    def lost(variant: Variant, **other: float) -> float:
        leaves = made.draw(variant, 3)
        return Checker(made, seed=3).check(variant, leaves, None, [program(*leaves, **other)], leaves).error_ratio

    assert max(lost(FAR), lost(SMALL)) <= 2.0
    assert min(lost(FAR, most=1.0), lost(FAR, most=1 - 2e-7)) > 8.0
    assert made.oracle(made.draw(FAR, 3), None)[1] == "float64"


def test_without_it_the_oracle_is_distrusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A focal loss of float64's 1 - 1e-7 is another one."""
    monkeypatch.setattr(bounds, "of_single", lambda func, args, kwargs: (args, kwargs))
    made = instance(FOCAL, ROWS)
    leaves = made.draw(FAR, 3)
    Checker(made, seed=3).truth(FAR, leaves, None)
    assert "disagrees with its own result" in made.without_double


@pytest.mark.parametrize("single", [True, False])
def test_a_reference_in_float64_has_its_numbers_as_they_are_written(single: bool) -> None:
    """Of either way to say a bound, in place too."""
    mode, most = Float64Trace(), 1 - 1e-7
    mode.single = single
    x = torch.full((3,), 2.0, dtype=torch.float64)
    with mode:
        found = [x.clamp(0.0, most), x.clamp(max=most), x.clone().clamp_(max=most), x.clamp_max(most),
                 torch.nn.functional.hardtanh(x, -1.0, most)]  # fmt: skip
    expected = float(torch.tensor(most, dtype=torch.float32)) if single else most
    assert [expected] * 5 == [float(value[0]) for value in found]
    double = instance("x.clamp(0.0, 1 - 1e-7)", "[torch.randn(4).double() + 9]")
    assert float(double.oracle([x], None)[0][0][0]) == most


def test_what_float32_cannot_hold_stays() -> None:
    """A bound of 1e-60, or of 1e300, is none there, and is one in float64."""
    x = torch.zeros(1, dtype=torch.float64)
    with Float64Trace():
        assert 1e-60 == float(x.clamp(min=1e-60)) and 1e300 == float((x + 1e308).clamp(max=1e300))


@pytest.mark.parametrize("single", [True, False])
def test_infinities_become_the_largest_number_of_float32(single: bool) -> None:
    """Where no bound is said; in place too, and in a reference in float64 that of its own."""
    mode, largest = Float64Trace(), torch.finfo(torch.float32 if single else torch.float64).max
    mode.single = single
    x = torch.tensor([torch.inf, -torch.inf, torch.nan], dtype=torch.float64)
    with mode:
        found = [x.nan_to_num(), x.clone().nan_to_num_(), x.nan_to_num(7.0), x.nan_to_num(neginf=-5.0)]
    assert [value.tolist() for value in found] == [
        [largest, -largest, 0.0], [largest, -largest, 0.0], [largest, -largest, 7.0], [largest, -5.0, 0.0]
    ]  # fmt: skip


def test_logarithms_of_counts_that_are_zero_have_an_oracle() -> None:
    """Six orders stood in for it, all of them equal, and a quotient by its reciprocal was refused."""
    made = instance(
        "torch.nan_to_num(torch.log2((x / x.sum(-1, keepdim=True)).float()))", "[torch.randint(0, 5, (64, 96))]"
    )
    leaves = made.draw(Variant(name="as given", required=True), 3)
    (x,) = leaves
    other = torch.nan_to_num(torch.log2(x * (1.0 / x.sum(-1, keepdim=True))))
    assert Checker(made, seed=3).check(Variant(name="as given", required=True), leaves, None, [other], leaves).passed
    assert made.oracle(leaves, None)[1] == "float64-trace"
