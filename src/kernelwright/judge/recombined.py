# SPDX-License-Identifier: Apache-2.0
"""Draws made of other draws, where a real one is dear: nothing in them was seen before, not even in proportion."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from kernelwright.judge.numerics import EIGHT_BITS
from kernelwright.judge.whole import differ

FACTORS = 1 << 20
"""Random factors near one that recombined draws take stretches of, each from another place."""
LARGE = 1 << 16
"""Leaves of fewer elements keep their proportions where one row is in order: it is multiplied by one factor. So are
rows of up to BOUNDS numbers that would be in another order else, and all of them where they come one after another."""
BOUNDS = 4
UNIT = 1e-3
"""How near to one the sums of rows lie, or their lengths, where these are probabilities or directions."""
WIDE, LAST_BITS = 1 << 20, 1 << 12
"""From which range on whole numbers come with the bits below the second of others."""
APART, RISING = "apart", "rising"
_AS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
_AS |= dict.fromkeys(EIGHT_BITS, torch.uint8)
"""Types of which torch gathers or compares none, and those of their bits."""
MOVED = 0.03
DENSE = 2e-3
"""Share of a leaf's elements as near to its largest, or smallest, as they are moved, from where it is taken to be
bounded: 0.03 of numbers uniform in [0, 1), 0 to 3 of 65536 normal ones. Nothing bounded leaves its bounds: of
probabilities above one a binary cross-entropy raises on a CPU, and on a device ends the context of eager's program."""


