# SPDX-License-Identifier: Apache-2.0
"""Inputs that have a pattern, all but a few elements: rows that are all one, a causal mask, ids one after the other.

A program that looks for a pattern in some places of an input and believes it of all is right on inputs by lot, which
have none there, and on those that have it throughout. None is drawn that has it nearly. An attention that took a mask
for causal by every eighth element, a product that took a matrix for triangular by its corner, and a loss that took
probabilities for single ones by the first row passed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from kernelwright.judge import numerics, whole
from kernelwright.judge.dealing import below, few, rows_of

REPEATED, SORTED, SET = "almost repeated", "almost sorted", "almost zeros and ones"
"""Patterns of the values that are there, and such as bring others between the least and the largest. Floats are sorted
only where a reference sorts: a running sum of them errs by far more than one of the same numbers in any other order."""
CHANGES = (REPEATED, SORTED, SET)
MOST = 8
"""Elements at the most that do not have the pattern, of small inputs one in eight."""
RUN = 6
"""Equal elements one after the other, at the most, where values come in runs."""
LOOKS = 256
"""Elements among which one is looked for that the pattern changes."""

LINED_UP = 4.0
"""Times the honest error by which floats may err where inputs have a pattern, the bit that is allowed aside: it makes
roundings alike, which else cancel. Beside a transform in steps a product with the whole table erred by 2.95 to 3.38 of
it, and of 402 honest programs of the corpus no other by more than that bit. At 16 a mean of 128 rows was granted with
one of them far off, now and then. What one element of a million is off by is more than that in float32; in half
precision it is not, where this is not allowed."""
NOTE = f"where inputs or weights have a pattern, floats of 32 bits and more may err by {LINED_UP:g} times as much"

Pattern = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def changed(leaf: torch.Tensor, change: str, number: int, rng: torch.Generator) -> torch.Tensor:
    """``leaf`` with a pattern; up to MOST elements are what they were, by lot half of a row besides. Draws of a dozen
    ``number`` in turn have all patterns there are, those of zeros and ones between other ends as well. Whole numbers in
    order stay, as lengths are, and those that do not repeat come in order, all but two."""
    if leaf.numel() < 4 or leaf.dim() == 0 or not _ordered(leaf):
        return leaf
    if whole.is_mask(leaf):
        counts = changed(leaf == 0, change, number, rng)
        return torch.zeros_like(leaf).masked_fill_(~counts, -torch.inf)
    if leaf.dtype in whole.INTEGERS and not whole.repeats(leaf):
        if change == SET or not whole.may_move(leaf):
            return leaf
        made = _in_order(leaf, rng, bool(number % 2)).clone(memory_format=torch.contiguous_format)
        whole.exchange(made.view(-1), rng)
        return made
    if leaf.is_floating_point() and not numerics.finite(leaf):
        return leaf
    kinds = len(_patterns(leaf, change))
    if not kinds:
        return leaf
    made = _patterns(leaf, change, plain=bool(number // kinds % 2))[number % kinds](leaf, rng)
    return _displaced(made, rng) if change == SORTED and below(2, rng) else spared(leaf, made, rng)


def patterned(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """``leaf`` with one of the patterns by lot."""
    return changed(leaf, (REPEATED, SET)[below(2, rng)], below(1 << 20, rng), rng)


def _ordered(leaf: torch.Tensor) -> bool:
    """Whether torch says which of its numbers is larger: of float8 and the wider unsigned ones it does not."""
    return leaf.dtype in (torch.bool, *whole.INTEGERS) or (leaf.is_floating_point() and leaf.itemsize > 1)


def _patterns(leaf: torch.Tensor, change: str, *, plain: bool = False) -> list[Pattern]:
    flags, numbers = leaf.dtype is torch.bool, leaf.dtype in whole.INTEGERS
    ordered: list[Pattern] = [functools.partial(_in_order, falling=falling) for falling in (False, True)]
    if change == SORTED:
        return [] if flags else ordered
    if change == REPEATED:
        axes = _long(leaf)[: -1 if flags else None]  # along the last one a row of a mask would be empty
        along = [functools.partial(how, axis=axis) for axis in axes for how in (_along, _runs, _again)]
        square = leaf.dim() > 1 and leaf.shape[-1] == leaf.shape[-2]
        return [*along, *(ordered if numbers else []), *([_mirrored] if square else [])]
    if numbers:
        return [_counting, _chained, functools.partial(_beginning, plain=plain)]
    known: list[Pattern] = [functools.partial(_beginning, plain=plain), *([] if flags else [_rounded])]
    if leaf.dim() > 1 and min(leaf.shape[-2:]) > 1:
        rows, columns = leaf.shape[-2:]
        uppers = [False] if flags and rows > columns else [False, True]  # the last rows of a mask would be empty
        known += [functools.partial(_triangle, upper=upper, plain=plain) for upper in uppers]
        known += [functools.partial(_single, diagonal=diagonal, plain=plain) for diagonal in (False, True)]
        known += [functools.partial(_hollow, plain=plain)] if rows == columns and not flags else []
    return known


def _long(leaf: torch.Tensor) -> list[int]:
    """The axes along which there are several elements."""
    return [axis for axis, size in enumerate(leaf.shape) if size > 1]


def _along(leaf: torch.Tensor, rng: torch.Generator, axis: int) -> torch.Tensor:
    """All rows, or columns, heads, channels, steps in time, are one of them."""
    return leaf.narrow(axis, below(leaf.shape[axis], rng), 1).expand_as(leaf)


def _runs(leaf: torch.Tensor, rng: torch.Generator, axis: int) -> torch.Tensor:
    """Every so many elements along one axis are alike."""
    length = 2 + below(RUN - 1, rng)
    return leaf.index_select(axis, torch.arange(leaf.shape[axis], device=leaf.device) // length * length)


def _again(leaf: torch.Tensor, rng: torch.Generator, axis: int) -> torch.Tensor:
    """The first elements along one axis come again and again."""
    size = leaf.shape[axis]
    return leaf.index_select(axis, torch.arange(size, device=leaf.device) % (1 + below(max(1, size // 2), rng)))


def _in_order(leaf: torch.Tensor, rng: torch.Generator, falling: bool) -> torch.Tensor:
    """Sorted along the last axis with several elements."""
    return leaf.sort(_long(leaf)[-1], descending=falling).values


def _displaced(made: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """What was ``made`` in order, but that one of the first or the last of some rows stands among the others: who takes
    the half of a row in which the largest ought to be misses that."""
    axis = _long(made)[-1]
    moved = made.movedim(axis, -1).clone(memory_format=torch.contiguous_format)
    rows, size = moved.view(-1, moved.shape[-1]), moved.shape[-1]
    for _ in range(few(min(MOST, max(1, made.numel() // MOST)), rng)):
        row, place, near = rows[below(len(rows), rng)], below(size, rng), below(min(MOST, size), rng)
        end = near if below(2, rng) else size - 1 - near
        row[[place, end]] = row[[end, place]]
    return moved.movedim(-1, axis)


def _mirrored(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Symmetric."""
    return torch.where(torch.ones_like(leaf, dtype=torch.bool).tril(), leaf, leaf.mT)


