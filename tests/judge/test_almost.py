# SPDX-License-Identifier: Apache-2.0
"""Inputs that have a pattern, all but a few elements."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import almost, weights


def _rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _drawn(leaf: torch.Tensor, change: str, count: int = 200) -> list[torch.Tensor]:
    return [almost.changed(leaf, change, seed, _rng(seed)) for seed in range(count)]


def _alike_along(axis: int):  # noqa: ANN202
    return lambda made: int((made != made.mode(axis, keepdim=True).values).sum())


PATTERNS = {
    "rows": (almost.REPEATED, _alike_along(-2)),
    "columns": (almost.REPEATED, _alike_along(-1)),
    "sorted": (almost.SORTED, lambda made: int((made.diff(dim=-1) < 0).sum())),
    "falling": (almost.SORTED, lambda made: int((made.diff(dim=-1) > 0).sum())),
    "symmetric": (almost.REPEATED, lambda made: int((made != made.mT).sum())),
    "pairs": (almost.REPEATED, lambda made: int((made[:, ::2] != made[:, 1::2]).sum())),
    "again": (
        almost.REPEATED,
        lambda made: min(int((made[:, period:] != made[:, :-period]).sum()) for period in range(5, 20)),
    ),
    "lower": (almost.SET, lambda made: int(made.triu(1).count_nonzero())),
    "upper": (almost.SET, lambda made: int(made.tril(-1).count_nonzero())),
    "diagonal": (almost.SET, lambda made: int((made != torch.eye(48)).sum())),
    "hollow": (almost.SET, lambda made: 3 * int(made.diagonal().count_nonzero()) + 99 * int((made == 0).sum() > 48)),
    "single": (almost.SET, lambda made: int(((made != 0) & (made != 1)).sum())),
    "whole": (almost.SET, lambda made: int((made != made.round()).sum())),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_each_pattern_comes_with_a_few_elements_that_do_not_have_it(name: str) -> None:
    """Of 2,304 elements by lot no pattern holds for as many as here."""
    change, breaks = PATTERNS[name]
    leaf = torch.randn(48, 48, generator=_rng(1)).clamp(-3, 3)
    leaf.view(-1)[:2] = torch.tensor([-3.0, 3.0])
    counts = [breaks(made) for made in _drawn(leaf, change)]
    assert sum(1 <= count <= 2 * almost.MOST + 2 for count in counts) >= 2
    assert breaks(leaf) > 100


def test_by_lot_all_that_differs_is_in_the_second_half() -> None:
    """A product that is shared by a batch whose first two matrices are equal was granted in most proofs: up to eight
    elements anywhere nearly always left one of these two."""
    seen = []
    for seed in range(60):
        rng = torch.Generator().manual_seed(seed)
        leaf = torch.randn(4, 12, 10, generator=rng)
        made = almost.spared(leaf, leaf[:1].expand_as(leaf), rng)
        seen.append(torch.equal(made[0], made[1]) and not torch.equal(made[2:], made[:1].expand(2, 12, 10)))
    assert 31 <= sum(seen) <= 54


def test_numbers_are_nearly_a_chain_and_flags_too() -> None:
    """Each names the one before it, but for a few: of 96 places that name one by lot none is 20 steps from its root."""

    def longest(parents: torch.Tensor) -> int:
        reached, steps = torch.arange(96), 0
        while steps < 96 and not torch.equal(reached, following := parents[reached]):
            reached, steps = following, steps + 1
        return steps

    parents = (torch.rand(96, generator=_rng(1)) * torch.arange(96)).long()
    parents[1::2] = torch.arange(96)[1::2] - 1
    parents[2::2] = torch.arange(96)[2::2] - 2
    leaf = torch.stack([parents, (torch.rand(96, generator=_rng(2)) * torch.arange(96)).long()])
    chains = [int((made.diff(dim=-1) == 1).sum()) for made in _drawn(leaf, almost.SET)]
    assert sum(count > 170 for count in chains) >= 20
    assert any(longest(torch.minimum(made[0], torch.arange(96))) > 40 for made in _drawn(leaf, almost.SET))
    beside = [torch.eye(48, dtype=torch.bool).roll(by, 1) for by in (1, -1)]
    flags = torch.rand(48, 48, generator=_rng(3)) < 0.1
    drawn = _drawn(flags, almost.SET)
    assert all(any(int((made != chain).sum()) <= almost.MOST for made in drawn) for chain in beside)


def test_of_rows_in_order_the_largest_may_stand_anywhere() -> None:
    """Who looks for the eight largest in the first half of a falling row misses one; nearly all rows are in order."""
    leaf = torch.randn(20, 64, generator=_rng(1))
    hidden = 0
    for made in _drawn(leaf, almost.SORTED):
        down = made if made[0, 0] > made[0, -1] else made.flip(-1)
        fooled = (down[:, :32].topk(8).values != down.topk(8).values).any(-1)
        hidden += bool(fooled.any())
        assert int((down.sort(-1, descending=True).values != down).any(-1).sum()) <= almost.MOST
    assert hidden > 20


@pytest.mark.parametrize("ranked", ["x.median(-1).values", "x.kthvalue(3, -1).values", "x.cummax(-1).values"])
def test_what_stands_at_a_place_in_order_is_asked_with_rows_in_order(ranked: str) -> None:
    assert almost.SORTED in {v.change for v in instance(ranked, "[torch.randn(16, 32)]").offered(5)}


def test_the_timed_case_comes_with_every_pattern_of_a_cube_and_several_of_weights() -> None:
    """Files in KernelBench's form have no other case."""
    made = instance("x * self.w", "[torch.randn(4, 6, 8)]", init="self.w = nn.Parameter(torch.randn(8))")
    offered = {v.name: v for v in made.offered(5)}
    assert offered[almost.REPEATED].draws >= 9 and offered[almost.SET].draws >= 6
    moved = [v.moved for v in offered.values()]
    assert moved.count(weights.PATTERNED) == moved.count(weights.FEW_OTHERS) == 2


