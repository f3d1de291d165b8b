# SPDX-License-Identifier: Apache-2.0
"""Masks of which nothing counts, or all does, and inputs that are one value throughout."""

from __future__ import annotations

import math

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import inputs, marks, whole
from kernelwright.judge.inputs import Variant


@pytest.mark.parametrize(("change", "count"), [*zip(whole.EMPTIED, (0, 48, 1), strict=True)])
def test_whole_masks_are_empty_or_full_all_at_once_or_one_alone(change: str, count: int) -> None:
    """Two of which one decides where a softmax looks: it is never empty, so the other is alone."""
    leaf = torch.rand(6, 8) < 0.5
    made = inputs.change_leaves([leaf, leaf], Variant(name="", required=True, change=change), 5)
    assert [int(mask.sum()) for mask in made] == [count, count]
    one, other = inputs.change_leaves([leaf, leaf], Variant(name="", required=True, change=change, held=1), 5)
    assert torch.equal(one, leaf) and int(other.sum()) == count
    softmax = "(torch.softmax(torch.where(a, x, -torch.inf), -1) * b).sum() / b.sum().clamp(min=1)"
    made = instance(softmax, "[torch.randn(6, 8), torch.ones(6, 8) > 0, torch.rand(6, 8) < 0.5]", args="x, a, b")
    names = [v.name for v in made.variants(3) if v.change == "empty masks"]
    assert names == ["empty masks, input 2 alone"]


def test_inputs_are_an_end_of_their_numbers_throughout_or_what_is_looked_for() -> None:
    """Not numbers that never repeat, nor such as lie in order."""
    ids, once = torch.randint(-1, 7, (8, 8)), torch.randperm(9)
    for value, is_ in ((marks.LOWEST, ids.min()), (marks.HIGHEST, ids.max()), (-100.0, -100)):
        assert bool((marks.throughout(ids, (value,)) == is_).all())
    assert torch.equal(once, marks.throughout(once, (marks.LOWEST,)))
    lengths = torch.arange(4).repeat_interleave(2)
    assert torch.equal(lengths, marks.throughout(lengths, (2.0,)))
    assert bool(marks.throughout(torch.randn(4, 4), (math.nan,)).isnan().all())
    made = instance("x[t != 3].sum()", "[torch.randn(64), torch.randint(0, 9, (64,))]", args="x, t")
    ways = [v.marks for v in made.variants(3) if v.change == "throughout"]
    assert ways == [((1, (marks.LOWEST,)),), ((1, (marks.HIGHEST,)),), ((1, (3.0,)),)]
