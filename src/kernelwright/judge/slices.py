# SPDX-License-Identifier: Apache-2.0
"""Samples and channels that are zero in all inputs at once: an image that is black, a mask that is empty as its
prediction is, a channel that a ReLU has killed.

Zero rows are rows of one input. A division by the sum over an image, or by the sums of two inputs, never meets zero
there, and an epsilon that guards it could be left out. Nor does one by the largest number of a whole input, unless all
of it is zero; nor is a distance zero, or what rounding leaves of one below it, unless rows of two inputs are the same.
Complex inputs are changed as the two numbers they are made of.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.judge import (
    dealing,
    far,
    near_numbers,
    near_points,
    numerics,
    opposite,
    relations,
    selected,
    shared_numbers,
    whole,
)

EMPTY, EQUAL, COMMON, ALONG = "empty samples", "numbers alike", "numbers in common", "one moved along"
CANCELLING, WHOLE = "rows that cancel", 9
"""And the whole numbers of which they are made: less than this."""
ITSELF = "one tensor for all"
"""What ``one`` makes equal is one tensor, to the candidate: ``model(x, x, x)``."""
BLANK = {"blank samples": 0, "blank channels": 1}
"""Changes by the axis that they thin out."""
SHARE = 1 / 8
"""Of the slices along it those that are zero, and one at the least."""
SAME = 1 / 4
"""Of the rows of an input those that are rows of another, and one at the least."""
NEAREST, FURTHEST = 23, 2
"""By how many powers of two less than they are, at the most and the least, elements of rows are moved that are nearly
those of another input."""
ALONE = 1 / 2
"""Of the draws those in which all are but one: who leaves out what looks like zero in every second place finds out."""


def blanked(leaves: Sequence[torch.Tensor], rng: torch.Generator, axis: int) -> list[torch.Tensor]:
    """Some slices along an axis are zero, or all but one: the same ones in all floating inputs that are as long there
    as the largest."""
    sizes = {i: leaf.shape[axis] for i, leaf in enumerate(leaves) if leaf.is_floating_point() and leaf.dim() > axis}
    sizes = {i: size for i, size in sizes.items() if size > 1 and numerics.finite(leaves[i])}
    if not sizes:
        return list(leaves)
    count = sizes[max(sizes, key=lambda i: leaves[i].numel())]
    chance = torch.rand(count, generator=rng, device=leaves[0].device)
    least, most = float(chance.min()), float(chance.max())
    alone = bool(torch.rand((), generator=rng, device=leaves[0].device) < ALONE)
    blank = chance < most if alone and least < most else chance <= max(SHARE, least)
    return [_without(leaf, blank, axis) if sizes.get(index) == count else leaf for index, leaf in enumerate(leaves)]


def emptied(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Some samples are empty in all inputs at once: flags false, whole numbers the one nearest zero, where they may
    repeat; every second time floats are zero there, too. A mask and the prediction beside it have no element then, and
    who divides by those of their union, by nothing."""
    count = max((len(leaf) for leaf in leaves if leaf.dim() and not leaf.is_floating_point()), default=0)
    if count < 2:
        return list(leaves)
    chance = torch.rand(count, generator=rng, device=leaves[0].device)
    blank = chance <= max(SHARE, float(chance.min()))
    floats = rng.initial_seed() % 2 == 0  # in turn: by lot one proof in sixteen had it in none of four draws

    def fits(leaf: torch.Tensor) -> bool:
        if not leaf.dim() or len(leaf) != count or not leaf.numel():
            return False
        if leaf.is_floating_point():
            return bool(((leaf == 0) | (leaf == 1)).all()) or (floats and _plain(leaf))
        return leaf.dtype is torch.bool or whole.repeats(leaf)

    return [
        _without(leaf, blank, 0, whole.nearest_zero(leaf) if leaf.dtype in whole.INTEGERS else 0)
        if fits(leaf)
        else leaf
        for leaf in leaves
    ]


def _without(leaf: torch.Tensor, blank: torch.Tensor, axis: int, instead: torch.Tensor | int = 0) -> torch.Tensor:
    made = leaf.clone(memory_format=torch.contiguous_format)
    made.movedim(axis, 0)[blank.to(leaf.device)] = instead
    return made