class Recombiner:
    """Makes them on one device, with random factors of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._factors: torch.Tensor | None = None
        self._secret: torch.Generator | None = None
        self._known = WeakTensorKeyDictionary()
        """Bounds of draws that others are made of: looking for them takes as long as moving a draw."""

    def of(self, base: torch.Tensor, other: torch.Tensor, dice: torch.Generator) -> torch.Tensor:
        """See ``Bench.draws``. One factor for all would leave whole rows in proportion to rows seen before, and what is
        sorted, normalised or linear could be put together from old results."""
        if base.dtype in _AS or not base.numel():
            kind = _AS.get(base.dtype, base.dtype)
            return self.of(base.view(kind), other.view(kind), dice).view(base.dtype) if base.numel() else base.clone()
        made = base.clone()
        floats, large = made.is_floating_point() or made.is_complex(), made.is_contiguous() and made.numel() >= LARGE
        mixes = large and not floats and other.is_contiguous()
        if made.is_contiguous() and made.numel() > 1 and not mixes:
            width = _width(made)
            ends = width * torch.randint(0, made.numel() // width + 1, (2,), generator=dice)
            low, high = int(ends.min()), int(ends.max())
            made.view(-1)[low:high] = other.reshape(-1)[low:high]
        if not floats and not mixes:
            lots = torch.rand((2, 1, *made.shape), generator=dice).to(made.device)
            rule = _rule(base)
            return made if rule is None else _numbers(base[None], other[None], lots, rule)[0]
        bounds = self._bounds(base)
        if not large:
            chance = torch.rand(made.shape, generator=dice).to(made.device)
            return _few(made[None], chance[None], bounds)[0]
        if self._factors is None:
            own = torch.Generator().manual_seed(secrets.randbits(63))
            factors = torch.rand(2 * FACTORS, generator=own).mul_(2 * MOVED).add_(1 - MOVED)
            self._factors = factors.to(self._device)
        for part, others in zip(made.view(-1).split(FACTORS), other.reshape(-1).split(FACTORS), strict=True):
            start = int(torch.randint(FACTORS, (), generator=dice))
            factors = self._factors[start : start + part.numel()]
            if floats:
                part.mul_(factors) if bounds is None else part.copy_(bounds.kept(part * factors, part))
            else:  # whole numbers cannot be moved a little; no row of them is one seen before either
                part.copy_(torch.where(factors > 1.0, others, part))
        return made

    def _bounds(self, values: torch.Tensor) -> _Bounds | None:
        if values not in self._known:
            self._known[values] = _Bounds.of(values)
        found: _Bounds | None = self._known[values]
        return found

    def batch(
        self, stock: Sequence[Sequence[torch.Tensor]], kept: Collection[int], count: int, dice: torch.Generator
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """``count`` draws (one at the least) made of ``stock`` at once; leaves that are ``kept`` as they are."""
        first = torch.randint(len(stock), (max(1, count),), generator=dice)
        second = (first + torch.randint(1, len(stock), first.shape, generator=dice)) % len(stock)
        made = [
            torch.stack([column[number] for number in first.tolist()])
            if index in kept
            else self.many(column, first, second, dice)
            for index, column in enumerate(zip(*stock, strict=True))
        ]
        return zip(*made, strict=True)

    def many(
        self, stock: Sequence[torch.Tensor], first: torch.Tensor, second: torch.Tensor, dice: torch.Generator
    ) -> torch.Tensor:
        """As many as ``first`` and ``second``, which say what of ``stock`` each is made of, at once: ``of`` takes a
        dozen small kernels for each. One tensor, draws first."""
        if stock[0].dtype in _AS:
            kind = _AS[stock[0].dtype]
            return self.many([leaf.view(kind) for leaf in stock], first, second, dice).view(stock[0].dtype)
        pile = torch.stack(list(stock))
        shape, pile = pile.shape[1:], pile.flatten(1) if pile.dim() > 1 else pile[:, None]
        made, other = pile[first.to(pile.device)], pile[second.to(pile.device)]
        count, size = made.shape
        if not size:
            return made.view(count, *shape)
        floats, large = made.is_floating_point() or made.is_complex(), size >= LARGE
        if self._secret is None:
            self._secret = torch.Generator(self._device).manual_seed(secrets.randbits(63))
        if size > 1 and (floats or not large):
            width = _width(stock[0])
            ends = width * torch.randint(0, size // width + 1, (count, 2), generator=dice).sort(1).values.to(
                made.device
            )
            at = torch.arange(size, device=made.device)
            made = torch.where((at >= ends[:, :1]) & (at < ends[:, 1:]), other, made)
        chance = torch.rand((1 if floats or large else 2, *made.shape), generator=self._secret, device=made.device)
        if not floats and not large:
            base, other = (pile[at.to(pile.device)].view(count, *shape) for at in (first, second))
            lots = chance.view(2, count, *shape)
            rule = _rule(stock[0])
            return made.view(count, *shape) if rule is None else _numbers(base, other, lots, rule)
        if not floats:
            return torch.where(chance[0] < 0.5, other, made).view(count, *shape)
        if not large:
            return _few(made.view(count, *shape), chance.view(count, *shape), self._bounds(stock[0]))
        whole = torch.zeros((), dtype=torch.bool, device=made.device)
        return _moved(made, chance[0], whole, self._bounds(stock[0])).view(count, *shape)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What the elements of a leaf lie between that seems to be bounded; ``zero``: that is one bound, or inside."""

    least: torch.Tensor
    most: torch.Tensor
    zero: bool

    @classmethod
    def of(cls, values: torch.Tensor) -> _Bounds | None:
        """None where few elements come near to the largest and the smallest."""
        if not values.is_floating_point() or not values.numel():
            return None
        least, most = torch.aminmax(values)
        reach = MOVED * torch.maximum(least.abs(), most.abs())
        near = [(values >= most - reach).sum(), (values <= least + reach).sum()]
        zero = (least <= reach) & (most >= -reach)
        above, below, around = torch.stack([*near, zero.to(near[0].dtype)]).tolist()
        dense = max(above, below) > DENSE * values.numel()
        return cls(least, most, bool(around)) if dense else None

    def kept(self, moved: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """What was moved, but what would leave the bounds where it was before."""
        return torch.where((moved < self.least) | (moved > self.most), before, moved)


def _moved(values: torch.Tensor, chance: torch.Tensor, whole: torch.Tensor, bounds: _Bounds | None) -> torch.Tensor:
    """Elements multiplied by factors near one that follow from ``chance``, in [0, 1); those of what is moved as a
    ``whole``, by one factor, only towards zero where that lies within their bounds."""
    factors = 1 + MOVED * (2 * chance - 1)
    if bounds is None:
        return values.mul_(factors)
    if bounds.zero:
        factors = torch.where(whole, 1 - MOVED * chance, factors)
    moved = (values * factors).to(values.dtype)
    return torch.where(whole, moved, bounds.kept(moved, values))


def _width(leaf: torch.Tensor) -> int:
    """Numbers that come from one draw together where a stretch does: a row of a few, which may be corners, or of whole
    numbers, which may be in order."""
    rows = leaf.dim() > 1 and (leaf.shape[-1] <= BOUNDS or not (leaf.is_floating_point() or leaf.is_complex()))
    return max(1, leaf.shape[-1]) if rows else 1


def _numbers(base: torch.Tensor, other: torch.Tensor, lots: torch.Tensor, rule: str) -> torch.Tensor:
    """Small leaves (the first axis) of whole numbers, or flags, each of which comes from one of two draws. Of rows of a
    few each place comes from another row too, or soon all rows were seen before: a program that kept the answer of
    every row it saw was three times as fast as eager. By ``rule`` rows that are in order stay so, and of rows of
    numbers that must differ each is put in another order instead."""
    if rule == APART:
        return base.gather(-1, lots[0].argsort(-1))
    one = base
    if base.dim() > 2 and base.shape[-1] <= BOUNDS:
        order = lots[1].reshape(len(base), -1, base.shape[-1]).argsort(1)
        one, other = (each.reshape(order.shape).gather(1, order).reshape(base.shape) for each in (base, other))
    made = torch.where(lots[0] < 0.5, other, one)
    if rule != RISING:
        return made if made.dtype is torch.bool else _of_wide(made, lots[1])
    made = made.sort(-1).values
    again = (made.diff(dim=-1) == 0).any(-1, keepdim=True)  # where none did
    return torch.where(again & bool((base.diff(dim=-1) > 0).all()), base, made)


def _of_wide(values: torch.Tensor, lots: torch.Tensor) -> torch.Tensor:
    """Numbers of a wide range with the last bits of others, within that range: of hashes and seeds no single one comes
    twice in real draws either."""
    if values.dtype not in (torch.int32, torch.int64):
        return values
    least, most = torch.aminmax(values)
    if int(most) - int(least) < WIDE:
        return values
    last = values.flatten(1).gather(1, lots.flatten(1).argsort(1)).view(values.shape)
    return (values & ~(LAST_BITS - 1) | last & (LAST_BITS - 1)).clamp(least, most)


def _rule(values: torch.Tensor) -> str | None:
    """What holds between whole numbers, or flags; None where they lie in an order by which they mean something."""
    if values.dim() == 0 or values.numel() < 2:
        return None
    steps = values.to(torch.int8 if values.dtype is torch.bool else torch.int64)
    flags, rows = values.dtype is torch.bool, values.dim() > 1 and values.shape[-1] > 1
    rises = steps.diff(dim=-1)
    if rows and not flags and bool((rises >= 0).all()):
        return RISING if values.shape[0] < 3 or bool((steps.diff(dim=0) < 0).any()) else None
    for axis in {0, values.dim() - 1}:
        rises = steps.diff(dim=axis)
        if values.shape[axis] > 2 and not (bool((rises < 0).any()) and bool((rises > 0).any())):
            return None
    return APART if not flags and differ(steps) else ""


def _few(values: torch.Tensor, chance: torch.Tensor, bounds: _Bounds | None) -> torch.Tensor:
    """Several small leaves (the first axis) moved: each number by itself, but what must keep its proportions. Rows of a
    few that are probabilities or directions keep their sum or length."""
    count = len(values)
    together = chance.reshape(count, -1)[:, :1].reshape(count, *[1] * (values.dim() - 1))
    yes = torch.ones_like(together, dtype=torch.bool)
    if values.dim() == 1:
        return _moved(values, chance, yes, bounds)
    if values.dim() == 2:
        whole = yes if values.is_complex() else (values[:, 1:] >= values[:, :-1]).all(1, keepdim=True)
        return _moved(values, torch.where(whole, together, chance), whole, bounds)
    if values.shape[-1] > BOUNDS:
        return _moved(values, chance, ~yes, bounds)
    each = _moved(values.clone(), chance, ~yes, bounds)
    turned = _turned(values, each)
    for size in (torch.sum, torch.linalg.vector_norm) if values.is_floating_point() and values.shape[-1] > 1 else ():
        before, after = (size(x, dim=-1, keepdim=True) for x in (values, each))
        held = (before - 1).abs() < UNIT
        each, turned = torch.where(held, each * (before / after), each).to(values.dtype), turned & ~held
    return torch.where(turned | _one_after_another(values), _moved(values, together, yes, bounds), each)


def _turned(rows: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    """Which rows of a few numbers are in another order: corners of boxes that have changed places."""
    if rows.is_complex():
        return torch.zeros((), dtype=torch.bool, device=rows.device)
    return (rows.argsort(dim=-1, stable=True) != moved.argsort(dim=-1, stable=True)).any(-1, keepdim=True)


def _one_after_another(rows: torch.Tensor) -> torch.Tensor:
    """Whether rows follow upon one another in some place of theirs, as times do: for all of a leaf."""
    if rows.is_complex() or rows.shape[-2] < 3:
        return torch.zeros((), dtype=torch.bool, device=rows.device)
    return (rows.diff(dim=-2) >= 0).all(-2, keepdim=True).any(-1, keepdim=True)
