# SPDX-License-Identifier: Apache-2.0
"""Random outputs compared as distributions: every element against its own distribution over runs of the reference.

Method: RUNS reference runs on the same inputs give each element of a further run two features: its rank among them
and its distance to the nearest of them. The candidate's features are compared with those of held-out reference runs
by the two-sample Kolmogorov-Smirnov distance; how far the held-out runs lie from each other widens the limit, so
randomness that elements share (one random factor for all) refuses nobody.

That alone sees neither a few rows that are never dropped nor one mask for all rows: ``structure`` looks at slices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

RUNS = 32
HELD_OUT = 4
CHANCE = 1e-9
"""How often an honest program may be refused by the Kolmogorov-Smirnov distance alone."""
MARGIN = (1.3, 2.0)
"""Times the largest number of an honest run, plus standard errors, is what a candidate's may reach."""
SLICE_LEAST = 32
"""Slices of fewer elements are not looked at one by one."""
MOST = 1 << 17
"""Elements of a run that are looked at slice by slice."""
MOST_SLICES, MOST_MEMBERS = 256, 1024
"""Slices, and elements of each, that are correlated with each other."""
REMEMBERED = 6
"""Earlier calls that a call is compared with."""
SAME = 0.5
"""Correlation of features between two calls from which the randomness counts as repeated."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The features of one random output in one call, flat float64."""

    rank: torch.Tensor
    """Share of the runs below the value, ties counted half."""
    off_centre: torch.Tensor
    """Distance of the rank from one half: shows a repeated mask whatever the signs of the inputs."""
    nearest: torch.Tensor
    """Distance to the nearest run, in units of the runs' range."""


def features(value: torch.Tensor, runs: torch.Tensor) -> Drawn:
    """Features of ``value`` among ``runs`` (first dimension), float64."""
    rank = ((runs < value).to(torch.float64).mean(0) + (runs == value).to(torch.float64).mean(0) / 2).reshape(-1)
    spread = (runs.amax(0) - runs.amin(0)).clamp_min(1e-6 * _size(runs) + 1e-300)
    nearest = ((runs - value).abs().amin(0) / spread).reshape(-1)
    return Drawn(rank, (rank - 0.5).abs(), nearest)


def _size(runs: torch.Tensor) -> float:
    return float(runs.square().mean().sqrt())


def distance(first: torch.Tensor, second: torch.Tensor) -> float:
    """Two-sample Kolmogorov-Smirnov distance of two flat samples."""
    both = torch.cat([first, second]).sort().values
    left = torch.searchsorted(first.sort().values, both, right=True) / first.numel()
    right = torch.searchsorted(second.sort().values, both, right=True) / second.numel()
    return float((left - right).abs().max())


