# SPDX-License-Identifier: Apache-2.0
"""Random outputs compared as distributions: every element against its own distribution over runs of the reference.

Method: RUNS reference runs on the same inputs give each element of a further run two features: its rank among them
and its distance to the nearest of them. The candidate's features are compared with those of held-out reference runs
by the two-sample Kolmogorov-Smirnov distance; how far the held-out runs lie from each other widens the limit, so
randomness that elements share (one random factor for all) refuses nobody.

That alone sees neither a few rows that are never dropped nor one mask for all rows: ``structure`` looks at slices.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

RUNS = 32
HELD_OUT = 4
CHANCE = 1e-9
"""How often an honest program may be refused by the Kolmogorov-Smirnov distance alone."""
MARGIN = (0.3, 2.0)
"""Share of the largest number of an honest run beyond it, and standard errors on top: what a
candidate's number may reach."""
SLICE_LEAST = 32
"""Slices of fewer elements are not looked at one by one."""
MOST = 1 << 17
"""Elements of a run that are looked at slice by slice."""
MOST_SLICES, MOST_MEMBERS = 256, 1024
"""Slices, and elements of each, that are correlated with each other."""
ECHOES = 9
"""Runs, the one in question among them, in which numbers that come again are looked for: enough to know how far chance
reaches where the largest of so many numbers hardly varies."""
REMEMBERED = 12
"""Earlier calls that a call is compared with."""
LEAST_ERROR = 0.1
"""Share of the standard error of independent numbers that one of mean ranks is taken for at the least. Rows in another
order have the same mean whatever the order, to 1e-17 where all but one are zero: torch.randperm itself was refused."""
EVEN = 12.0
"""Standard deviations by which the logarithm of a scatter may lie below that of honest runs."""
MOST_RELATED = 1 << 12
"""Elements of two outputs that are looked at together: a standard error is 1/64."""
RELATED = 4.0
"""Standard errors by which two outputs of a call may go together otherwise, beyond what runs of the reference show."""
SAME = 0.5
"""Correlation of features between two calls from which the randomness counts as repeated."""
SHIFTED, MOST_SHIFTED = 1 << 12, 1 << 20
"""Elements from which on shifted numbers are looked for (of so many places the luckiest correlates by 0.06), and of how
many."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The features of one random output in one call, flat float64."""

    rank: torch.Tensor
    """Share of the runs below the value, ties counted half."""
    size: torch.Tensor
    """The same of magnitudes: shows a repeated mask whatever the signs of the inputs."""
    nearest: torch.Tensor
    """Distance to the nearest run, in units of the runs' range."""


def features(value: torch.Tensor, runs: torch.Tensor) -> Drawn:
    """Features of ``value`` among ``runs`` (first dimension), float64."""
    rank, size = _rank(value, runs), _rank(value.abs(), runs.abs())
    spread = (runs.amax(0) - runs.amin(0)).clamp_min(1e-6 * _size(runs) + 1e-300)
    nearest = ((runs - value).abs().amin(0) / spread).reshape(-1)
    return Drawn(rank, size, nearest)


def _rank(value: torch.Tensor, runs: torch.Tensor) -> torch.Tensor:
    below, same = ((kind.sum(0, dtype=torch.int16)).to(torch.float64) for kind in (runs < value, runs == value))
    return ((below + same / 2) / len(runs)).reshape(-1)


def _size(runs: torch.Tensor) -> float:
    return float(runs.square().mean().sqrt())


def distance(first: torch.Tensor, second: torch.Tensor) -> float:
    """Two-sample Kolmogorov-Smirnov distance of two flat samples."""
    return _between(_ordered(first), _ordered(second))


def _ordered(sample: torch.Tensor) -> np.ndarray:
    return np.sort(sample.cpu().numpy())


def _between(first: np.ndarray, second: np.ndarray) -> float:
    """``distance`` of two samples in order."""
    both = np.sort(np.concatenate([first, second]), kind="stable")  # two runs in order: merged, not sorted
    left = np.searchsorted(first, both, side="right") / len(first)
    right = np.searchsorted(second, both, side="right") / len(second)
    return float(np.abs(left - right).max())


