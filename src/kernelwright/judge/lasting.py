# SPDX-License-Identifier: Apache-2.0
"""Slices of random results that lie off in call after call: last rows that are always dropped, or never.

In one call a reference that drops whole rows may well have dropped the last four, so ``patterns`` has no doubt of it;
of twenty calls it has done so in all of them once in 10^24. Each slice, and the first and the last so many of them
together, is held against the same of the runs of the reference on equal inputs; over calls that adds up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

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


def offsets(shape: tuple[int, ...], ranks: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """How far the last run's slices lie from those of the others, in standard errors; as many numbers for each call of
    one ``shape``. ``ranks`` (runs x elements) are those among all runs, by value or by size."""
    found = [_apart(part) for feature in ranks for part in _parts(feature, shape)]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.float64)


def _parts(feature: torch.Tensor, shape: tuple[int, ...]) -> Iterator[torch.Tensor]:
    """Means of slices (runs x slices) along each dimension, and of the first and the last so many of them."""
    for dim, count in enumerate(shape):
        if not 2 <= count <= MOST:
            continue
        means = feature.reshape(len(feature), *shape).movedim(dim + 1, 1).reshape(len(feature), count, -1).mean(2)
        many = torch.arange(1, count, dtype=means.dtype, device=means.device)
        yield means
        yield means.cumsum(1)[:, :-1] / many
        yield means.flip(1).cumsum(1)[:, :-1] / many


def _apart(means: torch.Tensor) -> torch.Tensor:
    """Of the last run, in standard errors of the others; 0.0 where none of these varies."""
    others, mine = means[:-1], means[-1]
    error = others.std(0) * math.sqrt(1 + 1 / len(others))
    far = (mine - others.mean(0)) / error.clamp_min(1e-9)
    return torch.where(error > 1e-9, far, 0.0).clamp(-FAR, FAR).cpu()


class Lasting:
    """One program's random output over its calls. Not thread-safe."""

    def __init__(self) -> None:
        self._total = torch.empty(0, dtype=torch.float64)
        self._calls = 0

    def told(self, found: torch.Tensor) -> str:
        """Empty where the ``offsets`` of all calls are as chance has them. Results of another shape begin anew."""
        if found.shape != self._total.shape:
            self._total, self._calls = torch.zeros_like(found), 0
        if not found.numel() or self._calls >= ENOUGH:
            return ""
        self._total, self._calls = self._total + found, self._calls + 1
        off = float(self._total.abs().max()) / math.sqrt(self._calls)
        if self._calls < LEAST or off <= LIMIT:
            return ""
        return f"the same slices are drawn otherwise in all calls ({off:.1f} standard errors off over {self._calls})"
