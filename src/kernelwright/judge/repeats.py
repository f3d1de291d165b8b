# SPDX-License-Identifier: Apache-2.0
"""Whether two calls drew the same random numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from kernelwright.judge.patterns import Sign

if TYPE_CHECKING:
    from kernelwright.judge.distribution import Drawn

SAME = 0.5
"""Correlation of features between two calls from which the randomness counts as repeated."""
CHANCE = 6.5
"""Standard errors, of Fisher's transformed correlation, that it lies beyond chance besides: two honest permutations of
32 numbers correlated by 0.5 in one of a hundred pairs, and a call is compared with twelve. How far honest runs scatter
says how many of the elements have numbers of their own: 64 rows of which one in ten is kept are as 64 elements."""
CERTAIN = 12.0
"""The same where one call is enough: of rows of which one in ten is kept few are, and two of three were kept again."""
USUAL = (0.4, 3.5)
"""Of sizes of 36 normal numbers the median at the least, and the largest at the most, beside their RMS. Where a row in
fifty is dropped most runs have no drop and are the same, some have the same one, and so do two calls of an honest
program."""
SAID = "the same random numbers as in an earlier call"
LEAST = 16
"""Fewer elements are not compared."""
BEYOND = 1.5
"""How many times as much as the most of honest runs of that call: one of nine crops, or a batch turned or not, comes
again and again."""
SHIFTED = 1 << 12
"""Elements from which on shifted numbers are looked for: of so many places the luckiest correlates by 0.06."""


def repeated(first: Drawn, second: Drawn, honest: Callable[[], Sequence[Drawn]]) -> Sign | None:
    """Whether two calls drew the same randomness, perhaps shifted, where the ``honest`` runs of the second call, asked
    for where it seems so, share theirs with none. Certain where these correlate as independent numbers do."""
    if first.rank.shape != second.rank.shape or (count := first.rank.numel()) < LEAST:
        return None
    least = max(SAME, math.tanh(CHANCE / math.sqrt(count - 3)))
    for name in ("rank", "size"):
        mine = getattr(first, name)
        found = _alike(mine, getattr(second, name))
        if found <= least:
            continue
        others = [_alike(mine, getattr(one, name)) for one in honest()]
        scatter = math.sqrt(statistics.fmean(other * other for other in others))
        if found > max(BEYOND * max(others), math.tanh(CHANCE * scatter)):
            usual = USUAL[0] * scatter <= statistics.median(others) and max(others) <= USUAL[1] * scatter
            far = found > math.tanh(CERTAIN * scatter) and len(set(others)) == len(others)
            return Sign(SAID, certain=usual and far)
    return None


def _alike(first: torch.Tensor, second: torch.Tensor) -> float:
    """The largest correlation of two features; from SHIFTED elements on, of the second turned by any number of places.

    By the cross-correlation theorem: all turns for the price of three Fourier transforms.
    """
    x, y = first - first.mean(), second - second.mean()
    size = float((x.square().sum() * y.square().sum()).sqrt())
    if size <= 0:
        return 0.0
    if x.numel() < SHIFTED:
        return abs(float((x * y).sum())) / size
    turned = torch.fft.irfft(torch.fft.rfft(x).conj() * torch.fft.rfft(y), n=x.numel())
    return float(turned.abs().max()) / size
