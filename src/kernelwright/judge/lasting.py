# SPDX-License-Identifier: Apache-2.0
"""Slices of random results that lie off in call after call: last rows that are always dropped, or never.

In one call a reference that drops whole rows may well have dropped the last four, so ``patterns`` has no doubt of it;
of twenty calls it has done so in all of them once in 10^24. Each slice, and the first and the last so many of them
together, is held against the same of the runs of the reference on equal inputs; over calls that adds up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

MOST = 256
"""Slices along a dimension that are looked at."""
FAR = 4.0
"""One call counts for so many standard errors at the most."""
LEAST, ENOUGH = 8, 256
"""Calls from which on something is said, and up to which they are added up: what is drawn seldom has a mean of its own
in standard errors (skewness over twice the runs), which counts with the root of the calls."""
LIMIT = 7.5
"""Standard errors: of a normal number, one in 10^13 lies so far off, and of the sum of 8 of Student's with 35 degrees
of freedom, cut off at FAR, one in 10^11. There are up to some 10^3 of them in a call."""


WIDEST = 1 << 16
"""Slices of a dimension for which there is room: of such of which some are looked at in each call, others in others."""


class Offsets(NamedTuple):
    """How far slices of one call lie off, in standard errors; the place of each among all of ``size``."""

    values: torch.Tensor
    places: torch.Tensor
    size: int


def offsets(whole: tuple[int, ...], cut: tuple[slice, ...], ranks: tuple[torch.Tensor, ...]) -> Offsets:
    """How far the last run's slices lie from those of the others. ``ranks`` (runs x elements) are those among all runs,
    by value and by size, of the elements that ``cut`` takes of a result of shape ``whole``."""
    taken = [torch.arange(size)[part] for size, part in zip(whole, cut, strict=True)]
    shape, begins = tuple(map(len, taken)), 0
    values, places = [torch.empty(0, dtype=torch.float64)], [torch.empty(0, dtype=torch.int64)]
    for feature in (*ranks, (ranks[0] - 0.5).abs()):
        for dim, count in enumerate(shape):
            if whole[dim] > WIDEST:
                continue
            if 2 <= count <= MOST:
                for number, (at, means) in enumerate(_parts(feature, shape, dim, taken[dim])):
                    values.append(_apart(means))
                    places.append(begins + number * whole[dim] + at)
            begins += 3 * whole[dim]
    return Offsets(torch.cat(values), torch.cat(places), begins)


def _parts(
    feature: torch.Tensor, shape: tuple[int, ...], dim: int, at: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Means of slices (runs x slices) along a dimension, and of the first and the last so many of them, by where each
    lies, or the last of these."""
    count = shape[dim]
    means = feature.reshape(len(feature), *shape).movedim(dim + 1, 1).reshape(len(feature), count, -1).mean(2)
    many = torch.arange(1, count, dtype=means.dtype, device=means.device)
    yield at, means
    yield at[:-1], means.cumsum(1)[:, :-1] / many
    yield at.flip(0)[:-1], means.flip(1).cumsum(1)[:, :-1] / many


def _apart(means: torch.Tensor) -> torch.Tensor:
    """Of the last run, in standard errors of the others; 0.0 where none of these varies."""
    others, mine = means[:-1], means[-1]
    error = others.std(0) * math.sqrt(1 + 1 / len(others))
    far = (mine - others.mean(0)) / error.clamp_min(1e-9)
    return torch.where(error > 1e-9, far, 0.0).clamp(-FAR, FAR).cpu()


class Lasting:
    """One program's random output over its calls. Not thread-safe."""

    def __init__(self) -> None:
        self._total = self._calls = torch.empty(0, dtype=torch.float64)
        """Of each slice, and in how many calls it was looked at."""

    def told(self, found: Offsets) -> str:
        """Empty where the offsets of all calls are as chance has them. Results of another shape begin anew."""
        if found.size != len(self._total):
            self._total, self._calls = torch.zeros(found.size), torch.zeros(found.size)
        open_ = self._calls[found.places] < ENOUGH
        values, places = found.values[open_].to(self._total.dtype), found.places[open_]
        self._total[places] += values
        self._calls[places] += 1.0
        calls = self._calls[places]
        off = (self._total[places].abs() / calls.sqrt()).masked_fill_(calls < LEAST, 0.0)
        if not off.numel() or float(off.max()) <= LIMIT:
            return ""
        most, so_many = float(off.max()), int(calls[off.argmax()])
        return f"the same slices are drawn otherwise in all calls ({most:.1f} standard errors off over {so_many})"