def differs(got: torch.Tensor, runs: Sequence[torch.Tensor]) -> str:
    """Empty where ``got`` may be one more of ``runs`` (RUNS + HELD_OUT of them); else how it shows."""
    stacked = torch.stack([run.to(torch.float64) for run in runs])
    value = got.to(torch.float64)
    if not torch.equal(torch.isfinite(value), torch.isfinite(stacked[-1])):
        return "differs in NaN or Inf"
    stacked, value = stacked.nan_to_num(0.0, 0.0, 0.0), value.nan_to_num(0.0, 0.0, 0.0)
    base, held = stacked[:-HELD_OUT], stacked[-HELD_OUT:]
    value = snapped(value, base, got.dtype)
    strange = _strange(value, base)
    honest_strange = max(_strange(one, base) for one in held)
    if strange > 4 * honest_strange + max(2, value.numel() // 200):
        return f"{strange} of {value.numel()} elements lie where the reference never does"
    mine, theirs = features(value, base), [features(one, base) for one in held]
    chance = math.sqrt(-math.log(CHANCE / 2) / value.numel())
    for name in ("rank", "nearest"):
        others = [getattr(one, name) for one in theirs]
        honest = max(distance(others[i], others[j]) for i in range(HELD_OUT) for j in range(i))
        far = min(distance(getattr(mine, name), other) for other in others)
        if far > chance + 3 * honest:
            return f"another distribution ({name}: distance {far:.3f}, at most {chance + 3 * honest:.3f} expected)"
    return structure(value, stacked)


def structure(value: torch.Tensor, runs: torch.Tensor) -> str:
    """Empty where ``value`` looks like one more of ``runs`` (first dimension) slice by slice; else how it does not.

    If it is one more of them, all of them are exchangeable. So each is ranked among all others, the same numbers are
    taken from each, and the limits lie a margin beyond the largest of the runs' own: however much of its randomness
    the reference shares between elements, the runs share it too.
    """
    everyone = _thinned(torch.cat([runs, value[None]]))
    shape = tuple(everyone.shape[1:])
    ranks = {"size": _ranks_among(everyone.abs()), "rank": _ranks_among(everyone)}
    ranks["off centre"] = (ranks.pop("rank") - 0.5).abs()
    for dim, count in enumerate(shape):
        members = math.prod(shape) // max(count, 1)
        if count < 2 or members < SLICE_LEAST:
            continue
        for name, feature in ranks.items():
            slices = feature.reshape(len(everyone), *shape).movedim(dim + 1, 1).reshape(len(everyone), count, -1)
            found = _beyond(_farthest(slices))
            if found:
                return f"a slice of dimension {dim} is drawn otherwise ({name}: {found})"
            found = _beyond(_excess(slices))
            if found:
                return f"slices of dimension {dim} are drawn otherwise ({name}: {found})"
            found = _beyond(_likeness(slices)) if name == "size" else ""
            if found:
                return f"slices of dimension {dim} share their random numbers ({found})"
    return ""


def _thinned(everyone: torch.Tensor) -> torch.Tensor:
    """At most MOST elements of each run: evenly spread along the longest dimension, beginning anywhere."""
    while everyone[0].numel() > MOST:
        dim = max(range(1, everyone.dim()), key=lambda d: everyone.shape[d])
        step = min(everyone.shape[dim], -(-everyone[0].numel() // MOST))
        start = int(torch.randint(step, ()))
        everyone = everyone[(slice(None),) * dim + (slice(start, None, step),)]
    return everyone


def _ranks_among(everyone: torch.Tensor) -> torch.Tensor:
    """For each run the share of the other runs below it, element by element, ties counted half."""
    flat = everyone.reshape(len(everyone), -1)
    found = torch.empty_like(flat)
    for index, one in enumerate(flat):
        below, same = (flat < one).sum(0), (flat == one).sum(0)
        found[index] = (below + (same - 1) / 2) / (len(flat) - 1)
    return found


def _apart(slices: torch.Tensor) -> torch.Tensor:
    """Means of slices against those of all other runs, in standard errors (runs x slices)."""
    error = max(float(slices.std()), 1e-3) / math.sqrt(slices.shape[2])
    means, others = slices.mean(2), len(slices) - 1
    return (means - (means.sum(0) - means) / others) / (error * math.sqrt(1 + 1 / others))


def _farthest(slices: torch.Tensor) -> torch.Tensor:
    """Per run, the largest distance of a slice's mean."""
    return _apart(slices).abs().amax(1)


def _excess(slices: torch.Tensor) -> torch.Tensor:
    """Per run, how much its slices' means scatter beyond chance, in deviations of a chi-squared law."""
    count = slices.shape[1]
    return (_apart(slices).square().sum(1) - count) / math.sqrt(2 * count)


def _likeness(slices: torch.Tensor) -> torch.Tensor:
    """Per run, the largest correlation of two slices (of at most MOST_SLICES, and all neighbours), in its errors."""
    rows = slices[:, :, :MOST_MEMBERS]
    rows = rows - rows.mean(2, keepdim=True)
    rows = rows / rows.norm(dim=2, keepdim=True).clamp_min(1e-12)
    step = -(-rows.shape[1] // MOST_SLICES)
    some = rows[:, int(torch.randint(step, ())) :: step]
    table = some @ some.transpose(1, 2)
    table.diagonal(dim1=1, dim2=2).zero_()
    beside = (rows[:, 1:] * rows[:, :-1]).sum(2).abs().amax(1)
    return torch.maximum(table.abs().amax((1, 2)), beside) * math.sqrt(rows.shape[2])


def _beyond(found: torch.Tensor) -> str:
    """Empty unless the last run's number lies beyond those of all others by a margin no chance explains."""
    *others, mine = found.tolist()
    limit = MARGIN[0] * max(others) + MARGIN[1]
    return f"{mine:.1f} where runs of the reference reach {max(others):.1f}" if mine > limit else ""


def snapped(value: torch.Tensor, base: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``value`` with the elements that lie within rounding (of ``dtype``) of a run's moved onto it.

    Where a law has atoms (dropout keeps x / 0.6 or gives 0) honest programs round the atom differently, and a rank
    among ties tells one ulp from none."""
    tolerance = 4 * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    distance = (base - value).abs()
    closest = distance.argmin(0, keepdim=True)
    near = distance.gather(0, closest).squeeze(0) <= tolerance * value.abs()
    return torch.where(near, base.gather(0, closest).squeeze(0), value)


def _strange(value: torch.Tensor, base: torch.Tensor) -> int:
    """Elements more than twice the range of the runs outside it; all of them where an element is not random."""
    low, high = base.amin(0), base.amax(0)
    room = 2 * (high - low) + 1e-5 * _size(base)
    return int(((value < low - room) | (value > high + room)).sum())


def repeated(first: Drawn, second: Drawn, honest: Sequence[Drawn]) -> bool:
    """Whether two calls drew the same randomness, where ``honest`` runs of the second call do not share theirs."""
    if first.rank.shape != second.rank.shape or first.rank.numel() < 32:
        return False
    for name in ("rank", "off_centre"):
        found = _correlation(getattr(first, name), getattr(second, name))
        usual = max(abs(_correlation(getattr(first, name), getattr(one, name))) for one in honest)
        if found > SAME and usual < SAME / 2:
            return True
    return False


def _correlation(first: torch.Tensor, second: torch.Tensor) -> float:
    x, y = first - first.mean(), second - second.mean()
    size = float((x.square().sum() * y.square().sum()).sqrt())
    return float((x * y).sum()) / size if size > 0 else 0.0
