# SPDX-License-Identifier: Apache-2.0
"""Random numbers for honest rounding, drawn once and read many times: drawing them costs more than the operators.

What is not finite stays what it is: an infinite mask that became NaN took its whole row out of the honest error, and
one call in thirty of torch's own attention was refused beside its formula.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelwright.judge import borders, calls, health, lanes
from kernelwright.judge.floors import Spread
from kernelwright.judge.yardstick import Magnitudes

POOL = 1 << 18
"""Random numbers drawn once per run and read from a random start."""
STRETCH = 1 << 15
"""Elements of a large tensor treated at a time on a CPU: they stay in a core's cache. A divisor of ``POOL``."""
AT_ONCE = 1 << 26
"""The same on a device, where what is made on the way takes room: 512 MiB of float64."""


def taken(run: Callable[[Any], list[torch.Tensor]], move: Any) -> list[torch.Tensor]:
    """A run of the reference with what it is given moved, and as it is where it refuses that: one that asks for a
    symmetric matrix takes none of which each element was moved by half an ulp."""
    try:
        return run(move)
    except calls.CAUGHT as error:
        health.pass_on(error)
        return run(None)


class Pool:
    """Numbers uniform in [-1, 1), float64, from a private generator."""

    def __init__(self, rng: torch.Generator) -> None:
        self.rng = rng
        self._numbers = torch.empty(0)
        """The pool, twice."""
        self._bells = torch.empty(0)
        """Sums of three numbers of the pool, twice; made when first asked for."""
        self._factors = torch.empty(0)
        """1 + unit * number, of the pool, twice; made when first asked for."""
        self._dice = np.random.default_rng(rng.initial_seed())

    def _dealt(self, count: int, device: torch.device) -> tuple[int, int]:
        """Where to start in the pool, and how many of its numbers come before they repeat."""
        size = self._numbers.numel() // 2
        if size < min(2 * count, POOL) or size == 0:
            size = min(max(2 * count, 1 << 12), POOL)
            pool = torch.empty(size, dtype=torch.float64, device=device).uniform_(-1, 1, generator=self.rng)
            self._numbers = torch.cat([pool, pool])
            self._bells = self._factors = torch.empty(0)
        return int(self._dice.integers(size)), size

    def noise(self, like: torch.Tensor) -> torch.Tensor:
        """One number for every element, in the shape and on the device of ``like``."""
        start, size = self._dealt(like.numel(), like.device)
        return _read(self._numbers, start, size, like)

    def bells(self, like: torch.Tensor) -> torch.Tensor:
        """The same for what many roundings add up to: of unit variance and nearly normal, up to 3 in size.

        Three uniform numbers each. The largest error of 4096 sums is 3.6 of their deviations, and a uniform number of
        the same deviation never exceeds 1.7.
        """
        start, size = self._dealt(like.numel(), like.device)
        return _read(self._rung(size), start, size, like)

    def _rung(self, size: int) -> torch.Tensor:
        """The pool of ``bells``, twice."""
        if self._bells.numel() != self._numbers.numel():
            pool = self._numbers[:size]
            self._bells = (pool + pool.roll(size // 3) + pool.roll(2 * size // 3)).repeat(2)
        return self._bells

    def moved(self, values: torch.Tensor, unit: float) -> torch.Tensor:
        """``values * (1 + unit * noise)``; many of them are written in place, stretch by stretch, or on a device a pool
        at a time."""
        count = values.numel()
        start, size = self._dealt(count, values.device)
        if self._factors.numel() != self._numbers.numel():
            self._factors = self._numbers * unit + 1.0
        if count > AT_ONCE and values.device.type != "cpu" and values.is_contiguous():
            return _in_place(values, self._factors[start : start + size])
        if count <= POOL or values.device.type != "cpu" or not values.is_contiguous():
            return values * _read(self._factors, start, size, values)

        def move(stretch: tuple[torch.Tensor, torch.Tensor]) -> None:
            stretch[0].mul_(stretch[1])

        lanes.each(move, _parts(values, self._factors, start))
        return values

    def strewn(self, out: torch.Tensor, squares: torch.Tensor, spread: float, size: float, unit: float) -> torch.Tensor:
        """``out + bells * unit * sqrt(squares * spread + out^2 * size)`` of many, written in place stretch by stretch.

        At 1 GiB of float32 results the temporaries of whole tensors took 14 GiB.
        """
        start, count = self._dealt(out.numel(), out.device)

        def strew(stretch: tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
            (part, noise), square = stretch
            deviation = finite(torch.addcmul(square * spread, part, part, value=size).sqrt_())
            part.addcmul_(deviation, noise, value=unit)

        parts = _parts(out, self._rung(count), start)
        lanes.each(strew, list(zip(parts, squares.view(-1).split(STRETCH), strict=True)))
        return out


def finite(deviations: torch.Tensor) -> torch.Tensor:
    """The same, written over: 0 where it is not finite, so that what is infinite is not moved to NaN."""
    return deviations.nan_to_num_(0.0, 0.0, 0.0)


def _parts(values: torch.Tensor, numbers: torch.Tensor, start: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Stretches of a large tensor, each with as many of a whole pool's numbers."""
    starts = (start + index * STRETCH % POOL for index in itertools.count())
    stretched = zip(values.view(-1).split(STRETCH), starts, strict=False)
    return [(part, numbers[at : at + len(part)]) for part, at in stretched]


def apart(values: torch.Tensor, dim: int) -> tuple[int, Sequence[torch.Tensor]] | None:
    """Sums along ``dim`` of many numbers on a device, so many at a time that what is made on the way has room: as
    ``parted`` says. None where there is room, or no other dimension."""
    if values.device.type == "cpu" or values.numel() <= AT_ONCE:
        return None
    return parted(values, [dim % values.dim()], AT_ONCE)


def parted(values: torch.Tensor, dims: Sequence[int], most: int) -> tuple[int, Sequence[torch.Tensor]] | None:
    """The longest dimension that is none of ``dims``, and the numbers split along it: parts of at most ``most``, or of
    one place along it where that holds more. None where there is no such dimension."""
    others = [at for at in range(values.dim()) if at not in dims and values.shape[at] > 1]
    if not others:
        return None
    free = max(others, key=lambda at: values.shape[at])
    return free, values.split(max(1, int(values.shape[free] * (most / values.numel()))), free)


def stretches(out: torch.Tensor, squares: torch.Tensor) -> bool:
    """Whether a sum is large enough, and lies so, that it is treated in stretches."""
    large = out.numel() > POOL and out.device.type == "cpu" and out.shape == squares.shape
    return large and out.is_contiguous() and squares.is_contiguous() and not out.is_complex()


def _read(numbers: torch.Tensor, start: int, size: int, like: torch.Tensor) -> torch.Tensor:
    """As many numbers as ``like`` has elements; from ``start`` on, and again from there where there are not enough."""
    count = like.numel()
    if count <= size:
        return numbers[start : start + count].reshape(like.shape)
    return numbers[start : start + size].repeat(-(-count // size))[:count].reshape(like.shape)


def _in_place(values: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """``values``, multiplied by ``factors`` again and again."""
    whole, flat = values.numel() // factors.numel() * factors.numel(), values.view(-1)
    flat[:whole].view(-1, factors.numel()).mul_(factors)
    flat[whole:].mul_(factors[: values.numel() - whole])
    return values


def half_ulps(
    leaves: Sequence[torch.Tensor], unit: float, rng: torch.Generator, *, write: bool = False, few: bool = False
) -> list[torch.Tensor]:
    """Double tensors, complex ones in both parts, moved by up to half an ulp of the original precision; integers
    unchanged. ``write``: in place. ``few``: what has few bits stays (``borders``).

    Complex ones were not moved: an honest logarithm of a determinant was refused, 3 to 10 times beyond what was
    expected.

    Large ones on a CPU read a pool, every stretch from a start of its own, so that rows do not move together.
    """
    if few:
        before = [leaf.clone() for leaf in leaves]
        moved = half_ulps(leaves, unit, rng, write=write)
        return [
            borders.kept(old, new) if new.dtype is torch.float64 else new
            for old, new in zip(before, moved, strict=True)
        ]
    out = []
    dice = np.random.default_rng(rng.initial_seed())
    pool: torch.Tensor | None = None
    for leaf in leaves:
        if leaf.dtype is torch.complex128:
            plain = leaf.resolve_conj()
            parts = half_ulps([torch.view_as_real(plain)], unit, rng, write=write)[0]
            out.append(leaf if write and plain is leaf else torch.view_as_complex(parts))
        elif leaf.dtype is not torch.float64:
            out.append(leaf)
        elif leaf.numel() > AT_ONCE and leaf.device.type != "cpu" and leaf.is_contiguous():
            out.append(leaf if write else leaf.clone())
            for part in out[-1].view(-1).split(AT_ONCE):
                part.mul_(torch.empty_like(part).uniform_(1 - unit, 1 + unit, generator=rng))
        elif leaf.numel() <= POOL or leaf.device.type != "cpu" or not leaf.is_contiguous():
            factors = torch.empty(leaf.shape, dtype=leaf.dtype, device=leaf.device)
            factors.uniform_(1 - unit, 1 + unit, generator=rng)
            out.append((leaf.mul_ if write else leaf.mul)(factors))
        else:
            if pool is None:
                pool = torch.empty(POOL + STRETCH, dtype=leaf.dtype).uniform_(1 - unit, 1 + unit, generator=rng)
            out.append(_moved_apart(leaf, leaf if write else torch.empty_like(leaf), pool, dice))
    return out


def _moved_apart(
    leaf: torch.Tensor, moved: torch.Tensor, pool: torch.Tensor, dice: np.random.Generator
) -> torch.Tensor:
    """A large tensor times the factors of a pool, every stretch times those from a start of its own."""
    old, new = leaf.view(-1).split(STRETCH), moved.view(-1).split(STRETCH)
    starts = [int(start) for start in dice.integers(POOL, size=len(old))]

    def move(index: int) -> None:
        torch.mul(old[index], pool[starts[index] : starts[index] + len(old[index])], out=new[index])

    lanes.each(move, range(len(old)))
    return moved


def errors(answers: Sequence[torch.Tensor], exact: Sequence[Magnitudes], factor: float) -> list[Spread]:
    """The errors of one run at all outputs; elements that are not finite count as right."""
    return [scale.measure(out, factor, lenient=True) for out, scale in zip(answers, exact, strict=True)]
