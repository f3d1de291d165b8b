# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that one input has in common with another of any shape: keys that are in a table, items that were seen,
a row of tokens in which the words to stop at stand.

Of two inputs that are drawn by themselves from many numbers no two are the same, so a program that looks nothing up is
right: a join that was left out, with a table and a weight, was 5 times as fast, and items that were seen already, not
taken out, 21 times.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.judge import near_numbers, whole
from kernelwright.judge.dealing import below

LEAST, MOST = 2, 64
"""Pieces of one input in another, at the least and the most."""
SHARE = 1 / 2
"""Pieces by the rows of an input, or by how often the longest piece goes into one where that is more."""


def shared(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Rows of whole numbers have pieces of rows of another input that comes before, by lot backwards or one off, where
    these lie within what they are. What lies in order stays, and numbers that are all different stay so."""
    out, before = list(leaves), list[torch.Tensor]()
    for index, leaf in enumerate(leaves):
        if leaf.dtype not in whole.INTEGERS or leaf.dim() == 0 or leaf.numel() < 2:
            continue
        if before and not whole.in_place(leaf):
            other = before[below(len(before), rng)]
            aligned = leaf.shape == other.shape[:-1] and bool(below(2, rng))
            out[index] = _of_rows(leaf, other, rng) if aligned else _with_pieces(leaf, other, rng)
        before.append(leaf)
    return out


def _with_pieces(leaf: torch.Tensor, other: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    low, high = (int(end) for end in torch.aminmax(leaf))
    repeats = whole.repeats(leaf)
    made = leaf.clone(memory_format=torch.contiguous_format)
    rows, theirs = made.view(-1, leaf.shape[-1]), other.reshape(-1, other.shape[-1])
    longest = min(rows.shape[1], theirs.shape[1])
    for _ in range(max(LEAST, min(MOST, int(SHARE * max(len(rows), rows.shape[1] // longest))))):
        size = longest if below(2, rng) else 1 + below(longest, rng)
        start, place = below(theirs.shape[1] - size + 1, rng), below(rows.shape[1] - size + 1, rng)
        piece = theirs[below(len(theirs), rng), start : start + size].to(torch.int64)
        how = below(8, rng)
        piece = piece.flip(0) if how < 2 else piece + 2 * how - 5 if how < 4 else piece
        row = rows[below(len(rows), rng)]
        fits = (piece >= low) & (piece <= high)
        if not repeats:
            fits &= ~torch.isin(piece, made) & whole.first_of_each(piece)
        row[place : place + size] = torch.where(fits, piece.to(leaf.dtype), row[place : place + size])
    return made


def _of_rows(leaf: torch.Tensor, other: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A number of each row of the other, twice that, or the sum of two of it: of a sum that is looked for in a row,
    whoever takes one number twice finds it."""
    one, two = (
        other.gather(-1, torch.randint(other.shape[-1], (*leaf.shape, 1), generator=rng, device=leaf.device))[..., 0]
        for _ in range(2)
    )
    how = torch.randint(3, leaf.shape, generator=rng, device=leaf.device)
    one, two = one.to(torch.int64), two.to(torch.int64)
    return near_numbers.kept(leaf, torch.where(how == 0, one, torch.where(how == 1, 2 * one, one + two)))
