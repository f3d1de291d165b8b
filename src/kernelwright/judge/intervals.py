# SPDX-License-Identifier: Apache-2.0
"""What is known of times and their ratios: every interval is a 95 % percentile bootstrap (Efron 1979) of a median, of
times or of the ratios of times taken in one round, since what disturbs a round mostly disturbs both sides of its pair.

Times are microseconds per call.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kernelwright.trial import Baseline, Timing

RESAMPLES = 2000
PROCESSES = 0.0036
"""Half the 95 % interval of what two processes of one program differ by, as a share: where their memory lies, when
their clocks rose. Of 38 races of a program against itself on an H200 the ratios scattered by 0.25 %, of which rounds
explained 0.16 %."""
OF_ROUNDS, APART = 0.8, 0.08
"""The same on a CPU, as standard deviations: over that of the rounds, and at the most. On a 2-core virtual machine, in
40 to 50 proofs each of a program against itself: RMSNorm of 16 MiB 7 % beside rounds of 9 %, softmax 2 beside 8, a
GELU 4 beside 13, a linear layer 7 beside 10. On the H200 it was 0.19 beside 0.65 %."""
HOSTED, HOSTED_APART = 0.005, 0.012
"""Scatter of rounds on a device above which its host sets the pace, and by how much processes differ then, at the most,
as a standard deviation. Where calls of 75 us had 10 us of work for an H100, medians of 56 processes scattered by 1.2 to
1.5 % (rounds by 1 to 10 %), and without this 70 of 93 intervals of a program against itself held 1. Where the device
sets the pace rounds scatter by 0.5 to 0.65 %, and by 1.4 % on another host; medians of processes by 0.3 % there too."""
DEVICE_APART = 0.0015
"""And where the device does: beside one process of eager's, the mean of ten to a hundred ratios was off by 0.14 % (RMS,
15 sessions on five machines), once by 0.34 %, where 3 of 14 intervals missed 1."""
PACED = 0.5
"""Where what no program can avoid is this share of the slower one's time, the device sets the pace: 0.9 for the calls
of 142 us in which those 1.4 % were seen, 0.15 for those of 75."""


def median_interval(samples: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """95 % bootstrap interval of the median of ``samples`` (any unit, at least one)."""
    values = np.asarray(samples, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, len(values), size=(RESAMPLES, len(values)))
    medians = np.median(values[picks], axis=1)
    low, high = np.percentile(medians, (2.5, 97.5))
    return float(low), float(high)


def ratio_interval(over: Sequence[float], under: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """(median ratio, low, high) of paired samples: pair i comes from round i of both sides.

    Not the ratio of the two medians: on an H200's host a processor runs at one of two speeds for some rounds on end,
    and where about half of them are slow each median jumps by a third on its own. Of 18 proofs of five programs there
    the half width fell from 3.2 % to 1.7 % (medians), of 131 on a 2-core machine from 17.6 % to 16.1 %.
    """
    if len(over) != len(under):
        raise ValueError(f"paired samples differ in number: {len(over)} and {len(under)}")
    ratios = np.asarray(over, dtype=np.float64) / np.asarray(under, dtype=np.float64)
    return float(np.median(ratios)), *median_interval(ratios.tolist(), seed)


def timing(samples: Sequence[float], seed: int = 0) -> Timing:
    """The samples with the interval of their median."""
    low, high = median_interval(samples, seed)
    return Timing(samples_us=tuple(float(s) for s in samples), low_us=low, high_us=high)


@dataclass(slots=True)
class Sampled:
    """One program's microseconds per call, a sample per counted round, read in several ways."""

    times: list[float] = field(default_factory=list)
    """What counts: see ``per_call_us``."""
    own: list[float] = field(default_factory=list)
    """With the overhead of the program's own windows taken off instead of eager's."""
    calm: list[float] = field(default_factory=list)
    """Less what other load took from windows that are not clean."""
    doubted: list[float] = field(default_factory=list)
    """With the part of a gain that single calls may not have (``singly``): equal to ``times`` where nothing is open."""

    fair: list[float] = field(default_factory=list)
    """What counts in the rounds that would, had the candidate no say: see ``sampled``."""

    def add(self, other: Sampled, extra_us: float = 0.0, doubted_us: float = 0.0) -> None:
        """Further rounds, every call ``extra_us`` longer, and in the worst reading ``doubted_us``."""
        self.times += [time + extra_us for time in other.times]
        self.own += [time + extra_us for time in other.own]
        self.calm += [time + extra_us for time in other.calm]
        self.doubted += [time + max(extra_us, doubted_us) for time in other.times]
        self.fair += [time + extra_us for time in other.fair]


@dataclass(frozen=True, slots=True)
class Met:
    """How many processes of a candidate met how many of a baseline."""

    candidate: int
    baseline: int
    on_device: bool = False

    def apart(self, scatter: float, *, paced: bool = False) -> float:
        """Half the 95 % interval of what the ratio is off by their being these processes and not others, as a share,
        where logarithms of the ratios of rounds have the standard deviation ``scatter``. ``paced``: by the device."""
        if self.on_device:
            share = max(DEVICE_APART, 0.0 if paced else min(HOSTED_APART, OF_ROUNDS * (scatter - HOSTED)))
        else:
            share = min(APART, OF_ROUNDS * scatter)
        return math.hypot(PROCESSES, 1.96 * share * math.sqrt(1 / self.candidate + 1 / self.baseline))


def baseline(
    name: str, one: Sampled, candidate: Sampled, met: Met, seed: int = 0, bound_us: float | None = None
) -> Baseline:
    """A baseline beside the candidate it was interleaved with (equal rounds). ``bound_us``: what none can do without.

    The interval also holds what the ratio would be were each program's own windows its measure (a fresh process wakes
    later than one that has run for a while, and nothing tells that from dawdling), what it would be had the baseline,
    or the candidate, not been disturbed, what it is where single calls leave a gain open, or where the candidate has no
    say in which rounds count, and the scatter between processes, which rounds do not show.
    """
    ratio, low, high = ratio_interval(one.times, candidate.times, seed)
    _, other_low, other_high = ratio_interval(one.own, candidate.own, seed)
    low, high = min(low, other_low), max(high, other_high)
    if one.calm != one.times or candidate.calm != candidate.times:
        low = min(low, ratio_interval(one.calm, candidate.times, seed)[1])
        high = max(high, ratio_interval(one.times, candidate.calm, seed)[2])
    if candidate.doubted != candidate.times:
        low = min(low, ratio_interval(one.times, candidate.doubted, seed)[1])
    if candidate.fair != candidate.times:
        low = min(low, low / ratio * statistics.median(a / b for a, b in zip(one.fair, candidate.fair, strict=True)))
    off = np.abs(np.log(np.asarray(one.times) / np.asarray(candidate.times)) - math.log(ratio))
    slower = max(statistics.median(one.times), statistics.median(candidate.times))
    paced = bound_us is not None and bound_us >= PACED * slower
    aside = ratio * met.apart(1.4826 * float(np.median(off)), paced=paced)
    return Baseline(
        name=name,
        timing=timing(one.times, seed),
        speedup=ratio,
        speedup_low=max(0.0, ratio - math.hypot(max(0.0, ratio - low), aside)),
        speedup_high=ratio + math.hypot(max(0.0, high - ratio), aside),
    )