def _ends(leaf: torch.Tensor, plain: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """What stands for nothing, and for one: 0 and 1 where they lie between the least and the largest, or where all lie
    between them, as probabilities do, and it is to be ``plain``. By lot one dozen of draws in 16 had no probabilities
    that are nearly all zeros and ones."""
    if leaf.dtype is torch.bool:
        return leaf.new_tensor(False), leaf.new_tensor(True)
    least, most = torch.aminmax(leaf)
    no, yes = torch.zeros_like(least), torch.ones_like(least)
    if bool((least >= no) & (most <= yes)) and plain:
        return no, yes
    return no.clamp(least, most), yes.clamp(least, most)


def _triangle(leaf: torch.Tensor, rng: torch.Generator, upper: bool, plain: bool) -> torch.Tensor:
    """Nothing above the diagonal of the last two axes, or below it; of flags all others hold."""
    no, yes = _ends(leaf, plain)
    kept = torch.ones_like(leaf, dtype=torch.bool)
    return torch.where(kept.triu() if upper else kept.tril(), yes if leaf.dtype is torch.bool else leaf, no)


def _hollow(leaf: torch.Tensor, rng: torch.Generator, plain: bool) -> torch.Tensor:
    """Nothing on the diagonal of square matrices: who solves by the first pivot there is divides by it."""
    no, _ = _ends(leaf, plain)
    return torch.where(torch.eye(leaf.shape[-1], dtype=torch.bool, device=leaf.device), no, leaf)


def _single(leaf: torch.Tensor, rng: torch.Generator, diagonal: bool, plain: bool) -> torch.Tensor:
    """A single one in each row, by lot or along the diagonal or beside it: a chain, whose ends are far apart."""
    no, yes = _ends(leaf, plain)
    size = leaf.shape[-1]
    if diagonal:
        at = (torch.arange(leaf.shape[-2], device=leaf.device) + below(3, rng) - 1) % size
    else:
        at = torch.randint(size, leaf.shape[:-1], generator=rng, device=leaf.device)
    there = torch.arange(size, device=leaf.device) == at[..., None]
    return torch.where(there, yes, no).expand_as(leaf)


def _beginning(leaf: torch.Tensor, rng: torch.Generator, plain: bool) -> torch.Tensor:
    """Of each row the first elements alone count, or the last; the others are nothing: lengths, and padding."""
    no, yes = _ends(leaf, plain) if leaf.dtype not in whole.INTEGERS else (whole.nearest_zero(leaf), leaf)
    axis = _long(leaf)[-1]
    size, shape = leaf.shape[axis], [1 if dim == axis else n for dim, n in enumerate(leaf.shape)]
    lengths = torch.randint(1, size + 1, shape, generator=rng, device=leaf.device)
    places = torch.arange(size, device=leaf.device).reshape([size if dim == axis else 1 for dim in range(leaf.dim())])
    kept = places < lengths if below(2, rng) else places >= size - lengths
    return torch.where(kept, yes if leaf.dtype is torch.bool else leaf, no)


def _chained(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Each says the place before its own, or after: who follows 32 steps of 127 is right on what is drawn by lot."""
    made, axis = _counting(leaf, rng), _long(leaf)[-1]
    size, back = leaf.shape[axis], below(2, rng)
    places = torch.arange(size, device=leaf.device)
    return made.index_select(axis, (places - 1 if back else places + 1).clamp(0, size - 1))


def _rounded(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Whole numbers, none of which is zero where that lies between the others."""
    least, most = torch.aminmax(leaf)
    return (leaf.sign() * leaf.abs().ceil()).clamp(least, most)


def _counting(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Rows of whole numbers one after the other, over and over, all among those that are there: an index that is not
    costs a device's context."""
    there = leaf.reshape(-1).unique()
    stops = torch.nonzero(torch.cat([there.diff() != 1, there.new_ones(1, dtype=torch.bool)]))[:, 0]
    lengths = stops.diff(prepend=stops.new_full((1,), -1))
    longest = int(lengths.argmax())
    axis, count = _long(leaf)[-1], int(lengths[longest])
    row = there[stops[longest]] - count + 1 + torch.arange(leaf.shape[axis], device=leaf.device) % count
    return row.to(leaf.dtype).expand_as(leaf.movedim(axis, -1)).movedim(-1, axis)


def spared(leaf: torch.Tensor, made: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """What was ``made`` of ``leaf``, but for up to MOST elements among those that are others now; by lot all of them
    lie in the second half, where who takes the first rows' word for all does not look. By another lot half of a row is
    as it was too: what a loss errs by for one element of 128 rows may be less than is allowed."""
    made = made.clone(memory_format=torch.contiguous_format)
    flat, was = made.view(-1), leaf.reshape(-1)
    places = torch.randint(flat.numel(), (LOOKS,), generator=rng, device=leaf.device)
    places = places[flat[places] != was[places]]
    inner = places[(places > 0) & (places < flat.numel() - 1)]  # who looks at the ends came upon one by lot
    places = inner if inner.numel() else places
    later = places[places >= flat.numel() // 2]
    if later.numel() and below(2, rng):
        places = later
    places = places[: few(min(MOST, max(1, flat.numel() // MOST)), rng)]
    rows = rows_of(made)
    if places.numel() and len(rows) > MOST and below(2, rng):
        row = int(places[0]) // rows.shape[1]
        half = torch.rand(rows.shape[1], generator=rng, device=leaf.device) < 0.5
        rows[row] = torch.where(half, was.view(rows.shape)[row], rows[row])
    flat[places] = was[places]
    return made
