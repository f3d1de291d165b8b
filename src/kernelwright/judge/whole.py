# SPDX-License-Identifier: Apache-2.0
"""Changes of inputs that make no new numbers: whole numbers, and masks, out of the values that they hold anyway.

Nobody says which whole numbers a reference accepts, or whether they may repeat or must be in order. So no value comes
that was not drawn, none repeats that did not, in a row neither, and what is sorted stays (lengths, borders of
segments), but for 0, 1, 2, ... (positions).
"""

from __future__ import annotations

import math

import torch

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
LEAST_SORTED = 3
"""Numbers of a row that are in order by chance too seldom to matter: a reference searches in some input as it is."""
LUCK = -7.0
"""The logarithm of the chance below which it is none that no row of whole numbers holds one of them twice."""
LEAST_PLACED = 8
"""Numbers along an axis that all lie at or before their own place by chance too seldom to matter."""
SKEWED = 7 / 8
"""Share of whole numbers that become one and the same: counters and buckets made for even shares overflow."""
ALL_LARGEST = 1 / 2
"""Share of rows that become the largest number throughout: sums that are narrower than the reference's overflow. Of
2048 products of bytes by lot the sum stays below 2^24, where float32 is exact, and 128 * 128 twice is never met."""
ALL_LEAST = 1 / 4
"""Share of rows that become the number nearest zero throughout. Of 256 numbers that are 0 or 1 all are zero in no draw,
and who divides by their sum unguarded passed."""
LINES = ("mask rows", "mask columns", "mask samples")
"""Lines of a mask that are empty or full: along the last axis that has several elements, along each of the others, and
along all but the first. In masks of one number per step (8, 32, 1), or of images (8, 16, 16), none that a reference
sums over was ever empty, as long as rows were those of the last axis."""
EMPTIED = ("empty masks", "full masks", "masks of one")
"""Masks of which no element counts, or all, or a single one. A sum over a whole batch never met an empty one while some
of its lines were full, and who divides it by their number unguarded passed; so did a variance, by that number less one.
"""
FAR, LEAST_MASK = -9000.0, 8
"""What is added to scores instead of -inf is as far below zero (-10000, or the least number there is, -9984 in
bfloat16), in a mask of so many elements. Negated it is no mask, and who asks where it is below a half of that was
refused."""
ADDED = {"added mask rows": "mask rows", "added mask samples": "mask samples"}
"""Lines of masks of 0 and -inf that are empty or full, as those of booleans: a softmax of nothing is NaN, and who left
out what a reference makes of that passed."""
OTHERS = 1 / 4
"""Share of zeros or ones (or flags) that become the other, where an input holds nothing else in any draw."""

FORWARD = 1 / 2
"""Chance that borders that are the same in every draw move on, and not back: the last segment is then empty, which
none ever was."""


def far(leaf: torch.Tensor) -> float:
    """The finite number that a mask that is added holds besides zeros; 0.0 where it is none."""
    if not leaf.is_floating_point() or leaf.itemsize < 2 or leaf.numel() < LEAST_MASK:  # float8 has no order
        return 0.0
    some = leaf.reshape(-1)[:LEAST_MASK]
    if not bool(((some == 0) | (some <= FAR)).all()):  # almost all others in one look
        return 0.0
    low = float(leaf.min())
    whole = -math.inf < low <= FAR and bool(((leaf == 0) | (leaf == low)).all()) and bool((leaf == 0).any())
    return low if whole else 0.0


def is_mask(leaf: torch.Tensor) -> bool:
    """Whether a floating tensor holds 0 and -inf alone, some of each: added to scores, it says which of them count."""
    if not leaf.is_floating_point() or leaf.dim() == 0 or not leaf.numel():
        return False
    hidden = leaf == -math.inf
    return bool(hidden.any()) and bool((hidden | (leaf == 0)).all()) and not bool(hidden.all())


