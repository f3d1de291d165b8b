# SPDX-License-Identifier: Apache-2.0
"""Whole numbers and masks change within the values they have; what is in order stays, but for positions."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import inputs, layouts, whole
from kernelwright.judge.inputs import Variant
from kernelwright.judge.near_numbers import NEAR

LENGTHS = torch.tensor([0, 3, 3, 7, 12])
CAUSAL = torch.full((6, 6), -torch.inf).triu(1)


def rng(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("leaf", [torch.randint(0, 50, (8, 16)), torch.arange(9), torch.arange(9).expand(2, 9)])
def test_two_elements_change_places(leaf: torch.Tensor) -> None:
    """No value comes or goes."""
    made = whole.swapped(leaf, rng())
    rows = (made != leaf).reshape(-1, leaf.shape[-1]).sum(1).tolist()
    assert sum(rows) == (4 if len(rows) > 2 else 2) and (len(rows) < 8 or 2 in rows)
    assert torch.equal(made.reshape(-1).sort().values, leaf.reshape(-1).sort().values)


@pytest.mark.parametrize("change", [whole.swapped, whole.skewed, whole.moved])
@pytest.mark.parametrize("leaf", [LENGTHS[:2], torch.tensor(3), torch.full((4,), 2), torch.empty(0, dtype=torch.int64)])
def test_what_is_in_order_stays(change, leaf: torch.Tensor) -> None:
    """Borders of segments, single numbers, equal ones."""
    assert torch.equal(leaf, change(leaf, rng()))


def test_most_numbers_become_one_where_they_repeat() -> None:
    """Not those that are all different, as a permutation's."""
    leaf = torch.randint(0, 64, (4096,))
    made = whole.skewed(leaf, rng())
    assert set(made.tolist()) <= set(leaf.tolist())
    assert int(torch.bincount(made).max()) > 3000
    different = torch.randperm(64)
    assert torch.equal(different, whole.skewed(different, rng()))


def test_a_mask_that_is_added_lets_as_many_through_elsewhere() -> None:
    """Row by row; numbers and what hides nothing, or all, are no masks."""
    made = whole.redrawn(CAUSAL, rng())
    assert whole.is_mask(made)
    assert not torch.equal(made, CAUSAL)
    assert torch.equal((made == 0).sum(-1), (CAUSAL == 0).sum(-1))
    others = (torch.randn(4, 4), torch.zeros(4), torch.full((4,), -torch.inf), CAUSAL + 1.0, torch.tensor([True]))
    assert not any(map(whole.is_mask, others))
    assert inputs.masked([torch.zeros(2), CAUSAL])


def test_an_input_comes_again_beside_others() -> None:
    """Two draws share it; the others hold the same elements elsewhere."""
    leaves = [torch.randn(16, 8), torch.randint(0, 9, (16, 8)), torch.rand(16, 8) < 0.5]
    held = Variant(name="", required=True, change="held", held=1)
    for seed in range(4):
        made = inputs.change_leaves(leaves, held, seed)
        assert torch.equal(leaves[1], made[1])
        for old, new in zip(leaves[::2], made[::2], strict=True):
            assert torch.equal(old.reshape(-1).sort().values, new.reshape(-1).sort().values)
    draws = [inputs.change_leaves(leaves, held, seed)[0] for seed in range(8)]
    assert len({tuple(draw.reshape(-1).tolist()) for draw in draws}) > 4


def test_padded_rows_have_a_unit_step_and_lie_apart() -> None:
    """The values are the same."""
    leaf = torch.randn(2, 3, 4)
    made = layouts.lay_out(leaf, "padded")
    assert torch.equal(leaf, made)
    assert ((21, 7, 1), False) == (made.stride(), made.is_contiguous())


