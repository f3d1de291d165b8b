# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that are nearly those of another input, or one another."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from kernelwright.judge.near_numbers import near

Seen = Callable[[torch.Tensor, torch.Tensor], int]


def rng(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def wide(seed: int, shape: tuple[int, ...] = (256,), most: int = 2**60) -> torch.Tensor:
    return torch.randint(1, most, shape, generator=rng(seed))


def alike_in_float64(a: torch.Tensor, b: torch.Tensor) -> int:
    """Numbers of b that float64 takes for one of a, and that are none."""
    return int((torch.isin(b.double(), a.double()) & ~torch.isin(b, a)).sum())


def alike_in_low_words(a: torch.Tensor, b: torch.Tensor) -> int:
    return int((torch.isin(b.int(), a.int()) & ~torch.isin(b, a)).sum())


def in_one_bucket(a: torch.Tensor, b: torch.Tensor) -> int:
    """Numbers more than eight that fall into one of 64 buckets by their low bits, beyond what lot does."""
    return max(0, int(torch.bincount(b % 64).max()) - 20)


def steps_of_euclid(a: torch.Tensor, b: torch.Tensor) -> int:
    def steps(x: int, y: int) -> int:
        count = 0
        while y:
            x, y, count = y, x % y, count + 1
        return count

    return max(map(steps, a.reshape(-1).tolist(), b.reshape(-1).tolist())) > 60


def roots_by_floats(a: torch.Tensor, b: torch.Tensor) -> int:
    return sum(math.isqrt(number) != int(math.sqrt(number)) for number in b.tolist())


def bits_by_floats(a: torch.Tensor, b: torch.Tensor) -> int:
    return sum(number.bit_length() != math.floor(math.log2(number)) + 1 for number in b.tolist() if number)


@pytest.mark.parametrize(
    "seen", [alike_in_float64, alike_in_low_words, in_one_bucket, steps_of_euclid, roots_by_floats, bits_by_floats]
)
def test_short_cuts_show_in_one_of_a_few_draws_and_in_none_by_lot(seen: Seen) -> None:
    a, b = wide(1), wide(2)
    assert not seen(a, b)
    draws = [near([a, b], rng(seed)) for seed in range(32)]
    assert sum(bool(seen(*made)) for made in draws) >= 2
    for made in draws:
        for was, now in zip((a, b), made, strict=True):
            assert now.dtype is was.dtype and len(now.unique()) == len(now)
            assert now.min() >= was.min() and now.max() <= was.max()


@pytest.mark.parametrize("stacked", [False, True])
def test_a_carry_goes_a_long_way(stacked: bool) -> None:
    """Digits of two numbers, as two inputs or as two rows of one."""

    def longest(a: torch.Tensor, b: torch.Tensor) -> int:
        nines = (a + b == 9).int()
        run, most = torch.zeros_like(nines[:, 0]), 0
        for column in nines.unbind(-1):
            run = (run + column) * column
            most = max(most, int(run.max()))
        return most

    digits = torch.randint(0, 10, (2, 32, 48), generator=rng())
    assert longest(*digits) < 12
    leaves = [digits] if stacked else list(digits.unbind(0))
    found = [near(leaves, rng(seed)) for seed in range(16)]
    assert max(longest(*(made[0] if stacked else made)) for made in found) > 24
    assert all(0 <= int(leaf.min()) and int(leaf.max()) <= 9 for made in found for leaf in made)


def test_numbers_of_which_few_may_have_a_meaning_and_what_is_in_order_stay() -> None:
    kinds = torch.tensor([0, 17, 40])[torch.randint(0, 3, (64,), generator=rng())]
    ends = torch.arange(64) * 3
    pairs = torch.stack([wide(1), wide(2)], -1).sort(-1).values
    slots = torch.randperm(64, generator=rng())
    for seed in range(16):
        for was, now in zip([kinds, ends, pairs, slots], near([kinds, ends, pairs, slots], rng(seed)), strict=True):
            assert torch.equal(was, now)