def test_what_is_drawn_lies_within_what_was_given() -> None:
    """A logarithm is not asked for zero."""
    leaf = torch.rand(40, 9, generator=_rng(2)) + 0.5
    for change in almost.CHANGES:
        for made in _drawn(leaf, change):
            assert leaf.min() <= made.min() and made.max() <= leaf.max()
            assert made.shape == leaf.shape and made.is_contiguous() and not torch.equal(made, leaf)


def test_floats_are_sorted_where_a_reference_sorts_alone() -> None:
    """A running sum of sorted numbers errs by far more than one of the same numbers in another order."""
    inputs, sums, sorts = "[torch.randn(16, 32)]", instance("x.sum(-1)", "[torch.randn(16, 32)]"), "x.sort(-1).values"
    assert almost.SORTED in {v.change for v in instance(sorts, inputs).offered(5)}
    assert {almost.REPEATED, almost.SET} == {v.change for v in sums.offered(5)} & set(almost.CHANGES)


def test_whole_numbers_are_those_that_were_there() -> None:
    """And count over and over: 3, 4, 5, 6 and once more 3."""
    leaf = torch.tensor([[3, 9, 4, 5, 9, 30], [6, 5, 9, 3, 30, 4]])
    counted = over = 0
    for change in (almost.REPEATED, almost.SET):
        for made in _drawn(leaf, change):
            assert made.dtype == leaf.dtype and torch.isin(made, leaf).all()
            counted += bool(((made[0].diff() == 1).sum() >= 3) & (made[0].diff() == 1).any())
            over += made[1].tolist() == [3, 4, 5, 6, 3, 4]
    assert counted >= 10 and over >= 3


def test_numbers_that_must_not_repeat_or_lie_in_order_keep_to_that() -> None:
    places = torch.randperm(50, generator=_rng(3))
    seen = set()
    for made in _drawn(places, almost.REPEATED, 20):
        assert torch.equal(made.sort().values, torch.arange(50))
        seen.add(int((made.diff() != 1).sum().minimum((made.diff() != -1).sum())))
    assert seen <= {2, 3, 4} and len(seen) > 1
    assert all(torch.equal(places, made) for made in _drawn(places, almost.SET, 5))
    borders = torch.tensor([0, 4, 9, 9, 20])
    assert all(torch.equal(borders, made) for made in _drawn(borders, almost.REPEATED, 5))


@pytest.mark.parametrize("added", [False, True], ids=["flags", "added"])
def test_masks_are_nearly_causal(added: bool) -> None:
    flags = torch.rand(32, 32, generator=_rng(4)) < 0.6
    flags |= torch.eye(32, dtype=torch.bool)
    mask = torch.zeros(32, 32).masked_fill_(~flags, -torch.inf) if added else flags
    causal = torch.ones(32, 32, dtype=torch.bool).tril()
    found = [int(((made == 0 if added else made) != causal).sum()) for made in _drawn(mask, almost.SET)]
    assert sum(1 <= count <= almost.MOST for count in found) >= 10 and 0 not in found


def test_single_numbers_and_infinities_stay() -> None:
    for leaf in (torch.tensor(3.0), torch.tensor([1.0, 2.0]), torch.tensor([1.0, torch.inf, 2.0, 3.0, -4.0])):
        assert almost.changed(leaf, almost.SET, 0, _rng(5)) is leaf


@pytest.mark.parametrize("name", ["float8_e4m3fn", "uint16", "uint64", "float16", "bfloat16", "uint8", "int64", "bool"])
def test_any_type_is_drawn(name: str) -> None:
    """Those stay of which torch does not say which is larger."""
    leaf = (torch.arange(60).reshape(6, 10) % 7).to(getattr(torch, name))
    for change in almost.CHANGES:
        for made in _drawn(leaf, change, 12):
            assert made.dtype == leaf.dtype and made.shape == leaf.shape
            assert (made is leaf) or name not in ("float8_e4m3fn", "uint16", "uint64")


def test_a_dozen_draws_of_probabilities_have_each_pattern_between_zero_and_one_and_between_their_own_ends() -> None:
    """Rows with a single one each, but for a few, are not left to a lot."""
    for first in (0, 7, 1000):
        probabilities = torch.rand(64, 40, generator=_rng(first)) * 0.9 + 0.05
        drawn = [almost.changed(probabilities, almost.SET, n, _rng(n)) for n in range(first, first + 12)]
        ones = [int((made == 1.0).any(-1).sum()) for made in drawn]
        zeros = [int((made == 0.0).any(-1).sum()) for made in drawn]
        assert 2 == sum(count > 55 for count in ones)
        assert 5 == sum(count > 30 for count in zeros)
