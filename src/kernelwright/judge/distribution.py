# SPDX-License-Identifier: Apache-2.0
"""Random outputs compared as distributions: every element against its own distribution over runs of the reference.

Method: RUNS reference runs on the same inputs give each element of a further run two features: its rank among them
and its distance to the nearest of them. The candidate's features are compared with those of held-out reference runs
by the two-sample Kolmogorov-Smirnov distance; how far the held-out runs lie from each other widens the limit, so
randomness that elements share (one random factor for all) refuses nobody.

That alone sees neither a few rows that are never dropped nor one mask for all rows: ``patterns`` looks at slices.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kernelwright.judge import atoms, lasting, patterns
from kernelwright.judge.patterns import SLICE_LEAST, Sign

RUNS = 32
HELD_OUT = 4
CHANCE = 1e-9
"""How often an honest program may be refused by the Kolmogorov-Smirnov distance alone."""
MOST = 1 << 15
"""Elements of a run that are looked at."""
REMEMBERED = 12
"""Earlier calls that a call is compared with."""
LEAST_ERROR = 0.1
"""Share of the standard error of independent numbers that one of mean ranks is taken for at the least. Rows in another
order have the same mean whatever the order, to 1e-17 where all but one are zero: torch.randperm itself was refused."""
USUAL = (0.25, 2.2)
"""Standard errors that the Kolmogorov-Smirnov distance of a run is, at the least on the mean over runs and at the most
of one, where each element has numbers of its own (0.87 of continuous ones). It is less where nothing varies: the
nearest run is at distance 0 from all that are dropped, unless a row is that no other run has dropped."""
ALONE, ALONE_LEAST = (1 / 32, 1 / 2), 1 / 32
"""Parts of the range of an element over all runs, of the whole output's size (RMS) at the least, that the nearest of
the others is away: one of dropout that is kept and not scaled lies between two numbers, one of noise far outside."""
LAST, ROUNDED = 1 << 10, 8.0
"""Of a run with more than MOST elements the last are looked at too; and roundings that one may lie outside the range of
others."""
MOST_RELATED = 1 << 12
"""Elements of two outputs that are looked at together: a standard error is 1/64."""
RELATED = 4.0
"""Standard errors by which two outputs of a call may go together otherwise, beyond what runs of the reference show."""


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
    """``distance`` of two samples in order.

    Between two places of the smaller sample its own share stays and the other's rises, so that they lie furthest apart
    at one of these places or right before it: of 37 runs against all of them together that is 1 place in 37.
    """
    few, many = (first, second) if len(first) <= len(second) else (second, first)
    found = 0.0
    for side in ("left", "right"):
        here, there = np.searchsorted(few, few, side), np.searchsorted(many, few, side)
        found = max(found, float(np.abs(here / len(few) - there / len(many)).max()))
    return found


@dataclass(frozen=True, slots=True)
class Look:
    """What one call shows."""

    detail: str
    """Empty where the output may be one more run of the reference; else how it shows."""
    doubt: str
    """How it may show, where the runs of the reference say too little of what is rare among them."""
    tilts: tuple[float, ...]
    """How far its mean ranks lie from those of the runs, in standard errors: by value, size, and scatter. Empty where
    nothing is random, or enough is known.

    One call of 32768 elements cannot tell a dropout rate of 0.52 from 0.50 (7 standard errors, where the most of so
    many honest numbers reach 6); but each is an honest number of mean 0, so over calls they add up.
    """
    slices: lasting.Offsets | None = None
    """How far its slices lie off (``lasting``)."""
    mine: Drawn | None = None
    """Its features; None where they were not asked for."""
    theirs: Callable[[], Sequence[Drawn]] = tuple
    """Those of honest runs, each among the others."""


def differs(got: torch.Tensor, runs: Sequence[torch.Tensor]) -> str:
    """Empty where ``got`` may be one more of ``runs`` (RUNS + HELD_OUT of them); else how it shows."""
    return look(got, runs).detail


def look(got: torch.Tensor, runs: Sequence[torch.Tensor], noise: torch.Tensor | None = None) -> Look:
    """Whether ``got`` may be one more of ``runs`` (RUNS + HELD_OUT of them), which rounding moves by ``noise``.

    Of more than MOST elements some, evenly spread and beginning anywhere; whether numbers come again is seen of the
    first ones. All of them, 2^20, took 15 s of two cores for each call.
    """
    unfinished = [*_unfinished(got, runs), *_outside(got, runs, noise)]
    cut = _cut(tuple(got.shape))
    some, rounding = _wide([one[cut] for one in (*runs, got)]), None if noise is None else noise[cut]
    everyone, sizes = _leveled(some, got.dtype, rounding)
    stacked, value = _snapped(some, got.dtype, rounding)
    mine = features(value, stacked[:-HELD_OUT])
    ranks = _ranks_among(everyone), _ranks_among(sizes)
    shape = tuple(everyone.shape[1:])
    sliced = patterns.signs(shape, *ranks)
    doubt = ""
    strange = [_strange(value, stacked), _alone(everyone)]
    if value.numel() < got.numel():
        strange.append(_alone(_ends(got, runs, noise)))
    for sign in itertools.chain(unfinished, *strange, _otherwise(mine, stacked, everyone), sliced):
        if sign.certain:
            return Look(sign.words, "", ())
        doubt = doubt or sign.words
    if value.numel() < got.numel():
        rounding = None if noise is None else noise.reshape(-1)[:MOST]
        stacked, value = _snapped(_wide([one.reshape(-1)[:MOST] for one in (*runs, got)]), got.dtype, rounding)
        mine = features(value, stacked[:-HELD_OUT])
    theirs = functools.cache(functools.partial(_each, stacked))
    return Look("", doubt, _tilts(everyone, *ranks), lasting.offsets(tuple(got.shape), cut, ranks), mine, theirs)


def _wide(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Runs in one tensor, float64; 0 for what is not finite."""
    return torch.stack([one.to(torch.float64) for one in values]).nan_to_num(0.0, 0.0, 0.0)


