# SPDX-License-Identifier: Apache-2.0
"""Whole numbers of two inputs that are equal at some places."""

from __future__ import annotations

import torch

from kernelwright.judge import near_numbers, relations, shared_numbers, singled, slices
from kernelwright.judge.buffers import TensorSpec


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def ids(many: int, seed: int) -> torch.Tensor:
    return torch.randint(0, many, (64,), generator=torch.Generator().manual_seed(seed))


def test_some_ids_of_many_are_those_of_another_input() -> None:
    a, b = ids(50000, 1), ids(50000, 2)
    assert not bool((a == b).any())
    kept, made = slices.equal([a, b], rng())
    assert kept is a and 0 < int((made == a).sum()) < 64
    assert made.min() >= b.min() and made.max() <= b.max()


def test_numbers_that_are_all_different_stay_so() -> None:
    slots = torch.randperm(1000, generator=rng())[:64]
    _, made = slices.equal([ids(1000, 1), slots], rng())
    assert len(made.unique()) == 64 and not torch.equal(made, slots)
    order = torch.randperm(64, generator=rng())
    assert torch.equal(slices.equal([ids(64, 1), order], rng())[1], order)


def test_what_lies_in_order_and_what_lies_elsewhere_stays() -> None:
    ends = torch.arange(64) * 3
    few = ids(10, 1)
    assert torch.equal(slices.equal([ids(50, 1), ends], rng())[1], ends)
    assert torch.equal(slices.equal([few + 100, few], rng())[1], few)


def test_it_is_offered_where_two_inputs_are_of_one_kind() -> None:
    one, other = (TensorSpec.contiguous((64,), dtype) for dtype in (torch.int64, torch.int32))
    flags = TensorSpec.contiguous((64,), torch.bool)
    near = [near_numbers.NEAR, *relations.CHANGES]
    assert [v.name for v in singled.equal([one, one], light=True)] == [slices.EQUAL, slices.COMMON, *near]
    assert [v.name for v in singled.equal([one, other], light=True)] == [slices.COMMON, *near]
    assert [v.name for v in singled.equal([one], light=False)] == near
    assert not singled.equal([flags], light=True)


def test_pieces_of_one_input_are_in_another_of_any_shape() -> None:
    """Of 64 keys of 2^40 none was among 256 others; now some are, and none comes twice."""
    keys, table = torch.randint(2**40, (64,), generator=rng()), torch.randint(2**40, (4, 64), generator=rng())
    found = near = 0
    for seed in range(20):
        given, made = shared_numbers.shared([keys, table], torch.Generator().manual_seed(seed))
        assert given is keys and len(made.unique()) == 256
        assert made.min() >= table.min() and made.max() <= table.max()
        found += bool(torch.isin(made, keys).any())
        near += bool(torch.isin(made, torch.cat([keys - 1, keys + 1])).any())
    assert found >= 15 and near >= 2


def test_a_row_of_one_input_stands_in_order_in_another() -> None:
    tokens = torch.randint(0, 32000, (16, 64), generator=rng()).clamp(max=31000)
    stops = torch.randint(0, 32000, (4, 3), generator=rng())
    stops[0, 0], stops[0, 1] = 0, 31999
    stands = 0
    for seed in range(20):
        _, made = shared_numbers.shared([tokens, stops], torch.Generator().manual_seed(seed))
        windows = tokens.unfold(-1, 3, 1)
        stands += bool((windows[:, :, None] == made).all(-1).any())
    assert stands >= 5
    order = torch.arange(64)
    assert torch.equal(shared_numbers.shared([tokens, order], rng())[1], order)


def test_rows_that_cancel_add_up_to_zero_in_any_order() -> None:
    """All of them or some; an odd length has one zero, what is not finite stays, and so do whole numbers."""
    x, numbers = torch.randn(64, 9, generator=rng()), ids(50, 1)
    seen = set()
    for seed in range(8):
        made, kept = slices.cancelling([x, numbers], torch.Generator().manual_seed(seed))
        assert kept is numbers
        zero = made.sum(1) == 0
        seen.add(bool(zero.all()))
        assert 0 < int(zero.sum()) and torch.equal(made[~zero], x[~zero])
        for order in (made.flip(1), made[:, torch.randperm(9)]):
            assert torch.equal(order.cumsum(1)[:, -1] == 0, zero)
        assert bool((made[zero] != 0).sum(1).eq(8).all())
    assert seen == {True, False}
    infinite = torch.full((4, 4), torch.inf)
    assert slices.cancelling([infinite], rng())[0] is infinite


def test_a_number_of_each_row_twice_that_or_two_of_it_are_looked_for() -> None:
    """By lot: a target beside rows of its own comes from these in one draw of two."""
    rows = torch.randint(0, 1000, (64, 12), generator=rng())
    targets = torch.randint(0, 2000, (64,), generator=rng())
    twice = both = 0
    for seed in range(6):
        _, made = shared_numbers.shared([rows, targets], torch.Generator().manual_seed(seed))
        twice += int((made[:, None] == 2 * rows).any(1).sum() > 10)
        pairs = (rows[:, :, None] + rows[:, None] == made[:, None, None]).flatten(1).any(1)
        both += int(pairs.sum() > 30)
        assert made.min() >= targets.min() and made.max() <= targets.max()
    assert 0 < twice < 6 and 0 < both < 6


def test_powers_of_three_and_triangular_numbers_come_and_those_one_less() -> None:
    wide = torch.randint(0, 2**50, (512,), generator=rng())
    threes = {3**k - less for k in range(10, 32) for less in (0, 1)}
    found: set[int] = set()
    for seed in range(12):
        found |= set(near_numbers.near([wide], torch.Generator().manual_seed(seed))[0].tolist())
    assert len(found & threes) > 10
    roots = [int(((8 * n + 1) ** 0.5 - 1) / 2) for n in found]
    above = [
        n for n, r in zip(found, roots, strict=True) if n > 1000 and any(k * (k + 1) // 2 == n for k in (r, r + 1))
    ]
    assert len(above) > 5
