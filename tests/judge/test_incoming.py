# SPDX-License-Identifier: Apache-2.0
"""Incoming gradients as losses make them."""

from __future__ import annotations

import random

import pytest
import torch

from kernelwright.judge import incoming


def made(
    kind: str, shape: tuple[int, ...] = (400, 12), dtype: torch.dtype = torch.float32, seed: int = 3
) -> torch.Tensor:
    """Of one output that has normal ones else."""
    first = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    leaves = [torch.zeros(2)]
    given = incoming.given(leaves, [first], kind, seed)
    assert list(given) == leaves and given.incoming is not None
    assert given.incoming[0].shape == shape and given.incoming[0].dtype == dtype
    return given.incoming[0]


def test_rows_are_of_every_shape() -> None:
    """Empty, half empty, single numbers of either sign, differences, means, of another size, and usual ones."""
    rows = made(incoming.ROWS)
    filled = (rows != 0).sum(-1)
    assert bool((filled == 0).any()) and bool((filled == 12).any()) and bool(((filled > 2) & (filled < 12)).any())
    single = rows[filled == 1].sum(-1)
    assert {1.0, -1.0} <= set(single.tolist())
    assert bool((rows[filled == 2].sum(-1) == 0).any())
    even = (rows == rows[:, :1]).all(-1) & (filled == 12)
    assert {1.0, float(torch.tensor(1 / 12))} == set(rows[even][:, 0].tolist())
    assert float(rows[filled == 12].abs().amax(-1).min()) < 1e-4 < 30 < float(rows.abs().max())


def test_wholes_are_of_every_kind() -> None:
    """Ones but for a few, nothing, scaled either way, and one number a row."""
    for seed in range(20):
        ones = made(incoming.ONES, seed=seed).flatten()
        assert 0 < int((ones != 1).sum()) <= incoming.OTHERS
        assert [1, 1, 1] == [ones[0], ones[-1], ones[len(ones) // 2]]
    assert not made(incoming.NONE).any()
    assert 1e7 < float(made(incoming.LARGE).abs().max()) < 1e9
    assert 0 < float(made(incoming.SMALL).abs().max()) < 1e-11
    for kind, number in ((incoming.CHOSEN, 1.0), (incoming.NEGATED, -1.0)):
        rows = made(kind)
        assert bool(((rows != 0).sum(-1) == 1).all()) and bool((rows.sum(-1) == number).all())


def test_blocks_of_samples_are_zero() -> None:
    """Leading and trailing halves of either axis, all but one place, and whole samples."""
    blocks = made(incoming.BLOCKS, (14, 16, 12)) != 0
    rows, columns = blocks.any(2).sum(1), blocks.any(1).sum(1)
    assert bool((rows == 0).any()) and bool((rows == 1).any()) and bool((columns == 1).any())
    assert int(((~blocks[:, :8].flatten(1).any(1)) & (rows > 0)).sum()) >= 2, "leading halves"
    assert int(((~blocks[:, :, 6:].flatten(1).any(1)) & (rows > 0)).sum()) >= 2, "trailing halves"
    assert made(incoming.EVEN).unique().tolist() == [float(torch.tensor(1 / 4800))]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_they_are_finite_in_every_type(dtype: torch.dtype) -> None:
    """Half precision has no room for a scaled loss."""
    assert all(bool(torch.isfinite(made(kind, dtype=dtype)).all()) for kind in incoming.KINDS)


@pytest.mark.parametrize("shape", [(), (1,), (5, 1), (2,), (0, 4), (3, 4, 5)])
def test_outputs_of_every_shape_have_them(shape: tuple[int, ...]) -> None:
    """A loss is one number."""
    for kind in incoming.KINDS:
        made(kind, shape)


def test_whole_numbers_have_none() -> None:
    """Places of a sort are no result that anything is differentiated by."""
    places = torch.zeros(3, dtype=torch.int64)
    given = incoming.given([], [places], incoming.LARGE, 1)
    assert given.incoming is not None and torch.equal(given.incoming[0], places)


def test_dear_calls_meet_two_of_them() -> None:
    """Rows, in which most faults show, and by lot another kind."""
    dice = random.Random(1)
    assert incoming.chosen(dice, dear=False) == incoming.KINDS
    assert incoming.chosen(dice, dear=False, random_=True) == (incoming.LARGE,)
    chosen = [incoming.chosen(dice, dear=True) for _ in range(100)]
    assert all(len(two) == 2 and two[0] == incoming.ROWS for two in chosen)
    assert {two[1] for two in chosen} == set(incoming.KINDS[1:])
