# SPDX-License-Identifier: Apache-2.0
"""Sums whose places whole numbers name: what is added up, how far it may be off, and that few bits stay exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from kernelwright.judge import rounding
from kernelwright.judge.inputs import generator

UNIT = 2.0**-24
aten = torch.ops.aten
Made = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def zeros() -> torch.Tensor:
    """Twenty places of four columns."""
    return torch.zeros(20, 4, dtype=torch.float64)


def spread(at: torch.Tensor) -> torch.Tensor:
    """The same place for every column."""
    return at[:, None].expand(-1, 4)


def halves(at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same places as pairs, some of them from the end."""
    return at // 4 - 5, at % 4


def of_bags(at: torch.Tensor, x: torch.Tensor, each: int) -> torch.Tensor:
    """The gradient of a table of which so many rows are added up, or their mean, in each bag."""
    bags = torch.arange(0, len(at), each)
    at_bag, sizes = torch.arange(len(at)) // each, torch.full((len(bags),), each)
    given = x[: len(bags)], at, bags, at_bag, sizes, torch.empty(0, dtype=torch.int64)
    return aten._embedding_bag_backward(*given, 20, False, int(each > 1), False, None)


SUMS: dict[str, Made] = {
    "table": lambda at, x: aten.embedding_dense_backward(x, at, 20, -1, False),
    "table_of_bags": lambda at, x: of_bags(at, x, 1),
    "index_add": lambda at, x: zeros().index_add(0, at, x, alpha=2),
    "index_add_": lambda at, x: zeros().index_add_(0, at, x),
    "scatter_add": lambda at, x: zeros().scatter_add(0, spread(at), x),
    "scatter_add_": lambda at, x: zeros().scatter_add_(0, spread(at), x),
    "index_put": lambda at, x: zeros().index_put((at,), x, accumulate=True),
    "index_put_": lambda at, x: zeros().view(5, 4, 4).index_put_(halves(at), x, accumulate=True),
    "reduced": lambda at, x: zeros().scatter_reduce(0, spread(at), x, "sum"),
    "reduced_": lambda at, x: zeros().add_(1.0).scatter_reduce_(0, spread(at), x, "sum", include_self=False),
    "bags": lambda at, x: F.embedding_bag(at.view(20, -1), x, mode="sum", padding_idx=3),
    "weighted": lambda at, x: F.embedding_bag(
        at.view(20, -1), x, mode="sum", per_sample_weights=2 * torch.ones(20, 20, dtype=x.dtype)
    ),
}
MEANS: dict[str, Made] = {
    "table_of_means": lambda at, x: of_bags(at, x, 2),
    "mean": lambda at, x: zeros().scatter_reduce(0, spread(at), x, "mean", include_self=False),
    "rows": lambda at, x: zeros().index_reduce(0, at, x, "mean", include_self=False),
    "rows_": lambda at, x: zeros().index_reduce_(0, at, x, "mean"),
    "mean_": lambda at, x: zeros().scatter_reduce_(0, spread(at), x, "mean"),
    "bag_means": lambda at, x: F.embedding_bag(at, x, torch.arange(0, 401, 20), mode="mean", include_last_offset=True),
}
PLACES = torch.randint(0, 20, (400,), generator=torch.Generator().manual_seed(1))
VALUES = torch.rand(400, 4, generator=torch.Generator().manual_seed(2)).double()


def off(made: Made, at: torch.Tensor, values: torch.Tensor, few: bool = False) -> torch.Tensor:
    """How far the drawn results lie from the exact ones, in roundings of the largest."""
    exact = made(at, values)
    with rounding.Rounded(UNIT, generator(3, "cpu"), few), torch.no_grad():
        drawn = made(at, values)
    return (drawn - exact).abs() / (UNIT * exact.abs().max())


@pytest.mark.parametrize("name", [*SUMS, *MEANS])
def test_a_sum_is_off_by_some_roundings_and_by_no_more(name: str) -> None:
    """20 addends a place, in any order, written to where they lie or not."""
    found = off((SUMS | MEANS)[name], PLACES, VALUES)
    assert 0.3 < float(found.square().mean().sqrt()) < 12.0


@pytest.mark.parametrize("name", [*SUMS, *MEANS])
def test_equal_addends_of_one_place_all_round_the_same_way(name: str) -> None:
    """A running sum of 400 times 0.7 in float32 is 26 roundings off, and 20 of different numbers one or two."""
    mixed = off((SUMS | MEANS)[name], PLACES, VALUES)
    equal = off((SUMS | MEANS)[name], torch.full_like(PLACES, 7), VALUES[:1].expand(400, 4))
    assert 4.0 * float(mixed.max()) < float(equal.max()) < 1000.0


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_whole_numbers_stay_exact(name: str) -> None:
    """Or a count that is reached would be passed as one that is exceeded."""
    assert 0.0 == float(off(SUMS[name], PLACES, (VALUES * 8).round(), few=True).max())


@pytest.mark.parametrize("name", sorted(SUMS.keys() - {"weighted"}))  # whose products round before they are added
def test_ones_that_are_counted_do_not_round_alike(name: str) -> None:
    """Each partial sum is exact, or a count in float16 that is off by one would pass."""
    values = torch.full((400, 4), 7.0, dtype=torch.float64)
    counted, uneven = (off(SUMS[name], torch.full_like(PLACES, 7), values * factor).max() for factor in (1.0, 0.1))
    assert 4.0 * float(counted) < float(uneven)


def test_places_that_are_overwritten_are_not_sums() -> None:
    """``index_put`` without accumulating, and the largest of a place, move nothing."""
    for made in (
        lambda at, x: zeros().index_put((at,), x),
        lambda at, x: zeros().scatter_reduce(0, spread(at), x, "amax"),
    ):
        assert 0.0 == float(off(made, torch.arange(400) % 20, VALUES[:1].expand(400, 4)).max())


def test_a_padded_place_of_a_table_gets_nothing_whatever_comes_in() -> None:
    """Its incoming gradient may be NaN, which times 0 is none."""
    given = torch.where((PLACES == 3)[:, None], torch.nan, VALUES)
    with rounding.Rounded(UNIT, generator(3, "cpu")):
        found = aten.embedding_dense_backward(given, PLACES, 20, 3, False)
    assert found.isfinite().all() and not found[3].any()
