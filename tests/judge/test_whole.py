# SPDX-License-Identifier: Apache-2.0
"""Whole numbers and masks change within the values they have; what is in order stays, but for positions."""

from __future__ import annotations

import pytest
import torch

from kernelwright.judge import inputs, whole
from kernelwright.judge.inputs import Variant

LENGTHS = torch.tensor([0, 3, 3, 7, 12])
CAUSAL = torch.full((6, 6), -torch.inf).triu(1)


def rng(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("leaf", [torch.randint(0, 50, (8, 16)), torch.arange(9), torch.arange(9).expand(2, 9)])
def test_two_elements_change_places(leaf: torch.Tensor) -> None:
    """No value comes or goes."""
    made = whole.swapped(leaf, rng())
    assert 2 == int((made != leaf).sum())
    assert torch.equal(made.reshape(-1).sort().values, leaf.reshape(-1).sort().values)


@pytest.mark.parametrize("change", [whole.swapped, whole.skewed, whole.moved])
@pytest.mark.parametrize("leaf", [LENGTHS, torch.tensor(3), torch.full((4,), 2), torch.empty(0, dtype=torch.int64)])
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
    made = inputs.lay_out(leaf, "padded")
    assert torch.equal(leaf, made)
    assert ((21, 7, 1), False) == (made.stride(), made.is_contiguous())