@pytest.mark.parametrize(("layout", "steps"), [("gap0", (88, 24, 4, 1)), ("gap1", (120, 40, 4, 1))])
def test_blocks_lie_apart_along_one_axis(layout: str, steps: tuple[int, ...]) -> None:
    """As a slice of a batch, or of channels, does; rows lie close, and what has fewer axes is as it was."""
    leaf = torch.randn(2, 3, 6, 4)
    made = layouts.lay_out(leaf, layout)
    assert torch.equal(leaf, made)
    assert steps == made.stride()
    assert layouts.lay_out(torch.randn(3, 4), "gap1").is_contiguous()


def test_the_number_furthest_from_zero_fills_whole_rows() -> None:
    """Of bytes that is -128, in all inputs: so the sum of their products is as large as it can be."""
    leaf = torch.randint(-128, 128, (32, 64), dtype=torch.int8, generator=rng())
    leaf[0, 0], leaf[0, 1] = -128, 127
    made = whole.largest(leaf, rng())
    assert made.dtype == leaf.dtype
    full = (made == -128).all(-1)
    assert 4 < int(full.sum()) < 28 and float((made[~full] == -128).float().mean()) > 0.8
    assert 9 == int(whole.largest(torch.tensor([3, 9, 3, 1] * 8), rng()).max())
    for kept in (torch.randperm(64), LENGTHS, torch.tensor(3)):
        assert torch.equal(kept, whole.largest(kept, rng()))


@pytest.mark.parametrize("value", [0, 1, 2, 32])
def test_equal_numbers_become_others_and_none_becomes_larger_but_zeros(value: int) -> None:
    """A mask of ones gets a few zeros, types that are all zero a few ones, lengths become shorter and none empty."""
    leaf = torch.full((8, 32), value)
    made = whole.renumbered(leaf, rng())
    assert made.dtype == leaf.dtype and not torch.equal(made, leaf)
    assert set(made.unique().tolist()) <= (set(range(1, value + 1)) if value > 1 else {0, 1})
    share = float((made != leaf).float().mean())
    assert 0.15 < share < 0.35 if value < 2 else share > 0.3
    one = torch.tensor(value)
    assert torch.equal(one, whole.renumbered(one, rng())) is False and whole.changes(one)


def test_borders_of_segments_move_between_their_neighbours() -> None:
    """The ends stay, and the order; negative numbers, positions and numbers in no order are left alone."""
    leaf = torch.arange(0, 257, 16)
    seen = [whole.renumbered(leaf, rng(seed)) for seed in range(8)]
    for made in seen:
        assert 0 == made[0] and 256 == made[-1] and not torch.equal(made, leaf)
        assert bool((made.diff() >= 0).all()) and bool((made - leaf).abs().max() <= 16)
    assert {bool(made[-2] == 256) for made in seen} == {True, False}, "the last one is empty now and then"
    lengths = torch.arange(8, 64, 8)
    assert all(bool((whole.renumbered(lengths, rng(seed)) <= lengths).all()) for seed in range(8))
    for kept in (torch.full((8,), -2), torch.arange(9), torch.tensor([3, 1, 2]), torch.empty(0, dtype=torch.int64)):
        assert torch.equal(kept, whole.renumbered(kept, rng())) and not whole.changes(kept)
    last = whole.renumbered(torch.full((8,), -1), rng())  # places from the end: some are the first
    assert set(last.tolist()) == {-1, 0}
    assert whole.renumbered(torch.tensor([-4, -2, 0, 2, 4]), rng()).tolist() == [-2, -1, 0, 1, 2]
    assert not whole.changes(torch.ones(4)) and not whole.changes(torch.tensor([True, False]))


def test_flags_that_are_all_alike_become_others_but_never_a_whole_row() -> None:
    """A row is along the last axis that has one; a flag alone stays."""
    for leaf in (torch.ones(8, 24, dtype=torch.bool), torch.zeros(8, 24, 1, dtype=torch.bool)):
        assert whole.changes(leaf)
        rows = (whole.renumbered(leaf, rng()) ^ leaf).view(8, 24)
        assert rows.any() and not rows.all(-1).any()
    assert not whole.changes(torch.tensor(True)) and not whole.changes(torch.ones(1, 1, dtype=torch.bool))