def redrawn(mask: torch.Tensor, rng: torch.Generator, lines: str = "") -> torch.Tensor:
    """Of every row of such a mask other elements count, as many as before: no row becomes empty, but of ``ADDED``."""
    if lines in ADDED:
        counts = redrawn_booleans(mask == 0, rng, ADDED[lines])
        return torch.zeros_like(mask).masked_fill_(~counts, -math.inf)
    order = torch.rand(mask.shape, generator=rng, device=mask.device).argsort(-1)
    return mask.gather(-1, order)


def redrawn_booleans(leaf: torch.Tensor, rng: torch.Generator, lines: str = "") -> torch.Tensor:
    """A mask of the same density, some lines of which (``LINES``) are empty or full, or all of it (``EMPTIED``); a
    single flag is the other one."""
    if lines and leaf.dim() == 0:
        return ~leaf
    if lines in EMPTIED:
        made = torch.full_like(leaf, lines == "full masks", memory_format=torch.contiguous_format)
        at = int(torch.randint(leaf.numel(), (), generator=rng, device=leaf.device))
        made.view(-1)[at] |= lines == "masks of one"
        return made
    density = float(leaf.to(torch.float32).mean())
    made = torch.rand(leaf.shape, generator=rng, device=leaf.device) < density
    long = _long(leaf) or [*range(leaf.dim())][-1:]
    if lines == "mask rows":
        _set_lines(made, long[-1:], rng)
    elif lines == "mask samples" and len(long) > 1:
        _set_lines(made, long[1:], rng)
    elif lines == "mask columns" and len(long) > 1:
        crossing = torch.randperm(leaf.shape[long[-1]], generator=rng, device=leaf.device).tolist()
        for number, dim in enumerate(long[:-1]):  # side by side, or the full line of one would fill another's empty one
            _set_lines(made, [dim], rng, (long[-1], crossing[2 * number :]))
    return made


def _set_lines(
    mask: torch.Tensor, along: list[int], rng: torch.Generator, beside: tuple[int, list[int]] | None = None
) -> None:
    """One line along these axes becomes full and another empty; ``beside``: an axis that they do not go along, and the
    places on it that they lie at."""
    for number, value in enumerate((True, False)):
        index: list[int | slice] = []
        for dim, size in enumerate(mask.shape):
            at = int(torch.randint(size, (), generator=rng, device=mask.device))
            if beside is not None and dim == beside[0]:
                at = beside[1][number] if number < len(beside[1]) else at
            index.append(slice(None) if dim in along else at)
        mask[tuple(index)] = value


def _long(leaf: torch.Tensor) -> list[int]:
    """The axes along which there are several elements; a row lies along the last of them."""
    return [dim for dim, size in enumerate(leaf.shape) if size > 1]


