# SPDX-License-Identifier: Apache-2.0
"""Inputs in which something has to travel far: costs along a chain, a maze in a mask, boxes each of which hides the
next, the largest of a row all in one lane.

What is drawn by lot lies near: of 64 nodes with costs by lot no shortest path has more than a few steps, a mask by lot
is flooded in a handful of rounds, boxes hide none that hides another, and of a row's largest eight no five have the
same place in a group. A program that stops after those was right on all of it, and refused by none of the other draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelwright.judge import numerics, whole
from kernelwright.judge.dealing import below

WAYS, LINE, LANES = "long ways", "rows along a line", "largest at a step"
LEVELS, ZEROS, TIGHT = "long levels", "zeros of both signs", "largest nearly alike"
LEAST = 4
"""Elements along an axis, at the least, for there to be a way."""
ROUNDS = 4
"""How often a reference chooses between numbers, or flags, by one operator, at the least, for something to travel."""
TRAVELS = "travels"
"""Said of a reference that chooses again and again by one operator."""
CHOOSING = {
    *("minimum", "maximum", "amin", "amax", "min", "max", "where", "logical_or", "logical_and", "logical_not"),
    *("bitwise_or", "bitwise_and", "__or__", "__and__", "any", "all", "gt", "ge", "lt", "le", "eq", "ne"),
    *("masked_fill", "max_pool1d", "max_pool2d", "max_pool1d_with_indices", "max_pool2d_with_indices"),
    *("max_pool3d_with_indices", "clamp", "clamp_min", "clamp_max", "sign", "sort", "argmax", "argmin", "gather"),
    *("index", "index_put", "_index_put_impl", "cummax", "cummin", "scatter", "scatter_reduce"),
}
"""Operators by which such a reference goes on, by name without the underscore of those that write in place."""
TIGHTEST, TIGHT_SHARE = 16, 1 / 8
"""Roundings below which the second largest lies under the largest, and the share of the lines in which it does."""
ZERO_SHARE = 1 / 4
"""Of the elements those that are zero where zeros have both signs."""
CLOSE = 0.1
"""What lies in a corridor, or a wall, has so much of the difference of the two left."""
TURNED = 4
"""One of so many lines of whole numbers is its least number and then its largest, or the other way: brackets that nest
as deep as they can."""
WIDEST = 8
"""Numbers of a row that may be a box, or a point."""
STEPS = (0.1, 0.33)
"""By what part of its own size a box lies beside the one before: it is more than half hidden by that, and the next but
one is not, or little."""


class Travelled:
    """Counts by which operators a reference chooses, and how often."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def note(self, func: Any) -> None:
        """One operator."""
        name = str(func._schema.name).removeprefix("aten::")
        name = name if name in CHOOSING else name.rstrip("_")
        if name in CHOOSING:
            self._counts[name] = self._counts.get(name, 0) + 1

    @property
    def far(self) -> bool:
        """Whether it does so again and again."""
        return max(self._counts.values(), default=0) >= ROUNDS