def test_of_numbers_in_order_a_stretch_becomes_equal() -> None:
    """Those of segments, which stay in order with their ends; lengths that never repeat stay."""
    leaf = torch.arange(16).repeat_interleave(8)
    made = whole.skewed(leaf, rng())
    assert bool((made.diff() >= 0).all()) and made[0] == 0 and made[-1] == 15 and len(made.unique()) < 8
    assert torch.equal(torch.arange(0, 64, 4), whole.skewed(torch.arange(0, 64, 4), rng()))


def test_the_first_segment_is_empty_now_and_then() -> None:
    """Where they begin anywhere, all different: not of places in even steps, or that do not begin with zero."""
    rng = torch.Generator().manual_seed(2)
    offsets = torch.tensor([0, 13, 40, 41, 77])
    found = [whole.skewed(offsets, rng) for _ in range(32)]
    assert {True, False} == {bool(made[1] == 0) for made in found}
    assert all(made[0] == 0 and made[-1] == 77 and bool((made.diff() >= 0).all()) for made in found)
    for places in (torch.arange(0, 20, 4), torch.tensor([3, 7, 8, 30])):
        assert torch.equal(places, whole.skewed(places, rng))


def test_only_inputs_that_are_named_get_other_constants() -> None:
    leaves = [torch.ones(8, 8, dtype=torch.int64), torch.ones(8, 8, dtype=torch.int64), torch.randn(4)]
    made = inputs.change_leaves(leaves, Variant(name="", required=True, change="constants", constants=(1,)), 5)
    assert [True, False, True] == [torch.equal(one, other) for one, other in zip(leaves, made, strict=True)]


def test_what_a_reference_searches_in_stays_in_order() -> None:
    """Negated borders of buckets are sorted again; what is looked up, and other references' vectors, are not."""
    edges = "[torch.randn(8, 8), torch.randn(9).sort().values]"
    made = instance("torch.bucketize(x, b)", edges, args="x, b")
    other = instance("x.sum() - b", edges, args="x, b")
    for change in ("negated", "sparse", "outliers", "near-duplicate", "zero rows"):
        variant = Variant(name=change, required=True, change=change, factors=(1e3,))
        values, borders = made.draw(variant, 3)
        assert bool((borders[1:] >= borders[:-1]).all()), change
        assert not torch.equal(values.flatten(), values.flatten().sort().values)
    variant = Variant(name="negated", required=True, change="negated")
    falling = other.draw(variant, 3)[1]
    assert bool((falling[1:] <= falling[:-1]).all())


def test_a_single_flag_is_the_other_one() -> None:
    """A mask of one element has no rows."""
    for flag in (True, False):
        made = inputs.change_leaves([torch.tensor(flag)], Variant(name="", required=True, change="mask rows"), 5)
        assert bool(made[0]) is not flag


def test_lines_of_a_mask_are_empty_and_full_along_every_axis_that_has_several() -> None:
    """Not of one element alone, where the last axis has no more; samples are all but the first axis."""
    for shape, lines, along in (
        ((8, 32, 1), "mask rows", (1,)),
        ((64, 96), "mask columns", (0,)),
        ((8, 12, 16), "mask columns", (0,)),
        ((8, 12, 16), "mask columns", (1,)),
        ((8, 12, 16), "mask samples", (1, 2)),
    ):
        leaf = torch.rand(shape, generator=rng(3)) < 0.5
        (made,) = inputs.change_leaves([leaf], Variant(name="", required=True, change=lines), 5)
        counts = made.sum(along)
        assert int(counts.min()) == 0 and int(counts.max()) == leaf.numel() // counts.numel(), (shape, lines)
    offered = instance("x * m", "[torch.randn(8, 4), torch.rand(8, 4) < 0.5]", args="x, m").offered(1)
    assert ["mask rows", "mask columns"] == [v.change for v in offered if v.change in whole.LINES]


