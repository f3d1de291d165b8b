# SPDX-License-Identifier: Apache-2.0
"""Random outputs slice by slice: a few rows that are never dropped, one mask for all rows, as many drops in each.

The distribution over all elements (``distribution``) sees none of these.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import torch

SLICE_LEAST = 32
"""Slices of fewer elements are not looked at one by one."""
MOST_SLICES, MOST_MEMBERS = 256, 1024
"""Slices, and elements of each, that are correlated with each other."""
ECHOES = 9
"""Runs, the one in question among them, in which numbers that come again are looked for: enough to know how far chance
reaches where the largest of so many numbers hardly varies."""
EVEN = 12.0
"""Standard deviations by which the logarithm of a scatter may lie below that of honest runs."""
USUAL = (1.0, 1.3)
"""Mean, of either sign, and scatter over 36 runs that a standard normal number has at the most."""
LESS = 0.6
"""Share of the least likeness of two slices in any run of the reference."""
CERTAIN = 7.0
"""Standard deviations of the others beyond their mean from which on one is no chance: of Student's numbers with 35
degrees of freedom one in 10^7 is. Of a few runs' echoes it is twice what is the most that is usual: softmax rows, drawn
together, gave 1.6 times."""
TAILS = 0.25
"""Excess kurtosis of a slice's mean from which on it is no normal number: of 256 elements of a likelihood of 0.015."""
MARGIN = (0.3, 2.0)
"""Share of the largest number of an honest run beyond it, and standard errors on top: what a
candidate's number may reach."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One way in which a run does not look like the others."""

    words: str
    certain: bool
    """The others vary as numbers do that are drawn for each element alone, so chance does not explain it. Where they
    share their numbers (a row that is dropped, a crop) the rarest of 36 runs says nothing of what the next one may be:
    that takes several calls (``draws.Draws``)."""


