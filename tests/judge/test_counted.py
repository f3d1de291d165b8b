# SPDX-License-Identifier: Apache-2.0
"""Sums of whole numbers are the same in every order; honest error moves none of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelwright.judge import counted
from kernelwright.judge.oracle import Counting
from kernelwright.judge.rounding import Rounded

aten = torch.ops.aten
DIGITS = torch.randint(-4, 5, (8, 300), generator=torch.Generator().manual_seed(1)).double()
WINDOWS = torch.randint(-1, 2, (3, 8, 3), generator=torch.Generator().manual_seed(5)).double()
PLACES = torch.randint(0, 8, (300,), generator=torch.Generator().manual_seed(2))
SUMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(-1),
    "all": lambda x: x.sum(),
    "running": lambda x: x.cumsum(-1),
    "product": lambda x: x @ (x / 32).T,
    "batched": lambda x: x[None] @ x.T[None],
    "scattered": lambda x: torch.zeros(8, 8, dtype=x.dtype).index_add(1, PLACES, x),
    "windows": lambda x: torch.conv1d(x[None], WINDOWS, padding=1),
    "pooled": lambda x: torch.nn.functional.avg_pool2d(x[None], 2),
    "added": lambda x: torch.addmm(x[:, :8], x, x.T),
    "then scaled": lambda x: (x.cumsum(-1) / 4 - 1.5) * x,
}


def drawn(run: Callable[[torch.Tensor], torch.Tensor], given: torch.Tensor, few: bool = True) -> torch.Tensor:
    """One draw of what an honest program may answer."""
    with Rounded(2.0**-24, torch.Generator().manual_seed(3), few=few):
        return run(given.clone())


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_whole_numbers_are_not_moved(name: str) -> None:
    """Where others are, and where few bits do not count, they are."""
    run = SUMS[name]
    assert torch.equal(run(DIGITS), drawn(run, DIGITS))
    for values, few in ((DIGITS * 0.3, True), (DIGITS, False)):
        assert (drawn(run, values, few) != run(values)).double().mean() > 0.5


def test_only_sums_whose_every_addend_has_few_bits_stay() -> None:
    """A row with one other number in it is moved from there on; a sum that float32 may not hold is too."""
    values = DIGITS.clone()
    values[3, 100] = 0.1
    same = drawn(SUMS["running"], values) == values.cumsum(-1)
    assert bool(same[:3].all()) and bool(same[4:].all()) and bool(same[3, :100].all())
    assert float(same[3, 101:].double().mean()) < 0.1
    rows = drawn(SUMS["batched"], values)[0] == values @ values.T
    assert not bool(rows[3].any()) and not bool(rows[:, 3].any()) and bool(rows[:3, :3].all())
    many = torch.ones(20_000, dtype=torch.float64)
    assert torch.equal(drawn(lambda x: x.cumsum(0), many), many.cumsum(0))
    large = DIGITS * 2.0**20
    assert float((drawn(SUMS["running"], large) == large.cumsum(-1)).double().mean()) < 0.5


@pytest.mark.parametrize(
    ("run", "given", "counts"),
    [
        (lambda x: x * 2, DIGITS, True),
        (lambda x: x * 2, DIGITS.long(), True),
        (lambda x: x * 2, DIGITS + 0.25, False),
        (lambda x: torch.nn.functional.one_hot(x.argmax(-1)).float(), DIGITS + 0.25, True),
        (lambda x: torch.zeros_like(x).scatter(1, x.argmax(-1, keepdim=True), 1.0).cumsum(0), DIGITS + 0.25, True),
        (lambda x: x.cumsum(0), DIGITS + 0.25, False),
        (lambda x: x * 2, torch.ones(()), False),
    ],
)
def test_a_reference_that_counts_is_known(
    run: Callable[[torch.Tensor], torch.Tensor], given: torch.Tensor, counts: bool
) -> None:
    """By its inputs, by whole numbers that become floats, and by what it adds up."""
    with Counting([given]) as count:
        run(given)
    assert counts == count.counts


def test_numbers_that_are_none_are_not_whole() -> None:
    assert not counted.whole(torch.tensor([1.0, float("nan")]))
    assert not counted.whole(torch.full((100,), 0.5))
    assert counted.whole(DIGITS.to(torch.float8_e4m3fn)) and not counted.whole((DIGITS + 0.5).to(torch.float8_e4m3fn))
    late = torch.ones(100)
    late[-1] = 0.5
    assert not counted.whole(late)