def test_some_rows_are_the_number_nearest_zero() -> None:
    """One at the least; what never repeats, and what lies in order, stays."""
    made = whole.least(torch.randint(-1, 2, (8, 256, 1), generator=rng(2)), rng())
    empty = (made == 0).all(1)
    assert 0 < int(empty.sum()) < 8
    for kept in (torch.randperm(64), LENGTHS, torch.tensor(3)):
        assert torch.equal(kept, whole.least(kept, rng()))


def test_rows_that_hold_no_number_twice_exchange_theirs_within_a_row() -> None:
    """Permutations stay such; that few numbers among many differ is luck."""
    rng = torch.Generator().manual_seed(1)
    rows = torch.stack([torch.randperm(8, generator=rng) for _ in range(16)])
    assert whole.differ(rows) and not whole.differ(torch.randint(1 << 20, (16, 8), generator=rng))
    for _ in range(8):
        made = whole.swapped(rows, rng)
        assert not torch.equal(made, rows) and torch.equal(made.sort(-1).values, rows.sort(-1).values)
    assert not whole.differ(torch.randint(8, (16, 8), generator=rng))


PERMUTED = torch.rand(12, 16, generator=torch.Generator().manual_seed(0)).argsort(-1)
ALL_OF_64_BITS = torch.randint(-(1 << 63), (1 << 63) - 1, (64, 4), generator=torch.Generator().manual_seed(0))
CHOSEN = torch.rand(16, 64, generator=torch.Generator().manual_seed(1)).topk(24, 1).indices


@pytest.mark.parametrize("leaf", [PERMUTED, CHOSEN, PERMUTED.to(torch.int32).view(3, 4, 16)])
@pytest.mark.parametrize("change", ["skewed", "largest", "least", "mixed", "strewn", "marks", "near-duplicate", NEAR])
def test_no_row_of_permutations_or_of_places_holds_a_number_twice(change: str, leaf: torch.Tensor) -> None:
    """Many rows become one of them where most numbers would become one."""
    for seed in range(12):
        numbers, marks = change in ("mixed", "strewn"), ((0, (3.0, 4.0)),) * (change == "marks")
        variant = Variant(name="", required=True, change=change, numbers=numbers, marks=marks)
        (made,) = inputs.change_leaves([leaf], variant, seed)
        assert made.dtype == leaf.dtype and bool((made.sort(-1).values.diff(dim=-1) > 0).all())
        rows = made.reshape(-1, leaf.shape[-1])
        alike = rows.unique(dim=0, return_counts=True)[1].max()
        assert change not in ("skewed", "largest", "mixed") or 2 * int(alike) > len(rows)
        assert change != "least" or bool((made.double() != leaf).any())


def test_what_is_looked_for_in_rows_without_doubles_comes_again_and_again() -> None:
    """A padding of chosen places, which none of them is; a place that is one twice does not come."""
    padded = CHOSEN.masked_fill(torch.arange(24) > 20, -1)
    assert torch.equal(whole.kept_apart(CHOSEN, padded), padded)
    twice = CHOSEN.clone()
    twice[0, :2], twice[1, 3:5] = -1, twice[1, 0]
    kept = whole.kept_apart(CHOSEN, twice)
    assert torch.equal(kept[0], twice[0]) and torch.equal(kept[1:], CHOSEN[1:])


def test_rows_that_hold_a_number_twice_may_hold_others_twice() -> None:
    """By chance few of many numbers differ in each row."""
    for leaf in (torch.randint(0, 50, (8, 16)), torch.randint(0, 1 << 40, (8, 16)), ALL_OF_64_BITS, PERMUTED[:1]):
        assert not whole.distinct(leaf)
    assert whole.kept_apart(CHOSEN, CHOSEN[:, :4]).shape == (16, 4)
    pairs = torch.randint(0, 4, (64, 2), generator=rng())
    pairs[:, 1] = (pairs[:, 0] + 1 + pairs[:, 1] % 3) % 4
    assert whole.distinct(pairs) and int(whole.skewed(pairs, rng()).unique(dim=0, return_counts=True)[1].max()) > 40
