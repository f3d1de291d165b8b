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


ATTENTION, SCORES = "torch.softmax(x + m, -1)", "torch.randn(3, 12, 16)"
HIDDEN = "torch.zeros(3, 1, 16).masked_fill(torch.rand(3, 1, 16) < 0.4, {})"


def test_added_masks_of_infinities_have_empty_lines_where_the_reference_takes_them() -> None:
    """Nobody else need make anything of a softmax of nothing."""
    given = f"[{SCORES}, {HIDDEN.format('-torch.inf')}]"
    made = instance(ATTENTION + ".nan_to_num(0.0)", given, args="x, m")
    lines = [v for v in made.variants(3) if v.change in whole.ADDED]
    assert ["added mask rows", "added mask samples"] == [v.change for v in lines]
    assert all(bool((made.draw(v, 5)[1] == -math.inf).all(-1).any()) for v in lines)
    assert not any(v.change in whole.ADDED for v in instance(ATTENTION, given, args="x, m").variants(3))


@pytest.mark.parametrize("low", ["torch.finfo(torch.float32).min", "-1e4"])
def test_added_masks_of_far_numbers_stay_such(low: str) -> None:
    """No row of them becomes empty, and one that is the same in every draw is redrawn, too."""
    for mask in (HIDDEN.format(low), f"torch.full((16, 16), {low}).triu(1)[:12]"):
        made = instance(ATTENTION, f"[{SCORES}, {mask}]", args="x, m")
        found = [made.draw(v, 5)[1] for v in made.variants(3)]
        assert all(whole.far(leaf) == eval(low) and bool((leaf == 0).any(-1).all()) for leaf in found)
        assert not all(torch.equal(leaf, found[0]) for leaf in found)
