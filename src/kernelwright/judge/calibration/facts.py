# SPDX-License-Identifier: Apache-2.0
"""What every calibration step uses: facts from samples, rates from actions, the sizes of a staircase."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from kernelwright.judge import measure
from kernelwright.machine import UNSTEADY, Fact

Step = tuple[str, Callable[[], list[Fact]]]
"""(what is being measured, how)."""
RUNS = 5


def fact(name: str, unit: str, samples: list[float], note: str = "") -> Fact:
    """A Fact from samples; the spread is (90th - 10th percentile) / median.

    Rates take the best sample and times the least: a limit is what the device can do undisturbed, and a bound
    made from a disturbed measurement would void honest times. The spread says how disturbed it was.
    """
    value = min(samples) if unit in ("us", "ns") else max(samples)
    middle = statistics.median(samples)
    ordered = sorted(samples)
    wide = ordered[round(0.9 * (len(ordered) - 1))] - ordered[round(0.1 * (len(ordered) - 1))]
    spread = wide / middle if middle else 0.0
    said = f"samples spread by {spread:.0%}: shared, or its clocks change" if spread > UNSTEADY else ""
    return Fact(name=name, value=value, unit=unit, spread=spread, note="; ".join(text for text in (note, said) if text))


def missing(name: str, unit: str, why: str) -> Fact:
    """A fact that could not be measured, and why."""
    return Fact(name=name, value=None, unit=unit, spread=0.0, note=f"not measured: {why}")


def rates(action: Callable[[], object], work: float, runs: int = RUNS) -> list[float]:
    """``work`` units over the seconds of each of ``runs`` calls, after one warm-up call."""
    action()
    return [work / measure.stopwatch(action) for _ in range(runs)]


def staircase(smallest: int, largest: int) -> Iterator[int]:
    """Working-set sizes in bytes, two per octave."""
    size = smallest
    while size <= largest:
        yield size
        if size * 3 // 2 <= largest:
            yield size * 3 // 2
        size *= 2


def label(size: int) -> str:
    """``96KiB``, ``1.5MiB``."""
    for unit, width in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= width:
            return f"{size / width:g}{unit}"
    return f"{size}B"