def swapped(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Two elements that differ have changed places, and two of one row: who keeps the answers of rows by the sums of
    each would not find out else."""
    if leaf.numel() < 2 or leaf.dtype in INTEGERS and not may_move(leaf):
        return leaf
    made = leaf.clone(memory_format=torch.contiguous_format)
    if leaf.dtype not in INTEGERS or leaf.dim() < 2 or not differ(leaf):  # or a row would hold one of them twice
        exchange(made.view(-1), rng)
    rows = made.view(-1, leaf.shape[-1])
    others = torch.nonzero((rows == leaf.reshape(rows.shape)).all(1)).reshape(-1)
    if len(others):
        exchange(rows[int(others[int(torch.randint(len(others), (), generator=rng, device=leaf.device))])], rng)
    return made


def exchange(flat: torch.Tensor, rng: torch.Generator) -> None:
    """Two elements of a vector that differ change places, where there are such."""
    one = int(torch.randint(flat.numel(), (), generator=rng, device=flat.device))
    others = torch.nonzero(flat != flat[one]).reshape(-1)
    if not len(others):
        return
    other = int(others[int(torch.randint(len(others), (), generator=rng, device=flat.device))])
    flat[[one, other]] = flat[[other, one]]


def skewed(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Most elements are equal, where values repeat anyway; of those in order a stretch is, which leaves out others."""
    flat = leaf.reshape(-1)
    if leaf.dim() == 0 or flat.numel() == 0:
        return leaf
    unlike = len(flat.unique()) == flat.numel()
    if not may_move(leaf):
        return _stretch(leaf, rng) if leaf.dim() == 1 and (not unlike or _begins(leaf)) else leaf
    if unlike:
        return leaf
    if distinct(leaf):
        at = int(torch.randint(leaf.numel() // leaf.shape[-1], (), generator=rng, device=leaf.device))
        return _rows_alike(leaf, at, SKEWED, rng)
    one = flat[int(torch.randint(flat.numel(), (), generator=rng, device=leaf.device))]
    chosen = torch.rand(leaf.shape, generator=rng, device=leaf.device) < SKEWED
    return torch.where(chosen, one, leaf)


def _begins(leaf: torch.Tensor) -> bool:
    """Whether numbers that are all different are where segments begin: from zero on, in steps of no one size."""
    steps = leaf.diff()
    return bool(leaf[0] == 0) and bool((steps != steps[:1]).any())


def _stretch(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Numbers in order, most of them equal, the first and the last as they were: segments without elements, the first
    one among them every second time."""
    count = max(2, int((len(leaf) - 2) * SKEWED))
    if count >= len(leaf):
        return leaf
    start, first = (int(torch.randint(n, (), generator=rng, device=leaf.device)) for n in (len(leaf) - count, 2))
    start *= first
    made = leaf.clone()
    made[start : start + count] = leaf[start]
    return made


def largest(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Most elements, and all of some rows, are the one furthest from zero, where values repeat anyway."""
    flat = leaf.reshape(-1)
    if not repeats(leaf):
        return leaf
    low, high = torch.aminmax(flat)
    if distinct(leaf):
        return _rows_alike(leaf, int(_sums(leaf).argmax()), SKEWED, rng)
    chosen = torch.rand(leaf.shape, generator=rng, device=leaf.device) < SKEWED
    chosen |= _by_row(leaf, rng) < ALL_LARGEST
    return torch.where(chosen, low if -int(low) > int(high) else high, leaf)


def least(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """All of some rows, and of one at least, are the one nearest zero, where values repeat anyway."""
    if not repeats(leaf):
        return leaf
    if distinct(leaf):
        return _rows_alike(leaf, int(_sums(leaf).argmin()), ALL_LEAST, rng)
    chance = _by_row(leaf, rng)
    return torch.where(chance <= max(ALL_LEAST, float(chance.min())), nearest_zero(leaf), leaf)


def nearest_zero(leaf: torch.Tensor) -> torch.Tensor:
    """That one of its elements."""
    flat = leaf.reshape(-1)
    return flat[flat.double().abs().argmin()]


def repeats(leaf: torch.Tensor) -> bool:
    """Whether whole numbers may repeat: some do, and they lie in no order."""
    return may_move(leaf) and len(leaf.reshape(-1).unique()) < leaf.numel()


def differ(values: torch.Tensor) -> bool:
    """Whether no row of whole numbers holds one of them twice, by more than luck: permutations, places that were
    chosen."""
    rows = values.reshape(-1, values.shape[-1]).to(torch.int64)
    if rows.shape[-1] < 2 or not rows.numel() or bool(_doubled(rows[:1]).any()):  # almost all others in one look
        return False
    if bool(_doubled(rows).any()):
        return False
    most = max(int(rows.max()) - int(rows.min()) + 1, rows.shape[-1])
    return len(rows) * sum(math.log1p(-number / most) for number in range(rows.shape[-1])) < LUCK


def _doubled(rows: torch.Tensor) -> torch.Tensor:
    """Which rows hold a number twice."""
    return (rows.sort(-1).values.diff(dim=-1) == 0).any(-1)


def distinct(leaf: torch.Tensor) -> bool:
    """Whether these are rows, of no one of which a number may come twice: a batch of permutations repeats its numbers,
    each row none."""
    return leaf.dim() > 1 and leaf.numel() > leaf.shape[-1] and differ(leaf)


def kept_apart(before: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Changed whole numbers; rows of those that are ``distinct`` are what they were, where a number would come twice.

    Doubles in rows of permutations, and of indices that are written to, left places that no program had written:
    honest ones that invert a permutation by a scatter were refused in 6 of 6 verdicts.
    """
    if before.dtype not in INTEGERS or changed is before or before.shape != changed.shape or not distinct(before):
        return changed
    ordered = changed.sort(-1).values  # what is none of them, a padding of -1 that is looked for, may come again
    twice = (ordered[..., 1:] == ordered[..., :-1]) & torch.isin(ordered[..., 1:], before)
    return torch.where(twice.any(-1)[..., None], before, changed)


def _sums(leaf: torch.Tensor) -> torch.Tensor:
    """Of each row, of how far its numbers are from zero."""
    return leaf.reshape(-1, leaf.shape[-1]).double().abs().sum(-1)


def _rows_alike(leaf: torch.Tensor, one: int, share: float, rng: torch.Generator) -> torch.Tensor:
    """A share of the rows are the same as one of them: as skewed as numbers become that repeat in no row."""
    rows = leaf.reshape(-1, leaf.shape[-1])
    chosen = torch.rand(len(rows), generator=rng, device=leaf.device)
    chosen = chosen <= max(share, float(chosen.min()))
    return torch.where(chosen[:, None], rows[one], rows).reshape(leaf.shape)


def _by_row(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A number from 0 to 1 for every row."""
    row = (_long(leaf) or [leaf.dim() - 1])[-1]
    shape = [1 if dim == row else size for dim, size in enumerate(leaf.shape)]
    return torch.rand(shape, generator=rng, device=leaf.device)


def renumbered(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Whole numbers that are the same in every draw, made others: a mask of ones, types that are all zero, lengths that
    are full, segments that are even. A program that does not read them is right as long as nobody changes them.

    None becomes larger, so an index stays inside, but zeros: on a device an index that is not there costs the context.
    What is in order stays so, with its ends; what begins at zero (borders of segments) may move on, none past the last.
    Negative numbers mean something else, and stay, but where all are the last place of a sequence, -1, or where they
    lie in order, as steps to neighbours: those become half as large.
    Flags that are all alike become the other here and there, some of every row stay.
    """
    if leaf.dtype is torch.bool:
        return _flags(leaf, rng)
    if not leaf.numel():
        return leaf
    least, most = int(leaf.min()), int(leaf.max())
    chance = torch.rand(leaf.shape, generator=rng, device=leaf.device, dtype=torch.float64)
    if least < 0:
        if leaf.dim() == 1 and least < most and bool((leaf[1:] > leaf[:-1]).all()):
            return torch.div(leaf, 2, rounding_mode="trunc")
        return torch.where(chance <= max(OTHERS, float(chance.min())), 0, leaf) if least == most == -1 else leaf
    if bool((leaf == most).all()):
        if most < 2:
            changes = chance <= max(OTHERS, float(chance.min()))
            return leaf if most == 0 and leaf.device.type != "cpu" else torch.where(changes, 1 - most, leaf)
        return (1 + chance * (most - (leaf.numel() == 1))).floor().to(leaf.dtype)
    steps = leaf.to(torch.int64).diff(dim=-1) if leaf.dim() == 1 else leaf.new_zeros(0)
    if not len(steps) or bool((steps < 0).any()) or bool((steps == 1).all()):
        return leaf
    if len(steps) > 1 and leaf[0] == 0 and float(chance[0]) < FORWARD:
        further = (chance[1:-1] * (steps[1:] + 1)).floor().to(leaf.dtype)
        further[-1] = leaf[-1] - leaf[-2]
        return torch.cat([leaf[:1], leaf[1:-1] + further, leaf[-1:]])
    back = (chance[1:] * (steps + 1)).floor().to(leaf.dtype)
    back[-1] = 0
    return torch.cat([leaf[:1], leaf[1:] - back])


def _flags(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A mask in which all elements count (or none does), of which others count; a row is along the last axis there is.

    One of every row stays what it was: a softmax of nothing at all is NaN, and a reference that has one refuses.
    """
    long = _long(leaf)
    if not long or bool(leaf.any()) != bool(leaf.all()):
        return leaf
    chance = torch.rand(leaf.shape, generator=rng, device=leaf.device)
    turned = chance <= max(OTHERS, float(chance.min()))
    return leaf ^ turned.scatter(long[-1], chance.argmax(long[-1], keepdim=True), False)


def moved(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """The same elements, moved on along all dimensions: along one of them by lot two draws of 24 x 16 were moved alike
    so often that 6 of 100 proofs granted a program that did not look at this input again."""
    long = _long(leaf)
    if not long or leaf.dtype in INTEGERS and not may_move(leaf):
        return leaf
    steps = [int(torch.randint(leaf.shape[dim], (), generator=rng, device=leaf.device)) for dim in long]
    return leaf.roll(steps, long)


def in_place(leaf: torch.Tensor) -> bool:
    """Whether these are numbers that lie in order, as lengths and borders do."""
    return leaf.dtype in INTEGERS and leaf.dim() == 1 and not may_move(leaf)


def first_of_each(numbers: torch.Tensor) -> torch.Tensor:
    """Where a number stands that is not before."""
    flat = numbers.reshape(-1)
    ordered, order = flat.sort(stable=True)
    new = torch.ones_like(flat, dtype=torch.bool)
    new[order[1:]] = ordered[1:] != ordered[:-1]
    return new.reshape(numbers.shape)


def may_move(leaf: torch.Tensor) -> bool:
    """Whether whole numbers may come in another order: those that are in none, and 0, 1, 2, ..."""
    if leaf.dim() == 0 or not leaf.numel():
        return False
    steps = leaf.to(torch.int64).diff(dim=-1)
    return bool((steps < 0).any()) or bool((steps == 1).all())


CHANGES = {"near-duplicate": swapped, "skewed": skewed, "largest": largest, "least": least}
"""What variants make of whole numbers, by name."""


def changes(leaf: torch.Tensor) -> bool:
    """Whether these numbers can be ``renumbered``."""
    if leaf.dtype not in (*INTEGERS, torch.bool):
        return False
    rng = torch.Generator(leaf.device).manual_seed(1)
    return any(not torch.equal(leaf, renumbered(leaf, rng)) for _ in range(4))


def in_place_of(before: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Changed whole numbers that are all at or before their own place, or all at or after it, where they were: parents
    of nodes, and children. Sequences by such a rule mean something else, or nothing, where one points the other way."""
    if before.dtype not in INTEGERS or changed is before or not before.dim() or before.shape != changed.shape:
        return changed
    for axis in {0, before.dim() - 1}:
        count = before.shape[axis]
        if count < LEAST_PLACED:
            continue
        places = torch.arange(count, device=before.device)
        places = places.view([count if dim == axis else 1 for dim in range(before.dim())])
        steps = places - before.to(torch.int64)
        low, high = (int(end) for end in torch.aminmax(before))
        later, earlier = steps.narrow(axis, 1, count - 1), steps.narrow(axis, 0, count - 1)  # but the root, the last
        if bool((steps >= 0).all()) and high > 1:
            least = int(bool((later > 0).all()))
            return torch.minimum(changed.to(torch.int64), (places - least).clamp(min=low)).to(changed.dtype)
        if bool((steps <= 0).all()) and high < count:
            least = int(bool((earlier < 0).all()))
            return torch.maximum(changed.to(torch.int64), (places + least).clamp(max=high)).to(changed.dtype)
    return changed


def in_order(before: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Changed floats, sorted along their last dimension where they were before, in all rows: of those that are not, a
    binary search finds anything."""
    if not before.is_floating_point() or not before.dim() or before.shape[-1] < LEAST_SORTED or changed is before:
        return changed
    return changed.sort().values if bool((before[..., 1:] >= before[..., :-1]).all()) else changed
