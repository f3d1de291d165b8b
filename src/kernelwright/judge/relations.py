# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that belong together, as numbers by lot from a wide range never do: one the sum of two others, a
multiple and a half of another, all its bits turned; rows at either end of what they hold, or of their type; rows that a
checksum does not tell apart.

Who compares a sum in one type too narrow, takes ``<`` for ``<=`` or rounds halves up is wrong there alone. Of three
numbers below 2^45 no two by lot add up to the third.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.judge import near_numbers, whole
from kernelwright.judge.dealing import below
from kernelwright.judge.near_numbers import Numbers

RELATED, HASHED, ENDS, STEEP = "numbers that belong together", "rows of one sum", "rows at their ends", "steep rows"
MOST, SHARE = 4, 3 / 4
"""Members of a relation, at the most, and of their elements those that are made so."""
NEARLY_ALL = 0.98
"""Of a type's range what is drawn where all of it may come."""
BELOW = 8
"""Times the usual distance of numbers by lot from which on the least of them may be 1."""
WIDE = 1 << 61
"""Numbers above which sums of two may not be held by 64 bits."""
SUMS = (0, 4, 7, 11), (1, 2, 9, 10)
"""Two sets with the same sum, sum of squares and sum of cubes (E. Prouhet 1851; G. Tarry and E. Escott 1910)."""
BASES = (1, 31, 33, 37, 131, 257)
"""By which strings are hashed, 1 for a plain sum."""


