# SPDX-License-Identifier: Apache-2.0
"""Whole numbers of two inputs that are equal at some places."""

from __future__ import annotations

import torch

from kernelwright.judge import singled, slices
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
    assert [v.name for v in singled.equal([one, one])] == [slices.EQUAL]
    assert not singled.equal([one, other]) and not singled.equal([one])
