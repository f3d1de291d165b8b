# SPDX-License-Identifier: Apache-2.0
"""Many changes in one draw: parts of the rows each (``mixed``), or a few rows of all (``strewn``).

For cases on which every draw is dear. Which part has which change goes by lot, the same one for all inputs: so what a
reference accepts of such a draw does not hang on which changes meet. A row lies along the last axis with several
elements; of a batch of four, four of nine parts had their change as long as only the first axis was split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import cycle

import torch

from kernelwright.judge import whole

Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
TOGETHER = ("mixed", "strewn")
"""Such changes."""
SPOTS = 8
"""Elements of a row among which one is changed at the most, where only spots of a row are; there may be just one."""


class Dice(torch.Generator):
    """A generator of a device beside one of the host, for single numbers: those of a device are waited for (see
    ``hosted``)."""

    host: torch.Generator

    def sown(self, seed: int) -> Dice:
        """Itself, both begun anew."""
        self.manual_seed(seed)
        self.host = torch.Generator().manual_seed(seed)
        return self


def below(count: int, rng: torch.Generator) -> int:
    """From 0 to one less than ``count``, all as likely."""
    rng = rng.host if isinstance(rng, Dice) else rng
    return int(torch.randint(count, (), generator=rng, device=rng.device))


def few(most: int, rng: torch.Generator) -> int:
    """From 1 to ``most``, small numbers as likely as large ones on a logarithmic scale."""
    rng = rng.host if isinstance(rng, Dice) else rng
    return min(most, int(math.exp(float(torch.rand((), generator=rng, device=rng.device)) * math.log(most + 1))))


def rows_of(leaf: torch.Tensor) -> torch.Tensor:
    """A view of a contiguous tensor: its rows; of a vector, its elements."""
    long = [size for size in leaf.shape if size > 1]
    return leaf.view(-1, long[-1]) if len(long) > 1 else leaf.view(-1, 1)


def mixed(leaf: torch.Tensor, changes: Sequence[Change], rng: torch.Generator, lot: torch.Generator) -> torch.Tensor:
    """Parts of the rows, or of the elements of a vector, each with a change of its own; one of them as it is."""
    if leaf.dim() == 0:
        return leaf
    leaf = leaf.clone(memory_format=torch.contiguous_format)
    order = torch.randperm(len(changes) + 1, generator=lot, device=lot.device).tolist()
    for part, number in zip(_parts(leaf, len(order)), cycle(order), strict=False):
        if number and part.numel():
            part.copy_(changes[number - 1](part, rng))
    return leaf


def _parts(leaf: torch.Tensor, count: int) -> list[torch.Tensor]:
    """At least so many parts of a tensor that follow one upon the other; rows are cut where there are fewer."""
    rows = rows_of(leaf)
    if rows.shape[1] == 1:
        return list(leaf.view(-1).tensor_split(count))
    if len(rows) >= count:
        return list(rows.tensor_split(count))
    pieces = -(-count // len(rows))
    return [piece for row in rows.split(1) for piece in row.tensor_split(pieces, 1)]


def strewn(leaf: torch.Tensor, changes: Sequence[Change], rng: torch.Generator, manner: str) -> torch.Tensor:
    """As given but for a few rows (or elements of a vector), each with a change of its own, in secret places.

    In ``mixed`` any sample of rows shows that values are odd. Here few rows do: one for each change, and every third
    time for some of them only, so that even half of all rows, as a sample, may show none. A sample of every row, some
    of its elements, shows whole rows; so every third time only spots of a row are changed.
    """
    drawn = int(torch.randint(3, (), generator=rng, device=leaf.device))
    if leaf.dim() == 0:
        return leaf
    manner = manner or ("rows", "few", "spots")[drawn]
    leaf = leaf.clone(memory_format=torch.contiguous_format)
    rows = rows_of(leaf)
    wanted = min(few(len(changes), rng) if manner == "few" else len(changes), rows.shape[0])
    places = torch.randint(rows.shape[0], (wanted,), generator=rng, device=leaf.device).tolist()
    order = torch.randperm(len(changes), generator=rng, device=leaf.device).tolist()
    for place, number in zip(places, order, strict=False):
        row = changes[number](rows[place : place + 1], rng)[0]
        if manner in ("spots", "ends"):
            spots = few(max(1, row.numel() // SPOTS), rng)
            where = torch.randint(row.numel(), (spots,), generator=rng, device=leaf.device)
            rows[place, where] = row[where]
        else:
            rows[place] = row
    return leaf


def numbers(
    leaf: torch.Tensor, change: str, rng: torch.Generator, lot: torch.Generator, manner: str = ""
) -> torch.Tensor:
    """Whole numbers and masks, ``mixed`` or ``strewn``, as ``whole`` changes them: masks are drawn anew (all of their
    rows, where they are mixed), and what may not repeat, or lies in order, is treated as there."""
    if leaf.numel() < 2:
        return leaf
    if leaf.dtype is torch.bool or leaf.is_floating_point():
        made = whole.redrawn_booleans(leaf, rng) if leaf.dtype is torch.bool else whole.redrawn(leaf, rng)
        if change == "mixed":
            return made
        theirs, made = rows_of(made.contiguous()), leaf.clone(memory_format=torch.contiguous_format)
        places = torch.randint(len(theirs), (few(SPOTS, rng),), generator=rng, device=leaf.device)
        rows_of(made)[places] = theirs[places]
        return made
    if not whole.repeats(leaf) or whole.distinct(leaf):
        return whole.skewed(leaf, rng) if change == "mixed" else leaf
    changes = _of_numbers(leaf, rng)
    return mixed(leaf, changes, rng, lot) if change == "mixed" else strewn(leaf, changes, rng, manner)


def _of_numbers(leaf: torch.Tensor, rng: torch.Generator) -> list[Change]:
    """What becomes of parts of whole numbers that may repeat: most of them one, most the one furthest from zero, or all
    that one, or all the one nearest to it."""
    flat = leaf.reshape(-1)
    low, high = torch.aminmax(flat)
    most, least = low if -int(low) > int(high) else high, whole.nearest_zero(leaf)
    one = flat[int(torch.randint(flat.numel(), (), generator=rng, device=leaf.device))]

    def mostly(number: torch.Tensor, share: float) -> Change:
        def change(part: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
            chosen = torch.rand(part.shape, generator=rng, device=part.device) < share
            return torch.where(chosen, number, part)

        return change

    shares = ((one, whole.SKEWED), (most, whole.SKEWED), (most, 2.0), (least, 2.0))
    return [mostly(number, share) for number, share in shares]