def empty(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """All zero, but for single numbers, whole ones and what holds infinities."""
    return [torch.zeros_like(leaf) if _plain(leaf) else leaf for leaf in leaves]


def one_empty(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """One of several is zero, by lot: a bias that nobody trained yet, whose size a step of an optimiser divides by."""
    plain = [index for index, leaf in enumerate(leaves) if _plain(leaf)]
    chosen = plain[dealing.below(len(plain), rng)] if len(plain) > 1 else -1
    return [torch.zeros_like(leaf) if index == chosen else leaf for index, leaf in enumerate(leaves)]


def alike(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Some samples of inputs of one shape are those of the first of them, at the same place; else, where rows are as
    long, some rows are rows of it. As many are nearly so: drawn numbers are never as close as isclose, or a tolerance
    of 1e-3, asks for, and who took that for == passed."""
    out, firsts = list(leaves), dict[tuple[int, torch.dtype], torch.Tensor]()
    for index, leaf in enumerate(leaves):
        if not _plain(leaf) or leaf.numel() == 0:
            continue
        first = firsts.setdefault((leaf.shape[-1], leaf.dtype), leaf)
        if first is leaf:
            continue
        width = leaf[0].numel() if first.shape == leaf.shape and leaf.dim() > 1 else leaf.shape[-1]
        mine, theirs = leaf.reshape(-1, width), first.reshape(-1, width)
        chance = torch.rand(len(mine), generator=rng, device=leaf.device)
        places = torch.arange(len(mine), device=leaf.device) % len(theirs)
        same = (chance <= max(SAME, float(chance.min())))[:, None]
        near = (chance >= min(1 - SAME, float(chance.max())))[:, None]
        if len(mine) == 1 and bool(chance < ALONE):
            near = ~same
        others = theirs[places]
        made = torch.where(same, others, mine)
        out[index] = torch.where(near, _beside(others, rng), made).reshape(leaf.shape)
    return out


def one(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Inputs of one shape and type are all the first of them, as a model that is called with one tensor twice has
    them: who took a shorter way wherever they were equal as a whole passed, as some of their rows never were."""
    firsts = dict[tuple[torch.Size, torch.dtype], torch.Tensor]()
    return [firsts.setdefault((leaf.shape, leaf.dtype), leaf) if _plain(leaf) else leaf for leaf in leaves]


def handed(arguments: Any, leaves: Sequence[torch.Tensor], name: str) -> Any:
    """The skeleton of a call's arguments; where its variant has that ``name``, with the first of floating inputs that
    are equal in the place of each."""
    if name != ITSELF or not leaves:
        return arguments
    firsts = [next(i for i, other in enumerate(leaves) if other is leaf or _twin(other, leaf)) for leaf in leaves]

    def again(part: Any) -> Any:
        if isinstance(part, list):
            return list(map(again, part))
        if not isinstance(part, dict):
            return part
        if isinstance(part.get("t"), int):
            return {"t": firsts[part["t"]]}
        return {key: again(value) for key, value in part.items()}

    return again(arguments)


def _twin(one_: torch.Tensor, other: torch.Tensor) -> bool:
    like = one_.shape == other.shape and one_.dtype is other.dtype and one_.is_floating_point()
    return like and torch.equal(one_, other)


def along(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Inputs of one shape and type are the first of them, moved along an axis: a sequence that is late, an image beside
    where it was; by lot in some slices the other way round, or in another order, of whole numbers with one more here
    and one less there. Whole numbers only where they lie within what the others are and may repeat. Of two random
    sequences the way with the fewest edits lies near the diagonal, and who looked nowhere else passed."""
    out, firsts = list(leaves), dict[tuple[torch.Size, torch.dtype], torch.Tensor]()
    for index, leaf in enumerate(leaves):
        if not leaf.dim() or leaf.shape[-1] < 2:
            continue
        if not (_plain(leaf) or (leaf.dtype in whole.INTEGERS and not whole.in_place(leaf) and whole.repeats(leaf))):
            continue
        first = firsts.setdefault((leaf.shape, leaf.dtype), leaf)
        if first is leaf:
            continue
        axes = [axis for axis in range(max(1, leaf.dim() - 2), leaf.dim()) if leaf.shape[axis] > 1] or [leaf.dim() - 1]
        axis = axes[int(torch.randint(len(axes), (), generator=rng, device=leaf.device))]
        by = 1 + int(torch.randint(leaf.shape[axis] - 1, (), generator=rng, device=leaf.device))
        made = first.roll(by, axis)
        if torch.randint(2, (), generator=rng, device=leaf.device):
            made = _in_other_order(first, made, axis, rng)
        if leaf.dtype in whole.INTEGERS:
            low, high = torch.aminmax(leaf)
            made = torch.where((made >= low) & (made <= high), made, leaf)
        out[index] = made
    return out


def _in_other_order(first: torch.Tensor, moved: torch.Tensor, axis: int, rng: torch.Generator) -> torch.Tensor:
    """``moved``, and slices along an axis that hold the same as ``first`` otherwise: who compares what they hold, or
    what it adds up to, says that one is the other moved."""
    lines = [1 if dim == axis else size for dim, size in enumerate(first.shape)]
    how = torch.randint(6, lines, generator=rng, device=first.device)
    order = torch.rand(first.shape, generator=rng, device=first.device).argsort(axis)
    mixed = first.gather(axis, order)
    if first.dtype in whole.INTEGERS and first.shape[axis] > 2:
        places = torch.rand(first.shape, generator=rng, device=first.device).argsort(axis)
        step = (places == 0).to(first.dtype) - (places == 1).to(first.dtype)
        mixed = torch.where(how == 0, mixed + step, mixed)
    return torch.where(how < 2, mixed, torch.where(how == 2, first.flip(axis), moved))


def equal(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Some whole numbers are those of the first input of one shape and type, at the same place, where they lie within
    what the others are: an edge from a node to itself, a prediction that is right. Of many classes none was drawn.
    Numbers that are all different, as places to write to are, stay so."""
    out, firsts = list(leaves), dict[tuple[torch.Size, torch.dtype], torch.Tensor]()
    for index, leaf in enumerate(leaves):
        if leaf.dtype not in whole.INTEGERS or leaf.numel() < 2 or whole.in_place(leaf):
            continue
        first = firsts.setdefault((leaf.shape, leaf.dtype), leaf)
        if first is leaf:
            continue
        low, high = torch.aminmax(leaf)
        fits = (first >= low) & (first <= high)
        if not whole.repeats(leaf):
            fits &= ~torch.isin(first, leaf) & whole.first_of_each(first)
        chance = torch.rand(leaf.shape, generator=rng, device=leaf.device).masked_fill(~fits, 2.0)
        out[index] = torch.where(fits & (chance <= max(SAME, float(chance.min()))), first, leaf)
    return out


def _beside(rows: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Every element moved by a power of two of itself, the least of a row drawn for it; none leaves the range of all,
    which may be that of probabilities."""
    span = NEAREST - FURTHEST + 1
    first = torch.randint(span, (len(rows), 1), generator=rng, device=rows.device)
    below = (torch.rand(rows.shape, generator=rng, device=rows.device) * (span - first)).long()
    sign = 1 - 2 * torch.randint(2, rows.shape, generator=rng, device=rows.device)
    step = torch.ldexp(sign.to(torch.float64), -(FURTHEST + first + below))
    return (rows * (1 + step)).to(rows.dtype).clamp(*torch.aminmax(rows))


def _plain(leaf: torch.Tensor) -> bool:
    return leaf.is_floating_point() and leaf.numel() > 1 and numerics.finite(leaf)


def real(leaf: torch.Tensor) -> torch.Tensor:
    """A complex tensor as floats, rows of it as rows of twice the length; anything else as it is."""
    if not leaf.is_complex():
        return leaf
    parts = torch.view_as_real(leaf.resolve_conj())
    return parts.reshape(*leaf.shape[:-1], -1) if leaf.dim() else parts


def again(before: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """What ``real`` made of ``before``, changed, as complex numbers."""
    if not before.is_complex():
        return changed
    return torch.view_as_complex(changed.reshape(*before.shape, 2).contiguous())


def cancelling(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Rows of floats, all or some, hold small whole numbers and as many of the other sign: in any order their sum is
    zero, which of random numbers it never is."""
    out = list(leaves)
    for index, leaf in enumerate(leaves):
        if not (_plain(leaf) and leaf.dim() and leaf.shape[-1] > 1):
            continue
        size, device = leaf.shape[-1], leaf.device
        half = torch.randint(1, WHOLE, (*leaf.shape[:-1], size // 2), generator=rng, device=device)
        made = torch.cat([half, -half, half[..., :1] * 0][: 2 + size % 2], -1)
        made = made.gather(-1, torch.rand(leaf.shape, generator=rng, device=device).argsort(-1)).to(leaf.dtype)
        share = 1.0 if torch.randint(2, (), generator=rng, device=device) else 0.5
        chance = torch.rand((*leaf.shape[:-1], 1), generator=rng, device=device)
        out[index] = torch.where(chance < share, made, leaf)
    return out


CHANGES: dict[str, Callable[[Sequence[torch.Tensor], torch.Generator], list[torch.Tensor]]] = {
    **{name: functools.partial(blanked, axis=axis) for name, axis in BLANK.items()},
    "blank inputs": empty,
    "one blank input": one_empty,
    "rows alike": alike,
    "one for all": one,
    ALONG: along,
    EQUAL: equal,
    COMMON: shared_numbers.shared,
    near_numbers.NEAR: near_numbers.near,
    **relations.CHANGES,
    **selected.CHANGES,
    near_points.CLOSE: near_points.close,
    far.WAYS: far.ways,
    far.LINE: far.line,
    far.LANES: far.lanes,
    far.LEVELS: far.levels,
    far.ZEROS: far.zeros,
    far.TIGHT: far.tight,
    CANCELLING: cancelling,
    **opposite.CHANGES,
    EMPTY: emptied,
}
"""Changes of all inputs together, by name."""