def _snapped(
    everyone: torch.Tensor, dtype: torch.dtype, noise: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs, and the last one; what lies within rounding of the first runs is moved onto them, of the last runs too."""
    everyone, near = everyone.clone(), atoms.close(everyone[:-1], dtype, noise)
    for one in everyone[-HELD_OUT - 1 :]:
        one.copy_(atoms.snapped(one, everyone[: -HELD_OUT - 1], near))
    return everyone[:-1], everyone[-1]


def _each(runs: torch.Tensor) -> list[Drawn]:
    """Features of each run among the others."""
    return [features(one, _without(runs, index)) for index, one in enumerate(runs)]


def _without(runs: torch.Tensor, index: int) -> torch.Tensor:
    return torch.cat([runs[:index], runs[index + 1 :]])


def _unfinished(value: torch.Tensor, runs: Sequence[torch.Tensor]) -> Iterator[Sign]:
    """Whether NaN and Inf come where they do in the runs: an overflow by chance is where that of no other run is.
    Certain where the runs are far from any overflow."""
    finite, known = torch.isfinite(value), torch.stack([torch.isfinite(run) for run in runs])
    if bool(finite.all() and known.all()):
        return
    count = known.sum(0)

    def alone(one: torch.Tensor, others: torch.Tensor, so_many: int) -> int:
        return int(((one & (others == 0)) | (~one & (others == so_many))).sum())

    wrong, honest = alone(finite, count, len(runs)), [alone(one, count - one.int(), len(runs) - 1) for one in known]
    if wrong > 4 * max(honest):
        words = f"differs in NaN or Inf: {wrong} of {value.numel()} elements as in no run of the reference"
        room = math.sqrt(torch.finfo(value.dtype).max) if value.dtype.is_floating_point else math.inf
        sure = bool(known.all()) and max(float(run.abs().max()) for run in runs) < room
        yield Sign(words, certain=sure)


def _otherwise(mine: Drawn, runs: torch.Tensor, everyone: torch.Tensor) -> Iterator[Sign]:
    """Whether the features are distributed as those of honest runs are."""
    base, held = runs[:-HELD_OUT], runs[-HELD_OUT:]
    theirs = tuple(features(one, base) for one in held)
    chance = math.sqrt(-math.log(CHANCE / 2) / mine.rank.numel())
    for name in ("rank", "nearest"):
        others = [_ordered(getattr(one, name)) for one in theirs]
        own = _ordered(getattr(mine, name))
        honest = max(_between(others[i], others[j]) for i in range(len(others)) for j in range(i))
        far = min(_between(own, other) for other in others)
        if far > chance + 3 * honest:
            yield from _among_all(name, everyone)


def _among_all(name: str, everyone: torch.Tensor) -> Iterator[Sign]:
    """The same of the last of ``everyone``, each run held against all others: four may be alike by chance, where one
    number is drawn for all elements."""
    samples = [getattr(features(one, _without(everyone, i)), name) for i, one in enumerate(everyone)]
    pooled = _ordered(torch.stack(samples).reshape(-1))
    *others, mine = (_between(_ordered(sample), pooled) for sample in samples)
    count, honest = samples[0].numel(), max(others)
    most = math.sqrt(-math.log(CHANCE / 2) / count) + 3 * honest
    if mine > most:
        words = f"another distribution ({name}: distance {mine:.3f}, at most {most:.3f} expected)"
        usual = USUAL[0] < statistics.fmean(others) * math.sqrt(count) and honest * math.sqrt(count) < USUAL[1]
        yield Sign(words, usual)


def _outside(got: torch.Tensor, runs: Sequence[torch.Tensor], noise: torch.Tensor | None) -> Iterator[Sign]:
    """The same as ``_alone`` of all elements of many, of those that lie twice the range of the others outside it."""
    if got.numel() <= MOST or got.is_complex():
        return
    eps = torch.finfo(got.dtype).eps if got.dtype.is_floating_point else 0.0
    values = [one.to(torch.promote_types(one.dtype, torch.float32)).nan_to_num(0.0, 0.0, 0.0) for one in (*runs, got)]
    (low, next_low), (high, next_high) = _two_least(values), _two_least([-one for one in values])
    high, next_high = -high, -next_high
    least = ROUNDED * eps * torch.maximum(low.abs(), high.abs()) + 1e-5 * float(values[0].square().mean().sqrt())
    least = least if noise is None else least + atoms.NOISE * noise.to(least.dtype)
    below = (low < next_low - 2 * (high - next_low) - least, low)
    above = (high > next_high + 2 * (next_high - low) + least, high)
    *others, mine = (sum(int((far & (one == most)).sum()) for far, most in (below, above)) for one in values)
    if mine > 2 * max(others):
        words = f"{mine} elements lie far outside all runs of the reference, of which none has more than {max(others)}"
        yield Sign(words, certain=False)


def _two_least(values: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each element the least over ``values``, and the least of the others."""
    first, second = torch.minimum(values[0], values[1]), torch.maximum(values[0], values[1])
    for one in values[2:]:
        second = torch.minimum(second, torch.maximum(first, one))
        first = torch.minimum(first, one)
    return first, second


def _ends(got: torch.Tensor, runs: Sequence[torch.Tensor], noise: torch.Tensor | None) -> torch.Tensor:
    """All runs of the last elements of many: a kernel's blocks seldom end where they do."""
    everyone = _wide([one.reshape(-1)[-LAST:] for one in (*runs, got)])
    return _leveled(everyone, got.dtype, None if noise is None else noise.reshape(-1)[-LAST:])[0]


def _alone(everyone: torch.Tensor) -> Iterator[Sign]:
    """Whether the last run has elements like in none of the others, more than any of these. All runs are exchangeable
    if it is one more of them, so by chance it is the first of 37 once in 37 calls."""
    columns = np.ascontiguousarray(everyone.reshape(len(everyone), -1).cpu().numpy().T)
    order = np.argsort(columns, axis=1)
    ordered = np.take_along_axis(columns, order, axis=1)
    steps = np.diff(ordered, axis=1, prepend=-math.inf, append=math.inf)
    nearest = np.minimum(steps[:, :-1], steps[:, 1:])
    range_ = ordered[:, -1:] - ordered[:, :1]
    least = ALONE_LEAST * math.sqrt(float(np.square(columns).mean()))
    for share in ALONE:
        places = np.zeros(columns.shape, dtype=bool)
        np.put_along_axis(places, order, nearest > np.maximum(share * range_, least), axis=1)
        *others, mine = places.sum(0).tolist()
        if mine > 2 * max(others):
            words = f"{mine} elements are like in no run of the reference, of which none has more than {max(others)}"
            yield Sign(words, certain=False)


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
            ranked[index] = [_ranks_among(kind) - 0.5 for kind in _leveled(flat, value.dtype)]
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


def _leveled(
    everyone: torch.Tensor, dtype: torch.dtype, noise: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs of which the last is another's, and their magnitudes, less what is rounding (``atoms``)."""
    near = atoms.close(everyone[:-1], dtype, noise)
    return atoms.leveled(everyone, near), atoms.leveled(everyone.abs(), near)


def _cut(shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Of so many elements at most MOST: every second along the longest dimension, again and again, beginning anywhere.
    Of one dimension alone it would be 1 of 64 channels, all of which were dropped or kept as one."""
    cut, sizes = [slice(None)] * len(shape), list(shape)
    while math.prod(sizes) > MOST:
        dim = max(range(len(sizes)), key=sizes.__getitem__)
        step = 2 * (cut[dim].step or 1)
        cut[dim] = slice(int(torch.randint(min(step, shape[dim]), ())), None, step)
        sizes[dim] = len(range(shape[dim])[cut[dim]])
    return tuple(cut)


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


def _strange(value: torch.Tensor, runs: torch.Tensor) -> Iterator[Sign]:
    """Whether elements lie more than twice the range of the runs outside it; all do where an element is not random.

    Certain where half of those that are random do. What is the same in all runs may be so by chance: a row that is
    seldom dropped.
    """
    base = runs[:-HELD_OUT]
    low, high = base.amin(0), base.amax(0)
    least = 1e-5 * _size(base)

    def outside(one: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        room = 2 * (high - low) + least
        return (one < low - room) | (one > high + room)

    found = outside(value, low, high)
    some = max(2, value.numel() // 200)
    if int(found.sum()) <= some + 4 * max(int(outside(one, low, high).sum()) for one in runs[-HELD_OUT:]):
        return
    honest = 0
    for index, one in enumerate(runs):
        others = _without(runs, index)
        honest = max(honest, int(outside(one, others.amin(0), others.amax(0)).sum()))
    low, high = runs.amin(0), runs.amax(0)
    found, some = outside(value, low, high), max(2, value.numel() // 200)
    if (count := int(found.sum())) > some + 4 * honest:
        random_ = high > low
        certain = int((found & random_).sum()) * 2 > max(int(random_.sum()), some)
        yield Sign(f"{count} of {value.numel()} elements lie where the reference never does", certain)