def ways(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Square costs, flags and places of nodes are chains of all nodes, masks and images mazes of one corridor; of two
    masks of one shape the other then has a single element, where that begins or ends."""
    out, planes = list(leaves), dict[torch.Size, list[int]]()
    for index, leaf in enumerate(leaves):
        if leaf.dtype in whole.INTEGERS and leaf.dim() and leaf.shape[-1] >= LEAST and _places(leaf):
            out[index] = _followed(leaf, rng)
        elif leaf.dim() > 1 and min(leaf.shape[-2:]) >= LEAST and _contrasts(leaf):
            planes.setdefault(leaf.shape, []).append(index)
    _joined(leaves, out, rng)
    for shape, found in planes.items():
        first = leaves[found[0]]
        square = shape[-2] == shape[-1] and first.dtype not in whole.INTEGERS
        square = square and (first.dtype is torch.bool or float(first.min()) >= 0)
        if len(found) == 1 and square and below(2, rng):
            out[found[0]] = _linked(first, rng)
            continue
        axis = max(range(len(shape)), key=lambda dim: (shape[dim], dim))
        farther = shape[axis] > shape[-2] * shape[-1] // 2  # than a corridor that winds through a plane is long
        axis = axis if axis < len(shape) - 2 and below(8, rng) < (7 if farther else 4) else -1
        rows, columns = first.movedim(axis, -1).shape[-2:]
        corridor = (_corridor if axis == -1 else _straight)(rows, columns, first.device, rng)
        end = int(corridor.max()) if below(2, rng) else 1
        maze = max(found, key=lambda index: _filled(leaves[index], rng))
        for index in found:
            high = leaves[index].dtype is torch.bool or index != maze or bool(below(2, rng))
            there = corridor > 0 if index == maze else corridor == end
            out[index] = _in_contrast(leaves[index].movedim(axis, -1), there, high).movedim(-1, axis).contiguous()
    return out


def _filled(leaf: torch.Tensor, rng: torch.Generator) -> float:
    """How much of it is set; of what holds no flags a lot."""
    return float(leaf.float().mean()) if leaf.dtype is torch.bool else below(1 << 10, rng) / (1 << 10)


def _finite(leaf: torch.Tensor) -> bool:
    """Whether it holds finite floats that torch orders: of float8 it does not say which is larger."""
    return leaf.is_floating_point() and leaf.itemsize > 1 and numerics.finite(leaf)


def _contrasts(leaf: torch.Tensor) -> bool:
    """Whether it holds flags, numbers or colours of which two differ."""
    if leaf.dtype in whole.INTEGERS:
        return whole.repeats(leaf) and bool(leaf.min() != leaf.max())
    return leaf.dtype is torch.bool or _finite(leaf)


def _places(leaf: torch.Tensor) -> bool:
    """Whether whole numbers may be places of the last axis, of half of it and more, and most of those are there."""
    if not whole.repeats(leaf):
        return False
    low, high = (int(end) for end in torch.aminmax(leaf))
    count = high - low + 1
    size = leaf.shape[-1]
    return 0 <= low and high < size and 2 * count >= max(size, 2 * LEAST) and 2 * len(leaf.unique()) >= count


def _followed(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Each place says another, all of them in one chain that ends in a place that says itself. Where none says a later
    one than its own, it says the one before."""
    low, high = (int(end) for end in torch.aminmax(leaf))
    places = torch.arange(low, high + 1, device=leaf.device)
    earlier = bool((leaf <= torch.arange(leaf.shape[-1], device=leaf.device)).all())
    order = places if earlier else places[torch.randperm(len(places), generator=rng, device=leaf.device)]
    made = leaf.clone(memory_format=torch.contiguous_format)
    made[..., order[1:]] = order[:-1].to(leaf.dtype)
    made[..., order[0]] = order[0].to(leaf.dtype)
    return made


def _joined(leaves: Sequence[torch.Tensor], out: list[torch.Tensor], rng: torch.Generator) -> None:
    """Two vectors of nodes, or two rows or columns, are the edges of one chain of all nodes, in any order."""
    numbers = [i for i, leaf in enumerate(leaves) if leaf.dtype in whole.INTEGERS]
    vectors = [i for i in numbers if leaves[i].dim() == 1]
    pairs = [(i, j) for i in vectors for j in vectors if i < j and leaves[i].shape == leaves[j].shape][:1]
    pairs += [(i, i) for i in numbers if leaves[i].dim() == 2 and 2 in leaves[i].shape]
    for one, other in pairs:
        axis = leaves[one].shape.index(2) if one == other else 0
        ends = [leaves[one], leaves[other]] if one != other else list(leaves[one].unbind(axis))
        low, high = (int(end) for end in torch.aminmax(torch.stack(ends)))
        nodes, edges = high - low + 1, ends[0].numel()
        if not all(map(whole.repeats, ends)) or nodes < 2 * LEAST or 4 * len(torch.stack(ends).unique()) < nodes:
            continue
        order = low + torch.randperm(nodes, generator=rng, device=ends[0].device)
        at = torch.randperm(edges, generator=rng, device=ends[0].device) % (nodes - 1)
        made = [order[at].to(ends[0].dtype), order[at + 1].to(ends[1].dtype)]
        if one != other:
            out[one], out[other] = made
        else:
            out[one] = torch.stack(made, axis)


def _linked(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Of square costs those from each node to the next of a chain are small, so that all of it is shorter than any
    other step; of flags those alone are set, and the diagonal where all of it was. Symmetric where that was so."""
    size = leaf.shape[-1]
    order = torch.randperm(size, generator=rng, device=leaf.device)
    there = torch.zeros(size, size, dtype=torch.bool, device=leaf.device)
    there[order[:-1], order[1:]] = True
    if torch.equal(leaf, leaf.mT):
        there = there | there.mT
    same = torch.eye(size, dtype=torch.bool, device=leaf.device)
    if leaf.dtype is torch.bool:
        return (there | (same & leaf)).expand_as(leaf).clone()
    least, most = torch.aminmax(leaf)
    if bool(((leaf == least) | (leaf == most)).all()):  # flags in numbers
        return torch.where(same, leaf, torch.where(there, most, least))
    far = most - CLOSE * (most - leaf)
    return torch.where(same, leaf, torch.where(there, far / (2 * size), far))


def _corridor(rows: int, columns: int, device: torch.device, rng: torch.Generator) -> torch.Tensor:
    """The places of one corridor that is as long as half of all, numbered from 1 along it; zero is wall. Along rows or
    columns, from either end."""
    turned = bool(below(2, rng))
    count, length = (columns, rows) if turned else (rows, columns)
    made = torch.zeros(count, length, dtype=torch.int64)
    place = 1
    for line in range(0, count, 2):
        back = line // 2 % 2
        steps = torch.arange(place, place + length)
        made[line] = steps.flip(0) if back else steps
        place += length
        if line + 2 < count:  # the last line of an even number is wall, or the way would go round nothing
            made[line + 1, 0 if back else length - 1] = place
            place += 1
    made = made.mT if turned else made
    flips = [axis for axis in (0, 1) if below(2, rng)]
    return made.flip(flips).contiguous().to(device)


def _straight(rows: int, columns: int, device: torch.device, rng: torch.Generator) -> torch.Tensor:
    """The same of one straight corridor, along the longest axis of a volume: as far as its reference must go."""
    made = torch.zeros(rows, columns, dtype=torch.int64)
    steps = torch.arange(1, columns + 1)
    made[below(rows, rng)] = steps.flip(0) if below(2, rng) else steps
    return made.to(device)


def _in_contrast(leaf: torch.Tensor, there: torch.Tensor, high: bool) -> torch.Tensor:
    """The largest numbers in the corridor and the least outside, or the other way round; of floats something of what
    they were is left, so that none are equal."""
    if leaf.dtype is torch.bool:
        return there.expand_as(leaf).clone()
    least, most = torch.aminmax(leaf)
    there = there if high else ~there
    if leaf.dtype in whole.INTEGERS or bool(((leaf == least) | (leaf == most)).all()):
        return torch.where(there, most, least).expand_as(leaf).clone()
    return torch.where(there, most - CLOSE * (most - leaf), least + CLOSE * (leaf - least))


def line(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Rows of a few floats lie one beside the other, each a part of its own size further: boxes each of which hides the
    next, points that a chain joins. Numbers of which there is one for each row come in order, either way."""
    sizes = {leaf.shape[:-1] for leaf in leaves if _boxes(leaf)}
    down = bool(below(8, rng))
    return [
        _beside(leaf, rng)
        if _boxes(leaf)
        else leaf.sort(-1, descending=down).values
        if leaf.shape in sizes and _finite(leaf)
        else leaf
        for leaf in leaves
    ]


def _boxes(leaf: torch.Tensor) -> bool:
    rows = leaf.dim() in (2, 3) and 2 <= leaf.shape[-1] <= WIDEST and leaf.shape[-2] >= 2 * LEAST
    return rows and _finite(leaf)


def _beside(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    count, width = leaf.shape[-2:]
    half = width // 2
    first = leaf[..., below(count, rng), :]
    corners = width % 2 == 1 or bool((leaf[..., half:] >= leaf[..., :half]).all())  # or a corner and a size
    size = first[..., half : 2 * half] - (first[..., :half] if corners else 0)
    alone = half > 1 and bool(below(2, rng))  # along one axis
    part = STEPS[0] + (STEPS[1] - STEPS[0]) * below(1 << 10, rng) / (1 << 10)
    moved = part * size if alone or half == 1 else part / half * size
    moved[..., int(alone) :] *= not alone or half == 1
    step = torch.zeros_like(first)
    step[..., :half] = moved
    step[..., half : 2 * half] = moved if corners else 0
    places = torch.arange(count, device=leaf.device, dtype=leaf.dtype)[:, None]
    return first[..., None, :] + places * step[..., None, :]


def lanes(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """The largest of each row of floats, or the least, lie at every so many places, in no order: in one lane of a group
    of threads."""
    return [_at_a_step(leaf, rng) if _long(leaf) else leaf for leaf in leaves]


def _long(leaf: torch.Tensor) -> bool:
    return leaf.dim() > 0 and leaf.shape[-1] >= 2 * LEAST and _finite(leaf)


def _at_a_step(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    size = leaf.shape[-1]
    most = (size // LEAST).bit_length() - 1  # a lane has LEAST elements at the least
    power = 1 << (1 + max(below(most, rng), below(most, rng)))  # wide groups are the usual ones
    step = power if below(8, rng) else 2 + below(max(1, size // LEAST - 1), rng)
    places = torch.randperm(size, generator=rng, device=leaf.device)
    lane = places % step == below(step, rng)
    places = torch.cat([places[lane], places[~lane]])
    made = torch.empty_like(leaf, memory_format=torch.contiguous_format)
    made[..., places] = leaf.sort(-1, descending=bool(below(8, rng))).values
    return made


def levels(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Along an axis a long part of each line stays at one of its numbers, or near it, after the largest or the least of
    the line: a state that is kept, a peak that is flat."""
    return [_held(leaf, rng) if _lines(leaf) else leaf for leaf in leaves]


def _lines(leaf: torch.Tensor) -> bool:
    if not leaf.dim() or max(leaf.shape) < 2 * LEAST or leaf.numel() == 0:
        return False
    if leaf.dtype in whole.INTEGERS:
        return whole.repeats(leaf)
    return _finite(leaf)


def _held(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    axes = [axis for axis, size in enumerate(leaf.shape) if size >= 2 * LEAST]
    axis = axes[below(len(axes), rng)] if below(2, rng) else axes[-1]
    size = leaf.shape[axis]
    lines = [1 if dim == axis else n for dim, n in enumerate(leaf.shape)]
    start, end, at = (torch.randint(size, lines, generator=rng, device=leaf.device) for _ in range(3))
    places = torch.arange(size, device=leaf.device).view([size if dim == axis else 1 for dim in range(leaf.dim())])
    first = torch.minimum(start, end)
    level = leaf.gather(axis, at)
    near = leaf.is_floating_point() and bool(below(2, rng))
    there = (places >= first) & (places <= torch.maximum(start, end))
    made = torch.where(there, level + CLOSE * (leaf - level) if near else level, leaf)
    low, high = torch.aminmax(leaf, dim=axis, keepdim=True)
    made = torch.where(places == first - 1, torch.where(end % 2 == 0, low, high), made)
    if leaf.dtype not in whole.INTEGERS:
        return made
    middle = size // 2 + start // 4 - size // 8
    before, after = torch.where(at % 2 == 0, low, high), torch.where(at % 2 == 0, high, low)
    return torch.where(end < size // TURNED, torch.where(places < middle, before, after), made)


def zeros(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Some elements of floats are zero, of either sign. They are equal, but who sorts by bits puts one sign first."""
    return [_signed(leaf, rng) if _long(leaf) else leaf for leaf in leaves]


def _signed(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    chance = torch.rand(leaf.shape, generator=rng, device=leaf.device)
    sign = torch.randint(2, leaf.shape, generator=rng, device=leaf.device, dtype=torch.int64) * 2 - 1
    return torch.where(chance < ZERO_SHARE, torch.zeros_like(leaf).copysign(sign), leaf)


def tight(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """In some lines of floats another element is a few roundings less than the largest: who packs a place into the last
    bits of a number takes it for that. Few lines, for where numbers are computed first rounding decides there."""
    return [
        _next_to_largest(leaf, rng) if _finite(leaf) and max(leaf.shape, default=0) > 1 else leaf for leaf in leaves
    ]


def _next_to_largest(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    axes = [axis for axis, size in enumerate(leaf.shape) if size > 1]
    axis = axes[-1] if below(2, rng) else axes[below(len(axes), rng)]
    most, at = leaf.max(axis, keepdim=True)
    roundings = torch.randint(1, TIGHTEST, most.shape, generator=rng, device=leaf.device)
    near = most - most.abs() * (roundings * torch.finfo(leaf.dtype).eps / 2).to(leaf.dtype)
    other = torch.randint(leaf.shape[axis], most.shape, generator=rng, device=leaf.device)
    chance = torch.rand(most.shape, generator=rng, device=leaf.device)
    chosen = (chance < TIGHT_SHARE) | (chance == chance.min())
    return leaf.scatter(axis, other, torch.where(chosen & (other != at), near, leaf.gather(axis, other)))
