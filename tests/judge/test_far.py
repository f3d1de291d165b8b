# SPDX-License-Identifier: Apache-2.0
"""Inputs in which something has to travel far."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from kernelwright.judge import far, singled
from kernelwright.judge.buffers import TensorSpec

TRAVELS, RANKS = [far.WAYS, far.LEVELS, far.LINE], [far.LANES, far.ZEROS, far.TIGHT]


def rng(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def steps_of_paths(costs: torch.Tensor) -> int:
    """Squarings of shortest paths until nothing changes."""
    count = 0
    while True:
        shorter = torch.minimum(costs, (costs[:, :, None] + costs[None]).amin(1))
        if torch.equal(shorter, costs):
            return count
        costs, count = shorter, count + 1


def steps_of_flood(mask: torch.Tensor, seed: torch.Tensor) -> int:
    """Rounds until no neighbour of what is flooded is in the mask and dry."""
    wet, count = seed & mask, 0
    while True:
        wider = (functional.max_pool2d(wet.float()[None, None], 3, 1, 1)[0, 0] > 0) & mask
        if torch.equal(wider, wet):
            return count
        wet, count = wider, count + 1


def test_costs_are_a_chain_of_all_nodes() -> None:
    costs = torch.rand(40, 40, generator=rng()) * 10
    assert steps_of_paths(costs) < 5
    made = [far.ways([costs], rng(seed))[0] for seed in range(12)]
    assert sum(steps_of_paths(one) >= 6 for one in made) >= 3
    assert all(0 <= float(one.min()) and float(one.max()) <= float(costs.max()) for one in made)
    both = torch.maximum(costs, costs.mT)
    assert all(torch.equal(one, one.mT) for one in (far._linked(both, rng(seed)) for seed in range(4)))


@pytest.mark.parametrize("shape", [(24, 24), (17, 30), (30, 17)])
def test_two_masks_are_a_maze_and_a_place_at_an_end_of_it(shape: tuple[int, int]) -> None:
    mask, seed = torch.rand(shape, generator=rng()) < 0.6, torch.rand(shape, generator=rng(4)) < 0.02
    assert steps_of_flood(mask, seed) < 40
    for number in range(8):
        first, second = far.ways([mask, seed], rng(number))
        assert int(second.sum()) == 1 and steps_of_flood(first, second) > 0.35 * mask.numel()
        second, first = far.ways([seed, mask], rng(number))
        assert int(second.sum()) == 1 and steps_of_flood(first, second) > 0.35 * mask.numel()


def test_images_and_colours_keep_their_range() -> None:
    image, colours = torch.rand(2, 3, 12, 12, generator=rng()), torch.randint(0, 4, (12, 12), generator=rng())
    for seed in range(8):
        made, painted = far.ways([image, colours], rng(seed))
        assert made.shape == image.shape and float(made.min()) >= 0 and float(made.max()) <= float(image.max())
        assert len(made.unique()) > 100 and set(painted.unique().tolist()) == {0, 3}


@pytest.mark.parametrize("earlier", [True, False])
def test_places_are_one_chain(earlier: bool) -> None:
    parents = torch.randint(0, 64, (64,), generator=rng())
    parents = parents.minimum(torch.arange(64)) if earlier else parents
    for seed in range(8):
        (made,) = far.ways([parents], rng(seed))
        place, seen = made, 0
        while not torch.equal(place[made], place):
            place, seen = place[made], seen + 1
        assert seen > 40 and len(place.unique()) < 4
        assert not earlier or bool((made <= torch.arange(64)).all())


def test_each_box_hides_the_next() -> None:
    corner, scores = torch.rand(48, 2, generator=rng()) * 30, torch.rand(48, generator=rng())
    boxes = torch.cat([corner, corner + 5 + 5 * torch.rand(48, 2, generator=rng())], 1)
    chains = 0
    for seed in range(12):
        made, ordered = far.line([boxes, scores], rng(seed))
        assert sorted(ordered.tolist()) == sorted(scores.tolist()) and bool((made[:, 2:] > made[:, :2]).all())
        width = (torch.minimum(made[:-1, 2:], made[1:, 2:]) - torch.maximum(made[:-1, :2], made[1:, :2])).clamp(min=0)
        area = (made[:, 2:] - made[:, :2]).prod(-1)
        common = width.prod(-1)
        chains += bool((common / (area[:-1] + area[1:] - common) > 0.5).all()) and bool((ordered.diff() <= 0).all())
    assert chains >= 6


def test_the_largest_of_a_row_lie_in_one_lane() -> None:
    rows = torch.randn(16, 1024, generator=rng())

    def most_of_a_lane(values: torch.Tensor) -> int:
        return max(int(torch.bincount(places % 32).max()) for places in values.topk(8).indices)

    assert most_of_a_lane(rows) < 5
    made = [far.lanes([rows], rng(seed))[0] for seed in range(24)]
    assert sum(most_of_a_lane(one) > 5 for one in made) >= 4
    assert all(torch.equal(one.sort(-1).values, rows.sort(-1).values) for one in made)


def test_only_what_chooses_again_and_again_has_something_travel() -> None:
    named = [
        SimpleNamespace(_schema=SimpleNamespace(name=f"aten::{name}")) for name in ("minimum", "bitwise_or_", "mm")
    ]
    for func, wanted in zip(named, (True, True, False), strict=True):
        travelled = far.Travelled()
        for _ in range(far.ROUNDS - 1):
            travelled.note(func)
        assert not travelled.far
        travelled.note(func)
        assert travelled.far is wanted
    plane = [TensorSpec.contiguous((8, 8), torch.float32)]
    assert [v.name for v in singled.far_apart(plane, light=True, sorts=False, traits={far.TRAVELS})] == TRAVELS
    assert [v.name for v in singled.far_apart(plane, light=True, sorts=True, traits=())] == RANKS


@pytest.mark.parametrize("stacked", [False, True])
def test_edges_join_all_nodes_in_one_chain(stacked: bool) -> None:
    """Of 120 edges by lot among 96 nodes, labels settle in a dozen rounds."""
    edges = torch.randint(0, 96, (2, 120), generator=rng())

    def rounds(ends: torch.Tensor) -> int:
        labels, count = torch.arange(96), 0
        while True:
            least = torch.minimum(labels[ends[0]], labels[ends[1]])
            lower = labels.scatter_reduce(0, ends[0], least, "amin").scatter_reduce(0, ends[1], least, "amin")
            if torch.equal(lower, labels):
                return count
            labels, count = lower, count + 1

    assert rounds(edges) < 30
    for seed in range(6):
        made = far.ways([edges] if stacked else list(edges.unbind(0)), rng(seed))
        ends = made[0] if stacked else torch.stack(made)
        assert rounds(ends) > 30 and int(ends.min()) >= 0 and int(ends.max()) <= 95
        assert len(labels_of(ends).unique()) == 1


def labels_of(ends: torch.Tensor) -> torch.Tensor:
    """The least node that each can be reached from."""
    labels = torch.arange(int(ends.max()) + 1)
    for _ in range(len(labels)):
        least = torch.minimum(labels[ends[0]], labels[ends[1]])
        labels = labels.scatter_reduce(0, ends[0], least, "amin").scatter_reduce(0, ends[1], least, "amin")
    return labels


@pytest.mark.parametrize("whole", [False, True])
def test_lines_stay_at_a_level_for_long(whole: bool) -> None:
    values = torch.randint(0, 50, (16, 128), generator=rng()) if whole else torch.randn(16, 128, generator=rng())
    spread = 0 if whole else 0.3

    def longest(rows: torch.Tensor) -> int:
        return max(
            int((row[at:] - row[at]).abs().gt(spread).int().argmax()) for row in rows.double() for at in range(0, 64, 4)
        )

    assert longest(values) < 12
    assert sum(longest(far.levels([values], rng(seed))[0]) > 30 for seed in range(8)) >= 4
    assert all(far.levels([values], rng(seed))[0].shape == values.shape for seed in range(8))


def test_some_lines_of_whole_numbers_turn_once() -> None:
    """Brackets of a row by lot nest a handful deep; these nest half of the row."""
    leaf = torch.randint(0, 2, (64, 96), generator=rng(3))
    for seed in range(8):
        made = far.levels([leaf], rng(seed))[0]
        assert made.dtype == leaf.dtype and set(made.unique().tolist()) == {0, 1}
        lines = made if bool((made.diff(dim=1).ne(0).sum(1) == 1).any()) else made.T
        once = lines[lines.diff(dim=1).ne(0).sum(1) == 1]
        assert len(once) > len(lines) // 8 and bool(once[:, 0].any()) and not bool(once[:, 0].all())
        ones = once.sum(1) / once.shape[1]
        assert bool(((ones > 0.3) & (ones < 0.7)).any())


def test_zeros_have_both_signs_and_others_stay() -> None:
    values = torch.randn(16, 64, generator=rng())
    (made,) = far.zeros([values], rng())
    zero = made == 0
    assert 0.1 < float(zero.float().mean()) < 0.4 and torch.equal(made[~zero], values[~zero])
    assert 0.3 < float(torch.signbit(made[zero]).float().mean()) < 0.7


def test_a_volume_has_a_corridor_along_its_longest_axis_by_lot() -> None:
    """Straight, from the one end to the other, where the seed lies."""
    mask, seed = torch.rand(48, 5, 6, generator=rng()) < 0.5, torch.rand(48, 5, 6, generator=rng()) < 0.02
    straight = 0
    for number in range(32):
        there, start = far.ways([mask, seed], rng(number))
        assert start.any() and not bool((start & ~there).any())
        if set(start.nonzero()[:, 0].tolist()) <= {0, 47}:
            straight += 1
            assert torch.equal(there, there.all(0).expand_as(there)) and int(there[0].any(1).sum()) == 5
    assert 22 < straight < 32, "seven of eight where a corridor through a plane is shorter"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_another_number_is_nearly_the_largest_in_few_lines(dtype: torch.dtype) -> None:
    """Less than it, by a few roundings; all others stay."""
    values = torch.randn(64, 8, generator=rng()).to(dtype)
    for seed in range(8):
        (made,) = far.tight([values], rng(seed))
        changed = made != values
        assert 0 < int(changed.sum()) < 24
        for axis in (0, 1):
            top, gap = values.amax(axis, keepdim=True), 16 * torch.finfo(dtype).eps
            near = changed & (made < top) & (top - made <= gap * top.abs())
            if bool(near[changed].all()):
                break
        else:
            pytest.fail("neither along rows nor along columns")
