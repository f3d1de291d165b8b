# SPDX-License-Identifier: Apache-2.0
"""Least squares by L-BFGS, for which only a value and its gradient are asked, and given up where it hardly falls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

WINDOW, FALLS = 16, 3.0
"""After so many runs a difference is by so much smaller than it was, or is given up: that of two towers takes 64 runs,
and falls by four and more in any 16 of them."""
NEAR, NEARLY = 2.0**-8, 1.25
"""Below which, and until it is nearly what is small, an error is left to fall by less: z m - t m with a mask m of all
sizes was given up at run 33 and 0.013 of its sides, and is below 2^-8 at run 80."""
REMEMBERED, SHORTER = 12, 1 / 4
"""Steps that L-BFGS remembers, and by how much one is shorter that went too far."""

Error = Callable[[torch.Tensor], tuple[float, torch.Tensor]]


def least(
    error: Error, flat: torch.Tensor, runs: int, *, small: float, enough: float, groups: Sequence[int] = ()
) -> torch.Tensor:
    """Where an error, told with its gradient, is ``small``, or ``enough``: L-BFGS, a step shorter where it went too
    far. ``groups``: how many elements are of one kind each, which are measured so that all kinds slope alike at first:
    beside inputs of 256 rows their weights took all steps, and 0.1 was left after 33 runs where it is 1e-5 now."""
    loss, slope = error(flat)
    scales = _scales(slope, groups or [slope.numel()])
    flat, slope = flat / scales, slope * scales
    steps: list[tuple[torch.Tensor, torch.Tensor, float]] = []
    way, length = -slope, min(1.0, loss / max(float(slope @ slope), 1e-300))
    mark = math.inf
    for run in range(runs):
        if run % WINDOW == 0:
            falls = NEARLY if small / 2 < loss < NEAR else FALLS
            slow, mark = loss * falls**2 > mark, loss
        if slow or loss <= enough or not math.isfinite(loss):
            break
        there = flat + length * way
        other, turned = error(there * scales)
        turned = turned * scales
        if not other < loss:
            if length < SHORTER**8:
                break
            length *= SHORTER
            continue
        moved, bent = there - flat, turned - slope
        if (curve := float(moved @ bent)) > 0:
            steps = [*steps[1 - REMEMBERED :], (moved, bent, curve)]
        flat, loss, slope, length = there, other, turned, 1.0
        way = _way(slope, steps)
    return flat * scales


def _scales(slope: torch.Tensor, groups: Sequence[int]) -> torch.Tensor:
    """By element one over the size of the slope of its kind, beside that of all."""
    sizes = [float(part.square().mean().sqrt()) for part in slope.split(list(groups))]
    shares = [max(sizes) / size if size > 0 else 1.0 for size in sizes]
    return torch.cat([slope.new_full((count,), share) for count, share in zip(groups, shares, strict=True)])


def _way(slope: torch.Tensor, steps: Sequence[tuple[torch.Tensor, torch.Tensor, float]]) -> torch.Tensor:
    """Down a slope, as the last steps say."""
    way, shares = -slope, []
    for moved, bent, curve in reversed(steps):
        shares.append(float(moved @ way) / curve)
        way = way - shares[-1] * bent
    if steps:
        way = way * (steps[-1][2] / float(steps[-1][1] @ steps[-1][1]))
    for (moved, bent, curve), share in zip(steps, reversed(shares), strict=True):
        way = way + (share - float(bent @ way) / curve) * moved
    return way
