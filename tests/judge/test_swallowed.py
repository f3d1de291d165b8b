# SPDX-License-Identifier: Apache-2.0
"""Equal addends of running sums: in a row, with zeros between, and of every sum on the way."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import rounding, swallowed
from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker
from kernelwright.trial import CaseResult

UNIT = 2.0**-24
SPARSE = Variant(name="sparse", required=True, change="sparse")
ROWS = "[torch.randn(16, 600)]"
EVERY_SECOND = "(torch.arange(600) % 2)"
Program = Callable[[torch.Tensor], torch.Tensor]


def refused(forward: str, program: Program, variant: Variant = SPARSE, draws: int = 6) -> int:
    """In how many draws a program's answer is."""
    made, found = instance(forward, ROWS), 0
    for seed in range(draws):
        leaves = made.draw(variant, seed)
        found += not Checker(made, seed=seed).check(variant, leaves, None, [program(*leaves)], leaves).passed
    return found


def summed(x: torch.Tensor) -> torch.Tensor:
    """Sums on the way, one addend after the other."""
    return torch.stack(list(accumulate(torch.nn.functional.softplus(x).unbind(-1))), -1)


def masked(x: torch.Tensor) -> torch.Tensor:
    """The sum of every second number, one after the other."""
    return sum(torch.nn.functional.softplus(x)[:, 1::2].unbind(-1))


def of_16_bits(x: torch.Tensor) -> torch.Tensor:
    """The same numbers with 16 bits."""
    high = x.bfloat16().float()
    return high + (x - high).bfloat16().float()


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_the_addend_before_is_the_last_that_is_not_zero(dim: int) -> None:
    """Those of 2.0 and of 3.0 that follow one of their own; the first is compared with the last."""
    row = torch.tensor([2.0, 0.0, 2.0, 3.0, 0.0, 0.0, 3.0, 3.0, 2.0], dtype=torch.float64)
    values = row.expand(4, 9) if dim else row[:, None].expand(9, 4)
    found = swallowed.equal(values, values.abs(), dim, UNIT)
    expected = torch.tensor([True, False, True, False, False, False, True, True, False])
    assert torch.equal(expected.expand(4, 9), found if dim else found.mT)


@pytest.mark.parametrize(
    ("forward", "program"),
    [("F.softplus(x).cumsum(-1)", summed), (f"(F.softplus(x) * {EVERY_SECOND}).sum(-1)", masked)],
)
def test_equal_addends_err_together(forward: str, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of which nearly all addends are log 2: one running sum rounds the same way at nearly every step. Where
    addends count as equal nowhere each draw is refused."""
    assert refused(forward, program) == 0
    with monkeypatch.context() as patch:
        patch.setattr(swallowed, "_before", lambda values, size, dim: -values)
        assert refused(forward, program) == 6


def test_terms_of_a_product_are_equal_where_both_factors_are() -> None:
    """Counted for each sum; the first term is compared with the last."""
    left = torch.tensor([[1.0, 1.0, 2.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    right = torch.tensor([[5.0, 1.0], [5.0, 2.0], [5.0, 3.0], [5.0, 4.0], [6.0, 5.0]], dtype=torch.float64)
    product = torch.ops.aten.mm.default
    assert swallowed.equal_terms(product, left, right, UNIT).tolist() == [[2.0, 0.0], [3.0, 0.0]]
    assert swallowed.equal_terms(product, left, right[:, 1:], UNIT) == 0.0


@pytest.mark.parametrize("change", ["sparse", "sparser"])
def test_covariances_of_sparse_rows_are_sums_of_equal_terms(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that are minus the mean nearly everywhere: one running sum of their products is nearer to what is refused
    where terms count as different (on an AMD EPYC beyond it), and what is made of rows that are not centred beyond in
    any case."""
    made, variant = (
        instance("torch.cov(x)", "[torch.randn(12, 200)]"),
        Variant(name=change, required=True, change=change),
    )
    far = Variant(name="far from zero", required=True, change="far")

    def running(x: torch.Tensor) -> torch.Tensor:
        off = x - x.mean(-1, keepdim=True)
        return sum(a[:, None] * a for a in off.unbind(-1)) / 199

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.mT - 200 * x.mean(-1, keepdim=True) * x.mean(-1)) / 199

    def found(program: Program, kind: Variant) -> list[CaseResult]:
        draws = [(seed, made.draw(kind, seed)) for seed in range(8)]
        return [Checker(made, seed=s).check(kind, leaves, None, [program(*leaves)], leaves) for s, leaves in draws]

    usual = found(running, variant)
    assert all(one.passed for one in usual) and not any(one.passed for one in found(wrong, far))
    monkeypatch.setattr(rounding, "equal_terms", lambda func, left, right, unit: 0.0)
    unlike = found(running, variant)
    nearer = sum(one.error_ratio for one in usual) < 0.9 * sum(one.error_ratio for one in unlike)
    assert nearer or not all(one.passed for one in unlike)


def test_sums_on_the_way_of_numbers_of_16_bits_are_refused() -> None:
    """They are 2^8 times as coarse as float32's: too coarse where a sum is short yet."""

    def short(x: torch.Tensor) -> torch.Tensor:
        return of_16_bits(torch.nn.functional.softplus(x)).double().cumsum(-1).float()

    assert refused("F.softplus(x).cumsum(-1)", short, Variant(name="small", required=True, scale=1e-3)) == 6


def test_a_sum_on_the_way_errs_as_the_sum_of_its_addends_does() -> None:
    """The last of cumsum beside sum, where all addends are equal."""
    x = torch.full((512, 1000), 0.7, dtype=torch.float64)
    rng = torch.Generator().manual_seed(1)
    with rounding.Rounded(UNIT, rng):
        last, whole = x.cumsum(-1)[:, -1], x.sum(-1)
    exact = x.sum(-1)
    assert 0.8 < float((last - exact).square().mean() / (whole - exact).square().mean()) < 1.25


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("zeros", [0.0, 0.3, 0.98])
@pytest.mark.parametrize("rows", [2, 200])
def test_few_equal_terms_are_counted_where_they_are(batch: tuple[int, ...], zeros: float, rows: int) -> None:
    """As all of the larger factor says, zeros between or not; it may be either one."""
    rng = torch.Generator().manual_seed(5)
    left = torch.randn(*batch, rows, 60, generator=rng, dtype=torch.float64)
    right = torch.randn(*batch, 60, 50, generator=rng, dtype=torch.float64)
    left[..., 0, 7] = left[..., 0, 6]
    left[..., 1, 0] = left[..., 1, 59]
    right[..., 7, :20] = right[..., 6, :20]
    right[..., 0, 30:] = right[..., 59, 30:]
    blank = torch.rand(right.shape, generator=rng) < zeros
    right = right.masked_fill(blank, 0.0)
    func = torch.bmm if batch else torch.mm
    unit = 2.0**-24
    whole = func(
        swallowed.equal(left, left.abs(), -1, unit).double(), swallowed.equal(right, right.abs(), -2, unit).double()
    )
    found = swallowed.equal_terms(func, left, right, unit)
    assert torch.equal(torch.as_tensor(found).expand(whole.shape).double(), whole)
    assert zeros > 0.9 or float(whole.sum()) > 0
