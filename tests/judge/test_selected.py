# SPDX-License-Identifier: Apache-2.0
"""Numbers that differ by the class, or the mask, that another input says."""

from __future__ import annotations

import pytest
import torch

from kernelwright.judge import selected, slices
from kernelwright.judge.buffers import TensorSpec


def rng(seed: int = 0) -> torch.Generator:
    """A new one."""
    return torch.Generator().manual_seed(seed)


def test_what_a_mask_selects_lies_far_from_the_rest_and_the_mean_of_all_near_zero() -> None:
    """A variance by squares after the mean of the whole row cancels there."""
    x, mask = torch.randn(16, 256), torch.rand(16, 256) > 0.5
    for seed in range(8):
        made, same = selected.far([x, mask], rng(seed))
        assert same is mask
        one, other = made[mask].mean(), made[~mask].mean()
        assert float((one - other).abs()) > 40 and one * other < 0
        assert float((made - x)[mask].std()) < 1e-2, "one class moves as a whole"


def test_classes_of_rows_are_up_and_down_or_smaller() -> None:
    """The rows of a class together; the whole numbers stay; as many as half of the classes, or one, are smaller."""
    x, ids = torch.randn(64, 8), torch.arange(64) % 8
    counts = set()
    for seed in range(40):
        far = selected.far([x, ids], rng(seed))[0] - x
        ups = [bool((far[ids == k] > 20).all()) for k in range(8)]
        assert sum(ups) == 4 and all(bool((far[ids == k] < -20).all()) for k in range(8) if not ups[k])
        sizes = selected.sized([x, ids], rng(seed))[0] / x
        smaller = [k for k in range(8) if float(sizes[ids == k].max()) < 1]
        assert 2.0**-16 <= float(sizes.min()) and all(float(sizes[ids == k].std()) < 1e-6 for k in range(8))
        counts.add(len(smaller))
    assert {1, 4} <= counts <= {1, 2, 3, 4}


def test_only_what_may_select_does() -> None:
    """Not numbers of which each comes once, nor of another shape; floats that are not finite stay."""
    x = torch.randn(128, 4)
    for other in (torch.arange(128), torch.randint(0, 4, (3,)), torch.tensor(3), torch.zeros(128, dtype=torch.int64)):
        assert selected.far([x, other], rng())[0] is x
    marked = x.clone()
    marked[0, 0] = torch.inf
    assert selected.far([marked, torch.arange(128) % 2], rng())[0] is marked
    middle = torch.randn(2, 6, 3)
    assert not torch.equal(middle, selected.far([middle, torch.arange(6) % 2], rng())[0]), "along a later axis too"


def test_a_mask_of_some_axes_selects_along_them() -> None:
    """Samples and steps of samples, channels and steps; a single place stands for none. Many classes are moved too."""
    x, mask = torch.randn(16, 16, 64), torch.rand(16, 64) > 0.5
    for one in (mask, mask[:, None]):
        moved = (selected.far([x, one], rng())[0] - x).abs() > 20
        assert bool(moved.all())
        up = selected.far([x, one], rng())[0] > x
        assert torch.equal(up, up[:, :1].expand_as(up)) and torch.equal(up[:, 0], mask) or torch.equal(up[:, 0], ~mask)
    rows, ids = torch.randn(1000, 4), torch.arange(1000) % 200
    ups = {int((selected.far([rows, ids], rng(seed))[0] > rows).sum()) for seed in range(9)}
    assert len(ups) > 1 and max(ups) < 4000 and min(ups) > 0


def test_a_row_of_flags_for_the_columns_of_a_square_says_columns() -> None:
    """The first axis that is as long is the wrong one where a selector has as many axes as what it selects."""
    x = torch.randn(64, 64)
    far = selected.far([x, (torch.arange(64) % 2)[None]], rng())[0] - x
    assert torch.equal(far[:1] > 0, (far > 0)[:1]) and bool(((far > 0) == (far > 0)[:1]).all())


@pytest.mark.parametrize(("shapes", "fits"), [(((8, 4), (8,)), True), (((8, 4), (3,)), False), (((8, 4), ()), False)])
def test_they_are_offered_where_shapes_fit(shapes: tuple[tuple[int, ...], ...], fits: bool) -> None:
    """A task without such a pair has no draws of them."""
    kinds = zip(shapes, (torch.float32, torch.int64), strict=True)
    assert fits == selected.offered([TensorSpec.contiguous(shape, dtype) for shape, dtype in kinds])


def test_one_input_of_several_is_zero() -> None:
    """Each of them some time; of one alone none."""
    leaves = [torch.randn(4), torch.randn(2, 3), torch.arange(4)]
    seen = {tuple(bool((leaf == 0).all()) for leaf in slices.one_empty(leaves, rng(seed))) for seed in range(20)}
    assert seen == {(True, False, False), (False, True, False)}
    assert slices.one_empty(leaves[:1], rng())[0] is leaves[0]
