# SPDX-License-Identifier: Apache-2.0
"""Incoming gradients as losses make them, beside the normal numbers that every other call has.

A loss of a slice leaves the rest of a row at zero, one of a class is one number in a row, a sum is ones, padding is
rows of zeros, a scaled loss is 65,536 times as large. A backward pass is linear in them, so none of this costs an
honest one anything; ten that skip rows by their first number or their sum, take ones for granted or a number for
negative, clamp, flush or divide by the largest, passed where all were normal numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from kernelwright.judge import factors, inputs
from kernelwright.judge.calls import Given, differentiable

ROWS, ONES, NONE, LARGE, SMALL = "by rows", "of ones, nearly", "of zeros", "that are large", "that are small"
CHOSEN, NEGATED = "of one number a row", "of one negative number a row"
BLOCKS, EVEN = "that are zero in blocks", "of one number with steps of zero"
SLICED = "of which slices have other sizes"
KINDS = (ROWS, ONES, NONE, LARGE, SMALL, CHOSEN, NEGATED, BLOCKS, EVEN, SLICED)
"""Ways of changing them, by what is said of one that fails."""
POWERS = {torch.float16: (3, -6)}
USUAL = (24, -40)
"""Large and small ones are so many powers of two times normal ones, by the type of the output: a scaled loss begins
with 2^16 and may be 2^24. Half precision has no room for that."""
ROW_POWERS = (-20, 6)
"""The same of single rows, where there is room."""
OTHERS = 3
"""Of the ones that are something else, at the most, and neither at an end nor in the middle: who looks at some to know
whether all are ones looks there, and of 1 in 64 he came to one by lot."""

Row = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _half(row: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Zeros before some place, or after it."""
    at = int(torch.randint(1, len(row), (), generator=rng)) if len(row) > 1 else 0
    part = slice(0, at) if torch.rand((), generator=rng) < 0.5 else slice(at, None)
    row[part] = 0
    return row


def _single(row: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """One number, of either sign."""
    at = int(torch.randint(len(row), (), generator=rng))
    kept = 1.0 if torch.rand((), generator=rng) < 0.5 else -1.0
    made = torch.zeros_like(row)
    made[at] = kept
    return made


def _pair(row: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A difference of two: they add up to nothing."""
    one, other = torch.randperm(len(row), generator=rng)[:2].tolist() if len(row) > 1 else (0, 0)
    made = torch.zeros_like(row)
    made[one] = 1
    made[other] = -1
    return made


def _even(row: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """One number for all, as a mean's."""
    return torch.full_like(row, 1 / len(row) if torch.rand((), generator=rng) < 0.5 else 1.0)


def _moved(row: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Another size than the rows beside it."""
    power = ROW_POWERS[int(torch.randint(2, (), generator=rng))]
    return row * 2.0 ** (power if row.dtype != torch.float16 else power / 4)


SHAPES: tuple[Row, ...] = (
    lambda row, rng: row,
    lambda row, rng: torch.zeros_like(row),
    _half,
    _single,
    _pair,
    _even,
    _moved,
)
MOST_ROWS = 256
"""Rows that are made one by one; the others are those again, rolled."""


def given(leaves: Sequence[torch.Tensor], first: Sequence[torch.Tensor], kind: str, seed: int) -> Given:
    """The same inputs with other incoming gradients, by output: ``first`` are normal ones."""
    made, rng = Given(leaves), inputs.generator(seed % 2**63, torch.device("cpu"))
    made.incoming = [_changed(one, kind, rng) for one in first]
    return made


def chosen(dice: random.Random, *, dear: bool, random_: bool = False) -> tuple[str, ...]:
    """Which of KINDS one program meets: all, or where a call is dear, rows and another one; where results are random,
    and compared with dozens of runs, large ones."""
    if random_:
        return (LARGE,)
    return (ROWS, dice.choice(KINDS[1:])) if dear else KINDS


def _changed(first: torch.Tensor, kind: str, rng: torch.Generator) -> torch.Tensor:
    if not differentiable([first]) or first.numel() == 0:
        return first.clone()
    if kind == NONE:
        return torch.zeros_like(first)
    if kind in (LARGE, SMALL):
        powers = POWERS.get(first.dtype, USUAL)
        return first * 2.0 ** powers[kind == SMALL]
    if kind == EVEN:
        return torch.full_like(first, 1 / max(first.numel(), 2))  # a mean's; of a sum's ones there are others
    if kind == BLOCKS:
        return _in_blocks(first, rng)
    if kind == SLICED:
        return factors.sliced(first.cpu(), 1.0, rng).to(first.device)
    if kind in (CHOSEN, NEGATED):
        return _of_classes(first, 1.0 if kind == CHOSEN else -1.0, rng)
    if kind == ONES:
        made = torch.ones_like(first).reshape(-1)
        count = made.numel()
        there = set(torch.randint(count, (OTHERS,), generator=rng).tolist()) - {0, count // 2, count - 1}
        for at in there or {count - 2} if count > 1 else ():
            made[at] = first.reshape(-1)[at]
        return made.reshape(first.shape)
    return _by_rows(first, rng)


def _in_blocks(first: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Of each sample the first half or more along an axis is zero, or the last, or all but one place; or all of it. In
    turn, from a place by lot, so that each way comes where there are samples enough."""
    samples = first.unsqueeze(0) if first.dim() < 3 else first
    made = samples.clone()
    axes = [axis for axis in range(1, samples.dim()) if samples.shape[axis] > 1]
    ways = [(axis, way) for axis in axes for way in range(3)]
    at = int(torch.randint(len(ways) + 1, (), generator=rng))
    for number, sample in enumerate(made):
        axis, way = [*ways, (0, 3)][(at + number) % (len(ways) + 1)]
        if way == 3:
            sample.zero_()
            continue
        size = samples.shape[axis]
        cut, along = int(torch.randint(size // 2, size, (), generator=rng)), sample.movedim(axis - 1, 0)
        kept = {0: slice(cut, None), 1: slice(0, max(size - cut, 1)), 2: slice(cut, cut + 1)}[way]
        rest = along[kept].clone()
        along.zero_()
        along[kept] = rest
    return made.reshape(first.shape)


def _of_classes(first: torch.Tensor, number: float, rng: torch.Generator) -> torch.Tensor:
    """This number at one place of each row, as of a loss that picks a class."""
    made = torch.zeros_like(first)
    rows = made.reshape(-1, first.shape[-1] if first.dim() else 1)
    places = torch.randint(rows.shape[1], (rows.shape[0], 1), generator=rng).to(first.device)
    return rows.scatter(1, places, number).reshape(first.shape)


def _by_rows(first: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Every row is one of SHAPES, by lot; of a single row, or of rows of one element, what is left of that."""
    if first.dim() == 0 or first.shape[-1] == 1:
        lot = torch.tensor([0.0, 1.0, -1.0, 2.0**-20, 2.0**6])
        flat = first.reshape(-1)
        picks = torch.randint(len(lot), (flat.numel(),), generator=rng)
        return (flat * lot.to(flat.device)[picks.to(flat.device)].to(flat.dtype)).reshape(first.shape)
    rows = first.reshape(-1, first.shape[-1])
    made = []
    for row in rows[:MOST_ROWS].to("cpu"):
        made.append(SHAPES[int(torch.randint(len(SHAPES), (), generator=rng))](row.clone(), rng))
    some = torch.stack(made).to(device=first.device, dtype=first.dtype)
    again = -(-len(rows) // len(some))
    turned = [some.roll(7 * turn, dims=-1) for turn in range(again)]
    return torch.cat(turned)[: len(rows)].reshape(first.shape)