def related(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Inputs of whole numbers of one shape, or the places of an axis of few. What lies in order stays as it is, and
    none leaves the range of what it was."""
    out = list(leaves)
    for group in _together(leaves, rng):
        first, axis = leaves[group[0]], _axis(leaves[group[0]], rng)
        if len(group) > 1:
            for index, leaf in zip(group, _joined([leaves[i] for i in group], rng), strict=True):
                out[index] = leaf
        elif axis is not None:
            out[group[0]] = torch.stack(_joined(first.unbind(axis), rng), axis)
    return out


def hashed(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Rows of one input, or one half of the rows, are those of another but for numbers whose sum or hash stays."""
    out = list(leaves)
    for group in _together(leaves, rng):
        first = leaves[group[0]]
        if len(group) > 1:
            out[group[0]], out[group[1]] = _hashed(first, leaves[group[1]], rng)
        elif first.dim() > 1:
            half = len(first) // 2
            out[group[0]] = torch.cat([*_hashed(first[:half], first[half : 2 * half], rng), first[2 * half :]])
    return out


def ends(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Rows of the least number, the largest, both in turn, or on a line; of what fills its type some are its ends."""
    return [(_typed if _full(leaf) else _at_ends)(leaf, rng) if near_numbers.dense(leaf) else leaf for leaf in leaves]


def steep(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Most rows hold Fibonacci's numbers, as far as they go, in any order: what is built of such weights is as
    deep as it can be."""
    return [_steep(leaf, rng) if near_numbers.dense(leaf) else leaf for leaf in leaves]


CHANGES = {RELATED: related, HASHED: hashed, ENDS: ends, STEEP: steep}
"""By name what becomes of all inputs of whole numbers."""


def _together(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[list[int]]:
    """Inputs of one shape, some of them by lot where there are many, or alone."""
    shapes: dict[torch.Size, list[int]] = {}
    for index, leaf in enumerate(leaves):
        if near_numbers.dense(leaf):
            shapes.setdefault(leaf.shape, []).append(index)
    for group in shapes.values():
        while len(group) > MOST:
            group.pop(below(len(group), rng))
    return list(shapes.values())


def _axis(leaf: Numbers, rng: torch.Generator) -> int | None:
    """One of those that have two to four places."""
    found = [dim for dim, size in enumerate(leaf.shape) if 2 <= size <= MOST and leaf.dim() > 1]
    return found[below(len(found), rng)] if found else None


def _joined(members: Sequence[Numbers], rng: torch.Generator) -> list[Numbers]:
    """One of them becomes what the others say, or several do, each element or each row in another way."""
    order = torch.randperm(len(members), generator=rng, device=members[0].device).tolist()
    if len(members) == MOST and below(4, rng):  # the first two are of one product, mostly
        order = [0, 2, 3, 1] if below(2, rng) else [2, 0, 1, 3]
    wide = [members[place].to(torch.int64) for place in order]
    done, held = list(members), torch.stack([one.abs() < WIDE for one in wide[1:]]).all(0)
    shape, device = members[0].shape, members[0].device
    chosen = held & (torch.rand(shape, generator=rng, device=device) < SHARE)
    high = int(wide[0].max())
    if below(4, rng) == 0:  # half a square: with twice the root it is below a square by one
        root = (torch.rand(shape, generator=rng, device=device, dtype=torch.float64) * max(2 * high, 0) ** 0.5).long()
        made = [root * root // (1 + root % 2), root]
    else:
        ways = torch.stack([*_of_one(wide[1], high, rng), *(_of_two(wide[1], wide[2], rng) if len(wide) > 2 else ())])
        lines = (1, *shape[:-1], 1) if len(shape) > 1 and below(2, rng) else (1, *shape)
        which = torch.randint(len(ways), lines, generator=rng, device=device)
        made = [ways.gather(0, which.expand(1, *shape))[0]]
    if len(members) == MOST:  # k * k beside (k + 1) * (k - 1), and 2 * k beside their sum
        four = torch.rand(shape, generator=rng, device=device) < SHARE
        made = [*made, *wide[len(made) :]]
        made[:3] = [
            torch.where(four, k, one) for k, one in zip((wide[3], wide[3] + 1, wide[3] - 1), made, strict=False)
        ]
    for place, value, old in zip(order, made, wide, strict=False):
        done[place] = near_numbers.kept(members[place], torch.where(chosen, value, old))
    return done


def _of_one(value: Numbers, high: int, rng: torch.Generator) -> list[Numbers]:
    """Its bits turned, its negative, twice it and half of it; a multiple, and half of it or one less of it more."""
    room = torch.div(high, value.abs().clamp(min=1), rounding_mode="floor").clamp(min=1)
    few = torch.rand(value.shape, generator=rng, device=value.device, dtype=torch.float64)
    multiple = value * torch.minimum((few * room).long() + 1, room)
    half = torch.div(value, 2, rounding_mode="floor")
    return [~value, -value, 2 * value, half, value, multiple, multiple - half, multiple - 1]


def _of_two(one: Numbers, other: Numbers, rng: torch.Generator) -> list[Numbers]:
    """Their sum and difference, and what lies on a line with them, or one beside it."""
    beside = torch.randint(-1, 2, one.shape, generator=rng, device=one.device)
    line = 2 * other - one
    return [one + other, one + other, one - other, line, line + beside, line + beside]


def _at_ends(leaf: Numbers, rng: torch.Generator) -> Numbers:
    """Half of the rows hold the least number throughout, the largest, or both in turn, some lie on a line."""
    low, high = (int(end) for end in torch.aminmax(leaf))
    size, lines = leaf.shape[-1], (*leaf.shape[:-1], 1)
    places = torch.arange(size, device=leaf.device)
    how = torch.randint(8, lines, generator=rng, device=leaf.device)
    top = torch.where(how < 2, how == 0, (places + how) % 2 == 0)
    off = torch.arange(leaf.numel(), device=leaf.device).view(leaf.shape) * (not whole.repeats(leaf))  # all different
    ends = torch.where(top, high - off, low + off)
    step = torch.randint(1 + (min(high - low, WIDE) // size), lines, generator=rng, device=leaf.device)
    line = high - step * places - torch.randint(3, leaf.shape, generator=rng, device=leaf.device)
    made = near_numbers.kept(leaf, torch.where(how < 4, ends, line))
    return torch.where(how < 6, made, leaf)


def _full(leaf: Numbers) -> bool:
    ends, (low, high) = torch.iinfo(leaf.dtype), (int(end) for end in torch.aminmax(leaf))
    return leaf.itemsize > 1 and low <= NEARLY_ALL * ends.min and high >= NEARLY_ALL * ends.max


def _typed(leaf: Numbers, rng: torch.Generator) -> Numbers:
    """Some are the ends of their type, or have all bits set or none: wherever, or throughout a row."""
    numbers = torch.iinfo(leaf.dtype)
    ends = torch.tensor([numbers.min, numbers.max, -1, 0], dtype=leaf.dtype, device=leaf.device)
    which = torch.randint(len(ends), leaf.shape, generator=rng, device=leaf.device)
    rows = torch.rand((*leaf.shape[:-1], 1), generator=rng, device=leaf.device) < SHARE / 2
    rows = rows & (leaf.dim() > 1)
    which = torch.where(rows, which[..., :1], which)
    return torch.where(rows | (torch.rand(leaf.shape, generator=rng, device=leaf.device) < SHARE), ends[which], leaf)


def _steep(leaf: Numbers, rng: torch.Generator) -> Numbers:
    low, high = (int(end) for end in torch.aminmax(leaf))
    room = 0 < low <= BELOW * (high - low) // leaf.numel()
    known = [1, 2]
    while known[-1] + known[-2] <= high:
        known.append(known[-1] + known[-2])
    known = [number for number in known if room or low <= number]
    size = leaf.shape[-1]
    if not known or not whole.repeats(leaf):
        return leaf
    numbers = torch.tensor((known * size)[-size:], dtype=leaf.dtype, device=leaf.device)
    order = torch.rand(leaf.shape, generator=rng, device=leaf.device).argsort(-1)
    chosen = torch.rand((*leaf.shape[:-1], 1), generator=rng, device=leaf.device) < SHARE
    return torch.where(chosen, numbers[order], leaf)


def _hashed(one: Numbers, two: Numbers, rng: torch.Generator) -> tuple[Numbers, Numbers]:
    """Rows of the second are those of the first but for two neighbours, or four numbers, whose sum or hash stays."""
    if one.dim() == 0 or not one.numel() or one.shape[-1] < len(SUMS[0]):
        return one, two
    first, second = one.to(torch.int64), two.to(torch.int64)
    shape = first.shape
    lines = (*shape[:-1], 1)
    at = torch.randint(shape[-1] - 1, lines, generator=rng, device=first.device)
    base = torch.tensor(BASES, device=first.device)
    by = base[torch.randint(len(BASES), lines, generator=rng, device=first.device)]
    other = first.scatter_add(-1, at, torch.ones_like(by)).scatter_add(-1, at + 1, -by)
    low, high = (int(end) for end in torch.aminmax(second))
    room = min(high - low, WIDE) - max(SUMS[0])
    if room > 0:  # in half of the rows
        places = torch.rand(shape, generator=rng, device=first.device).argsort(-1)[..., : len(SUMS[0])]
        start = low + torch.randint(room, lines, generator=rng, device=first.device)
        mine, theirs = (start + torch.tensor(numbers, device=first.device) for numbers in SUMS)
        sums = torch.rand(lines, generator=rng, device=first.device) < SHARE * SHARE
        other = torch.where(sums, first.scatter(-1, places, theirs), other)
        first = torch.where(sums, first.scatter(-1, places, mine), first)
    least, most = torch.aminmax(two)
    fits = ((other >= least) & (other <= most)).all(-1, keepdim=True)
    fits &= torch.rand(fits.shape, generator=rng, device=first.device) < SHARE
    mine = near_numbers.kept(one, torch.where(fits, first, one.to(torch.int64)))
    return mine, near_numbers.kept(two, torch.where(fits, other, second))
