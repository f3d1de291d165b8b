# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that belong together: which relations come, and that nothing leaves its range."""

from __future__ import annotations

import itertools

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import relations
from kernelwright.judge.inputs import generator

SUM = "x + y <= z"
THREE = "[torch.randint(0, 2**45, (512,)), torch.randint(0, 2**45, (512,)), torch.randint(0, 2**46, (512,))]"


def _drawn(leaves: list[torch.Tensor], name: str, seed: int) -> list[torch.Tensor]:
    made = relations.CHANGES[name](leaves, generator(seed, "cpu"))
    for before, after in zip(leaves, made, strict=True):
        assert before.dtype is after.dtype and before.shape == after.shape
        assert int(before.min()) <= int(after.min()) and int(after.max()) <= int(before.max())
    return made


def test_of_three_one_is_the_sum_of_the_others_and_of_two_a_multiple_and_a_half() -> None:
    torch.manual_seed(0)
    leaves = [torch.randint(0, 2**45, (512,)), torch.randint(0, 2**45, (512,)), torch.randint(0, 2**46, (512,))]
    found = {"sum": 0, "line": 0, "half": 0, "twice": 0}
    for seed in range(6):
        a, b, c = _drawn(leaves, relations.RELATED, seed)
        found["sum"] += int((a + b == c).sum())
        for x, y, z in itertools.permutations((a, b, c)):
            found["line"] += int(((2 * y - x - z).abs() <= 1).sum())
        found["twice"] += int((2 * b == c).sum() + (2 * a == c).sum())
        found["half"] += int(((2 * (c % b.clamp(min=1)) - b).abs() <= 1).sum())
    assert all(found.values()), found


def test_of_four_two_products_are_one_apart() -> None:
    """k * k and (k + 1) * (k - 1), which float64 does not tell apart."""
    torch.manual_seed(0)
    leaves = [torch.randint(0, 2**31, (256,)) for _ in range(4)]
    made = [_drawn(leaves, relations.RELATED, seed) for seed in range(8)]
    apart = [(a * b - c * d).abs() == 1 for one in made for a, b, c, d in (one, [one[0], one[2], one[1], one[3]])]
    assert any(bool(each.any()) for each in apart)


def test_the_places_of_a_short_axis_are_related_too() -> None:
    torch.manual_seed(0)
    sides = torch.randint(1, 2**45, (512, 3))
    flat = 0
    for seed in range(6):
        one, two, three = _drawn([sides], relations.RELATED, seed)[0].sort(-1).values.unbind(-1)
        flat += int((one + two == three).sum())
    assert flat > 10


@pytest.mark.parametrize("alone", [True, False])
def test_rows_that_a_sum_or_a_hash_does_not_tell_apart(alone: bool) -> None:
    torch.manual_seed(0)
    leaves = [torch.randint(0, 128, (64, 10))] if alone else [torch.randint(0, 128, (32, 10)) for _ in range(2)]
    powers = torch.tensor([31**k for k in range(9, -1, -1)])
    same = {"hash": 0, "squares": 0}
    for seed in range(8):
        made = _drawn(leaves, relations.HASHED, seed)
        one, two = made[0].split(32) if alone else made
        unlike = (one != two).any(-1)
        same["hash"] += int((unlike & ((one * powers).sum(-1) == (two * powers).sum(-1))).sum())
        sums = [(one**k).sum(-1) == (two**k).sum(-1) for k in (1, 2, 3)]
        same["squares"] += int((unlike & torch.stack(sums).all(0)).sum())
    assert all(same.values()), same


def test_rows_hold_the_ends_of_their_range_in_turn_or_lie_on_a_line() -> None:
    torch.manual_seed(0)
    for leaf in (
        torch.randint(0, 256, (64, 16), dtype=torch.uint8),
        torch.randint(0, 2**27, (64, 16), dtype=torch.int32),
    ):
        made = _drawn([leaf], relations.ENDS, 1)[0].to(torch.int64)
        near = (int(leaf.max()) - int(leaf.min())) // 2
        turns = (made.diff(dim=-1).abs() > near).all(-1)
        straight = (made.diff(n=2, dim=-1).abs() <= 4).all(-1)
        assert bool(turns.any()) and bool((straight & ~turns).any())
        assert (len(leaf.unique()) == leaf.numel()) <= (len(made.unique()) == made.numel())  # all different stay so


def test_what_fills_its_type_has_the_ends_of_it() -> None:
    torch.manual_seed(0)
    leaf = torch.randint(-(2**31), 2**31, (64, 32)).to(torch.int32)
    found = [relations.CHANGES[relations.ENDS]([leaf], generator(seed, "cpu"))[0] for seed in range(8)]
    assert any(bool((made == -(2**31)).any()) and bool((made == -1).any()) for made in found)
    wide = torch.randint(-(2**62), 2**62, (8, 8)) * 2
    for name in relations.CHANGES:  # nothing overflows
        relations.CHANGES[name]([wide, wide.flip(0)], generator(1, "cpu"))


def test_steep_rows_are_fibonaccis() -> None:
    """From 1 on, where the least of numbers by lot is as near to it as any."""
    torch.manual_seed(0)
    near, far = torch.randint(1, 50000, (32, 24)), torch.randint(5000, 50000, (32, 24))
    made = relations.CHANGES[relations.STEEP]([near], generator(1, "cpu"))[0].sort(-1).values
    assert int(_drawn([far], relations.STEEP, 1)[0].min()) >= 5000
    assert int(((made[:, 2:-1] == made[:, 1:-2] + made[:, :-3]).sum(-1) > 15).sum()) > 4


def test_who_is_asked() -> None:
    """Whole numbers that may be any of their range; what lies in order stays, and floats have none of it."""
    offered = instance(SUM, THREE, args="x, y, z").offered(1)
    assert [v.draws for v in offered if v.change in relations.CHANGES] == [10, 3, 2, 1]
    assert not [v for v in instance("x * 2.0", "[torch.randn(8, 16)]").offered(1) if v.change in relations.CHANGES]
    for name in relations.CHANGES:  # nothing to relate
        _drawn([torch.randint(0, 9, (1, 64))], name, 3)
    lengths = torch.arange(0, 640, 10)
    assert torch.equal(_drawn([lengths], relations.RELATED, 3)[0], lengths)