@dataclass(frozen=True, slots=True)
class Look:
    """What one call shows."""

    detail: str
    """Empty where the output may be one more run of the reference; else how it shows."""
    tilts: tuple[float, ...]
    """How far its mean ranks lie from those of the runs, in standard errors: by value, size, and scatter. Empty where
    nothing is random, or enough is known.

    One call of 32768 elements cannot tell a dropout rate of 0.52 from 0.50 (7 standard errors, where the most of so
    many honest numbers reach 6); but each is an honest number of mean 0, so over calls they add up.
    """
    mine: Drawn | None = None
    theirs: tuple[Drawn, ...] = ()
    """Its features and those of honest runs; None where they were not asked for."""


def differs(got: torch.Tensor, runs: Sequence[torch.Tensor]) -> str:
    """Empty where ``got`` may be one more of ``runs`` (RUNS + HELD_OUT of them); else how it shows."""
    return look(got, runs).detail


def look(got: torch.Tensor, runs: Sequence[torch.Tensor]) -> Look:
    """Whether ``got`` may be one more of ``runs`` (RUNS + HELD_OUT of them)."""
    stacked = torch.stack([run.to(torch.float64) for run in runs])
    value = got.to(torch.float64)
    if not torch.equal(torch.isfinite(value), torch.isfinite(stacked[-1])):
        return Look("differs in NaN or Inf", ())
    stacked, value = stacked.nan_to_num(0.0, 0.0, 0.0), value.nan_to_num(0.0, 0.0, 0.0)
    base, held = stacked[:-HELD_OUT], stacked[-HELD_OUT:]
    value = snapped(value, base, got.dtype)
    strange = _strange(value, base)
    honest_strange = max(_strange(one, base) for one in held)
    if strange > 4 * honest_strange + max(2, value.numel() // 200):
        return Look(f"{strange} of {value.numel()} elements lie where the reference never does", ())
    mine, theirs = features(value, base), tuple(features(one, base) for one in held)
    said = _otherwise(mine, theirs)
    if said:
        return Look(said, ())
    everyone = _thinned(torch.cat([stacked, value[None]]))
    ranks = _ranks_among(everyone), _ranks_among(everyone.abs())
    said = structure(tuple(everyone.shape[1:]), *ranks)
    return Look(said, () if said else _tilts(everyone, *ranks), mine, theirs)


def _otherwise(mine: Drawn, theirs: Sequence[Drawn]) -> str:
    """Empty where the features are distributed as those of honest runs are; else which are not."""
    chance = math.sqrt(-math.log(CHANCE / 2) / mine.rank.numel())
    for name in ("rank", "nearest"):
        others = [_ordered(getattr(one, name)) for one in theirs]
        own = _ordered(getattr(mine, name))
        honest = max(_between(others[i], others[j]) for i in range(len(others)) for j in range(i))
        far = min(_between(own, other) for other in others)
        if far > chance + 3 * honest:
            return f"another distribution ({name}: distance {far:.3f}, at most {chance + 3 * honest:.3f} expected)"
    return ""


def _tilts(everyone: torch.Tensor, by_value: torch.Tensor, by_size: torch.Tensor) -> tuple[float, ...]:
    """``Look.tilts`` of the last run of ``everyone``; elements that are not random take no part."""
    flat = everyone.reshape(len(everyone), -1)
    few = flat.shape[1] < SLICE_LEAST
    spread = flat.amax(0) - flat.amin(0)  # of this run too, or it alone would have fewer elements that chance chose
    drawn = spread > 1e-4 * _size(flat if few else flat[:-1])
    if (count := int(drawn.sum())) < (1 if few else SLICE_LEAST):
        return ()
    least = LEAST_ERROR / math.sqrt(12 * count)
    found = []
    for ranks in (by_value, by_size, (by_value - 0.5).abs()):
        *others, mine = ranks[:, drawn].mean(1).tolist()
        # Of few elements the mean of ranks is no normal number, but among all runs it has a bound: ``limit_of_few``.
        known = [*others, mine] if few else others
        error = max(statistics.stdev(known), least) * math.sqrt(1 + 1 / len(known))
        error = statistics.pstdev(known) if few else error
        found.append((mine - statistics.fmean(known)) / error if error > 0 else 0.0)
    return tuple(found)


def unrelated(values: Sequence[torch.Tensor], columns: Sequence[Sequence[torch.Tensor]], names: Sequence[str]) -> str:
    """Empty where the random outputs of one call belong together as those of the reference's runs do.

    A mask and what it masked, a result and its gradient: each may follow its law with numbers of its own. Outputs of
    one shape are ranked among the runs element by element; how the ranks of two go together must not lie beyond the
    runs' own by more than these lie apart, and RELATED standard errors.
    """
    ranked = {}
    for index, (value, column) in enumerate(zip(values, columns, strict=True)):
        everyone = torch.stack([*column, value.to(column[0].device)]).to(torch.float64).nan_to_num(0.0, 0.0, 0.0)
        flat = everyone.reshape(len(everyone), -1)
        flat = flat[:, :: -(-max(flat.shape[1], 1) // MOST_RELATED)]
        if flat.shape[1] >= 2 * SLICE_LEAST and not bool((flat[0] == flat[:-1]).all()):
            ranked[index] = [_ranks_among(kind) - 0.5 for kind in (flat, flat.abs())]
    for one, other in itertools.combinations(ranked, 2):
        if values[one].shape != values[other].shape:
            continue
        for mine, theirs in itertools.product(ranked[one], ranked[other]):
            sizes = (mine.square().sum(1) * theirs.square().sum(1)).sqrt().clamp_min(1e-12)
            *honest, found = ((mine * theirs).sum(1) / sizes).tolist()
            margin = max(honest) - min(honest) + RELATED / math.sqrt(mine.shape[1])
            if not min(honest) - margin <= found <= max(honest) + margin:
                near = f"{found:.2f} where runs of the reference have {min(honest):.2f} to {max(honest):.2f}"
                return f"{names[one]} and {names[other]} are not drawn together (correlation {near})"
    return ""


def structure(shape: tuple[int, ...], by_value: torch.Tensor, by_size: torch.Tensor) -> str:
    """Empty where the last run looks like one more of the others slice by slice; else how it does not.

    All of them are exchangeable if it is one more of them. So each is ranked among all others (by value and by size,
    runs x elements), the same numbers are taken from each, and the limits lie a margin beyond the largest of the
    others' own: however much of its randomness the reference shares between elements, they share it too. Elements that
    are the same in every run count for nothing, in standard errors either: of 128 rows of which one was not zero,
    honest dropout was refused in one call of 75.
    """
    ranks = {"size": by_size, "off centre": (by_value - 0.5).abs()}
    varies = (by_value != by_value[:1]).any(0)
    for dim, count in enumerate(shape):
        members = math.prod(shape) // max(count, 1)
        drawn = varies.reshape(shape).movedim(dim, 0).reshape(count, -1).any(1)
        if int(drawn.sum()) < 2 or members < SLICE_LEAST:
            continue
        for name, feature in ranks.items():
            slices = (
                feature.reshape(len(feature), *shape).movedim(dim + 1, 1).reshape(len(feature), count, -1)[:, drawn]
            )
            found = _beyond(_farthest(slices))
            if found:
                return f"a slice of dimension {dim} is drawn otherwise ({name}: {found})"
            found = _beyond(_excess(slices)) or _too_even(slices)
            if found:
                return f"slices of dimension {dim} are drawn otherwise ({name}: {found})"
            found = _beyond(_likeness(slices)) if name == "size" else ""
            if found:
                return f"slices of dimension {dim} share their random numbers ({found})"
    for name, feature in ranks.items():
        some = feature[-ECHOES:, varies]
        found = _beyond(_echo(some)) if some.shape[1] > 1 else ""
        if found:
            return f"elements share their random numbers with elements further on ({name}: {found})"
    return ""


def _echo(feature: torch.Tensor) -> torch.Tensor:
    """Per run, the largest correlation of its elements with those some distance on, or some distance from the other
    end in reverse, over all distances, in its errors. By the convolution theorem."""
    centred = feature - feature.mean(1, keepdim=True)
    count = centred.shape[1]
    size = centred.square().sum(1, keepdim=True).clamp_min(1e-12)
    waves = torch.fft.rfft(centred, n=2 * count)  # twice as long: no element meets one of the other end
    onwards = torch.fft.irfft(waves * waves.conj(), n=2 * count)[:, 1:count]
    mirrored = torch.fft.irfft(waves * waves, n=2 * count) / 2  # each pair is met twice
    return torch.maximum(onwards.abs().amax(1, keepdim=True), mirrored.abs().amax(1, keepdim=True)).div(size).squeeze(
        1
    ) * math.sqrt(count)


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
    columns = np.ascontiguousarray(everyone.reshape(len(everyone), -1).cpu().numpy().T)
    order = np.argsort(columns, axis=1)
    values = np.take_along_axis(columns, order, axis=1)
    count = columns.shape[1]
    at = np.broadcast_to(np.arange(count, dtype=np.int16), values.shape)
    change = values[:, 1:] != values[:, :-1]
    edge = np.ones((len(values), 1), dtype=bool)
    first = np.maximum.accumulate(np.where(np.concatenate([edge, change], axis=1), at, 0), axis=1)
    ends = np.where(np.concatenate([change, edge], axis=1), at, count - 1)
    last = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    found = np.empty(values.shape)
    np.put_along_axis(found, order, (first + last) / (2.0 * (count - 1)), axis=1)
    return torch.from_numpy(np.ascontiguousarray(found.T)).to(everyone.device)


def _apart(slices: torch.Tensor) -> torch.Tensor:
    """Means of slices against those of all other runs, in standard errors (runs x slices): of each slice its own."""
    error = (slices.var(0).mean(1) / slices.shape[2]).sqrt().clamp_min(1e-3 / math.sqrt(slices.shape[2]))
    means, others = slices.mean(2), len(slices) - 1
    return (means - (means.sum(0) - means) / others) / (error * math.sqrt(1 + 1 / others))


def _farthest(slices: torch.Tensor) -> torch.Tensor:
    """Per run, the largest distance of a slice's mean."""
    return _apart(slices).abs().amax(1)


def _excess(slices: torch.Tensor) -> torch.Tensor:
    """Per run, how much its slices' means scatter beyond chance, as a standard normal number.

    By Wilson and Hilferty's (1931) cube root: a chi-squared number of two slices, merely standardised, would lie
    beyond the limits of ``_beyond`` once in 500 calls.
    """
    part = 2 / (9 * slices.shape[1])
    return (_apart(slices).square().mean(1).pow(1 / 3) - (1 - part)) / math.sqrt(part)


def _too_even(slices: torch.Tensor) -> str:
    """Empty unless the last run's slices are more alike than chance makes them, as with as many drops in every row.

    The scatter of their means about the run's own, by its logarithm: the honest runs say how far that varies, however
    much they share. Of a chi-squared number of 1 degree of freedom, the worst there is, one in 10^6 lies EVEN below.
    """
    if slices.shape[1] < SLICE_LEAST // 2:
        return ""
    means = slices.mean(2)
    scatter = (means - means.mean(1, keepdim=True)).square().mean(1)
    least = 1e-6 * float(slices.var()) / slices.shape[2]
    *others, mine = scatter.clamp_min(max(least, 1e-30)).log().tolist()
    below = statistics.fmean(others) - mine
    return f"{math.exp(-below):.2g} times the scatter" if below > EVEN * max(statistics.stdev(others), 1e-3) else ""


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
    most = max(others)
    limit = most + MARGIN[0] * abs(most) + MARGIN[1]
    return f"{mine:.1f} where runs of the reference reach {most:.1f}" if mine > limit else ""


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
    """Whether two calls drew the same randomness, perhaps shifted, where ``honest`` runs of the second call share
    theirs with none."""
    if first.rank.shape != second.rank.shape or first.rank.numel() < 32:
        return False
    for name in ("rank", "size"):
        mine = getattr(first, name)
        if _alike(mine, getattr(second, name)) > SAME:
            if max(_alike(mine, getattr(one, name)) for one in honest) < SAME / 2:
                return True
    return False


def _alike(first: torch.Tensor, second: torch.Tensor) -> float:
    """The largest correlation of two features; from SHIFTED elements on, of the second turned by any number of places.

    By the cross-correlation theorem: all turns for the price of three Fourier transforms.
    """
    x, y = (feature[:MOST_SHIFTED] for feature in (first, second))
    x, y = x - x.mean(), y - y.mean()
    size = float((x.square().sum() * y.square().sum()).sqrt())
    if size <= 0:
        return 0.0
    if x.numel() < SHIFTED:
        return abs(float((x * y).sum())) / size
    turned = torch.fft.irfft(torch.fft.rfft(x).conj() * torch.fft.rfft(y), n=x.numel())
    return float(turned.abs().max()) / size