def signs(shape: tuple[int, ...], by_value: torch.Tensor, by_size: torch.Tensor) -> Iterator[Sign]:
    """How the last run does not look like one more of the others, slice by slice; nothing where it does.

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
        if int(drawn.sum()) < (2 if members >= SLICE_LEAST else SLICE_LEAST):
            continue
        for name, feature in ranks.items():
            slices = feature.reshape(len(feature), *shape).movedim(dim + 1, 1).reshape(len(feature), count, -1)
            slices = slices if bool(drawn.all()) else slices[:, drawn]  # a copy of all for nothing, else
            if slices.shape[1] >= SLICE_LEAST:  # a roll by a random distance, of values in order
                said = f"slices of dimension {dim} go with those further on ({name}: "
                yield from _beyond(_echo(slices[-ECHOES:].mean(2)), 2 * slices.shape[1], said)
            if members < SLICE_LEAST:
                continue
            seldom, said = _seldom(slices), f"slices of dimension {dim} are drawn otherwise ({name}: "
            apart = _apart(slices)
            for kind, sure in ((apart[:, ~seldom], True), (apart[:, seldom], False)):
                if kind.shape[1]:
                    one = f"a slice of dimension {dim} is drawn otherwise ({name}: "
                    yield from _beyond(kind.abs().amax(1), kind.shape[1], one, sure=sure)
            yield from _beyond(_excess(apart), 0, said, sure=not bool(seldom.any()))
            yield from _too_even(slices, said)
            if name == "size":
                said = f"slices of dimension {dim} share their random numbers ("
                likeness = _likeness(slices)
                yield from _beyond(likeness, count * (count - 1) // 2, said)
                yield from _shared_less(likeness, f"slices of dimension {dim} do not share their random numbers (")
    for name, feature in ranks.items():
        some = feature[-ECHOES:, varies]
        if some.shape[1] > 1:
            said = f"elements share their random numbers with elements further on ({name}: "
            yield from _beyond(_echo(some), 2 * some.shape[1], said)


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


def _seldom(slices: torch.Tensor) -> torch.Tensor:
    """Which slices' means are not as good as normal over the runs, for want of elements that vary in more than a few:
    by the excess kurtosis that a mean of independent numbers has. Of a slice that varies in one run alone that run lies
    6 errors off, whatever was drawn there: classes of large logits were refused in one proof of ten."""
    centred = slices - slices.mean(0)
    squares = centred.square_()  # pow(4) takes four times as long as two squares
    second, fourth = squares.mean(0), squares.square().mean(0)
    return (fourth - 3 * second.square()).sum(1) > TAILS * second.sum(1).square()


def _apart(slices: torch.Tensor) -> torch.Tensor:
    """Means of slices against those of all other runs, in standard errors (runs x slices): of each slice its own."""
    scatter = (slices - slices.mean(0)).square_().sum(0) / (len(slices) - 1)  # a fifth of what var takes over runs
    error = (scatter.mean(1) / slices.shape[2]).sqrt().clamp_min(1e-3 / math.sqrt(slices.shape[2]))
    means, others = slices.mean(2), len(slices) - 1
    return (means - (means.sum(0) - means) / others) / (error * math.sqrt(1 + 1 / others))


def _excess(apart: torch.Tensor) -> torch.Tensor:
    """Per run, how much its slices' means scatter beyond chance, as a standard normal number.

    By Wilson and Hilferty's (1931) cube root: a chi-squared number of two slices, merely standardised, would lie
    beyond the limits of ``_beyond`` once in 500 calls.
    """
    part = 2 / (9 * apart.shape[1])
    return (apart.square().mean(1).pow(1 / 3) - (1 - part)) / math.sqrt(part)


def _too_even(slices: torch.Tensor, said: str) -> Iterator[Sign]:
    """Whether the last run's slices are more alike than chance makes them, as with as many drops in every row.

    The scatter of their means about the run's own, by its logarithm: the honest runs say how far that varies, however
    much they share. Of a chi-squared number of 1 degree of freedom, the worst there is, one in 10^6 lies EVEN below.
    """
    if slices.shape[1] < SLICE_LEAST // 2:
        return
    means = slices.mean(2)
    scatter = (means - means.mean(1, keepdim=True)).square().mean(1)
    least = 1e-6 * float(slices.var()) / slices.shape[2]
    *others, mine = scatter.clamp_min(max(least, 1e-30)).log().tolist()
    chance = math.sqrt(2 / slices.shape[1])
    # Where slices lie apart in all runs alike, scatter hardly varies: 0.88 times as much was called too even.
    below, usual = statistics.fmean(others) - mine, max(statistics.stdev(others), chance / 2)
    if below > EVEN * usual:
        yield Sign(f"{said}{math.exp(-below):.2g} times the scatter)", usual < 2 * chance)


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


def _beyond(found: torch.Tensor, places: int, said: str, *, sure: bool = True) -> Iterator[Sign]:
    """Whether the last run's number lies beyond those of all others by a margin that no chance explains. ``places``:
    of so many numbers each is the largest, in standard errors; 0: it is such a number itself.

    Certain where the others are as the largest of independent normal numbers are: on the mean over runs 0.68 (of one)
    to 0.88 (of 256) times sqrt(2 ln 2n), with a scatter of 0.6 to 0.4. Slices that share their numbers have fewer that
    are independent: the largest is smaller, or larger by as much as they go together, or scatters more. Not ``sure``:
    never.
    """
    *others, mine = found.tolist()
    most = max(others)
    if mine <= most + MARGIN[0] * abs(most) + MARGIN[1]:
        return
    usual = math.sqrt(2 * math.log(2 * max(places, 1)))
    low, high, spread = (0.6 * usual, 1.1 * usual, 0.9) if places else (-USUAL[0], USUAL[0], USUAL[1])
    highest = math.sqrt(2 * math.log(2 * len(others) * max(places, 1))) + 1.0
    mean, scatter = statistics.fmean(others), statistics.stdev(others)
    far = mine > (mean + CERTAIN * scatter if len(others) > ECHOES else 2 * highest)
    yield Sign(
        f"{said}{mine:.1f} where runs of the reference reach {most:.1f})",
        certain=sure and far and most <= highest and low <= mean <= high and scatter <= spread,
    )


def _shared_less(found: torch.Tensor, said: str) -> Iterator[Sign]:
    """Whether the last run's slices are less alike than those of all others: a mask for each element, not one a row."""
    *others, mine = found.tolist()
    if mine < LESS * min(others):
        yield Sign(f"{said}{mine:.1f} where runs of the reference have {min(others):.1f} at the least)", certain=False)
