# SPDX-License-Identifier: Apache-2.0
"""Draws made of other draws, where a real one is dear: nothing in them was seen before, not even in proportion."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence

import torch

FACTORS = 1 << 20
"""Random factors near one that recombined draws take stretches of, each from another place."""
LARGE = 1 << 16
"""Leaves of fewer elements keep their proportions where they may be bounds or positions: rows of up to BOUNDS numbers,
or one row in order. They are multiplied by one factor."""
BOUNDS = 4
MOVED = 0.03


class Recombiner:
    """Makes them on one device, with random factors of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._factors: torch.Tensor | None = None
        self._secret: torch.Generator | None = None

    def of(self, base: torch.Tensor, other: torch.Tensor, dice: torch.Generator) -> torch.Tensor:
        """See ``Bench.draws``. One factor for all would leave whole rows in proportion to rows seen before, and what is
        sorted, normalised or linear could be put together from old results."""
        made = base.clone()
        floats, large = made.is_floating_point() or made.is_complex(), made.is_contiguous() and made.numel() >= LARGE
        mixes = large and not floats and other.is_contiguous()
        if made.is_contiguous() and made.numel() > 1 and not mixes:
            ends = torch.randint(0, made.numel() + 1, (2,), generator=dice)
            low, high = int(ends.min()), int(ends.max())
            made.view(-1)[low:high] = other.reshape(-1)[low:high]
        if not floats and not mixes:
            return made
        if not large:
            apart = () if _in_order(made) else made.shape
            return made.mul_(1 + MOVED * (2 * torch.rand(apart, generator=dice) - 1).to(made.device))
        if self._factors is None:
            own = torch.Generator().manual_seed(secrets.randbits(63))
            factors = torch.rand(2 * FACTORS, generator=own).mul_(2 * MOVED).add_(1 - MOVED)
            self._factors = factors.to(self._device)
        for part, others in zip(made.view(-1).split(FACTORS), other.reshape(-1).split(FACTORS), strict=True):
            start = int(torch.randint(FACTORS, (), generator=dice))
            factors = self._factors[start : start + part.numel()]
            if floats:
                part.mul_(factors)
            else:  # whole numbers cannot be moved a little; no row of them is one seen before either
                part.copy_(torch.where(factors > 1.0, others, part))
        return made

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
        pile = torch.stack(list(stock))
        shape, pile = pile.shape[1:], pile.flatten(1)
        made, other = pile[first.to(pile.device)], pile[second.to(pile.device)]
        count, size = made.shape
        floats, large = made.is_floating_point() or made.is_complex(), size >= LARGE
        if self._secret is None:
            self._secret = torch.Generator(self._device).manual_seed(secrets.randbits(63))
        if size > 1 and (floats or not large):
            ends = torch.randint(0, size + 1, (count, 2), generator=dice).sort(1).values.to(made.device)
            at = torch.arange(size, device=made.device)
            made = torch.where((at >= ends[:, :1]) & (at < ends[:, 1:]), other, made)
        if not floats and not large:
            return made.view(count, *shape)
        chance = torch.rand(made.shape, generator=self._secret, device=made.device)
        if not floats:
            return torch.where(chance < 0.5, other, made).view(count, *shape)
        if not large:
            chance = torch.where(_each_in_order(made.view(count, *shape)), chance[:, :1], chance)
        return made.mul_(1 + MOVED * (2 * chance - 1)).view(count, *shape)


def _each_in_order(values: torch.Tensor) -> torch.Tensor:
    """``_in_order`` of each of several, as a column."""
    count, *shape = values.shape
    if len(shape) == 1 and values.is_floating_point():
        return (values[:, 1:] >= values[:, :-1]).all(1, keepdim=True)
    whole = len(shape) == 0 or len(shape) == 1 or shape[-1] <= BOUNDS
    return torch.full((count, 1), whole, device=values.device)


def _in_order(values: torch.Tensor) -> bool:
    """Whether it may be bounds or positions, whose order means something."""
    if values.dim() != 1:
        return values.dim() == 0 or values.shape[-1] <= BOUNDS
    return not (values.is_floating_point() and bool((values[1:] < values[:-1]).any()))
