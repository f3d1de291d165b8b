# SPDX-License-Identifier: Apache-2.0
"""Geometry of the report's two charts: where marks and labels go; the templates draw them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 340.0
"""Units of the view box; close to the pixels of a small phone, so text keeps its size there."""
ROW = 34.0
LEFT, RIGHT, TOP, BOTTOM = 38.0, 10.0, 12.0, 30.0
HEIGHT = 210.0
LOG_FROM = 20.0
"""A trajectory that spans more than this factor is drawn on a logarithmic axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One program's time. Lengths in view-box units from the left edge."""

    label: str
    text: str
    kind: str
    """``ours``, ``baseline`` or ``bound``."""
    y: float
    length: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Time per call of each program, with the bound as a line through all of them."""

    bars: tuple[Bar, ...]
    height: float
    bound: float | None
    """x of the bound's line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """Best speedup so far against time."""

    path: str
    """SVG path of the step line."""
    dots: tuple[tuple[float, float, str], ...]
    """(x, y, tooltip) of every timed trial."""
    proofs: tuple[tuple[float, float, str], ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


def bars(best: Mapping[str, Any]) -> Bars:
    """Bars for the candidate and its baselines, fastest last, and the bound."""
    programs = [(b["name"], b["timing"], "baseline") for b in best["baselines"]]
    programs.append(("optimized", best["timing"], "ours"))
    programs.sort(key=lambda item: -item[1]["median_us"])
    longest = max(timing["high_us"] for _, timing, _ in programs) or 1.0
    scale = WIDTH / max(longest, *(timing["median_us"] for _, timing, _ in programs))
    found = [
        Bar(
            label=name,
            text=micros(timing["median_us"]),
            kind=kind,
            y=row * ROW,
            length=max(timing["median_us"] * scale, 1.0),
            low=timing["low_us"] * scale,
            high=timing["high_us"] * scale,
        )
        for row, (name, timing, kind) in enumerate(programs)
    ]
    bound = best["bound_us"] * scale if best["bound_us"] is not None else None
    return Bars(bars=tuple(found), height=ROW * len(found) + 4, bound=bound)


def trajectory(tried: Mapping[str, Any]) -> Trajectory | None:
    """The chart of a run, or None where nothing was timed."""
    best = tried["trajectory"]["coarse"]
    timed = [row for row in tried["rows"] if row["speedup"] is not None]
    if not best or not timed:
        return None
    end = max([row["at_seconds"] for row in timed] + [point["seconds"] for point in best])
    speedups = [row["speedup"] for row in timed] + [point["speedup"] for point in best]
    x = _Axis(0.0, max(end, 1e-9), LEFT, WIDTH - RIGHT, log=False)
    low, high = min(speedups), max(speedups)
    log = low > 0 and high / low > LOG_FROM
    y = _Axis(low if log else 0.0, high * 1.05, HEIGHT - BOTTOM, TOP, log=log)
    path = f"M{x.at(best[0]['seconds']):.1f},{y.at(best[0]['speedup']):.1f}"
    for point in best[1:]:
        path += f"H{x.at(point['seconds']):.1f}V{y.at(point['speedup']):.1f}"
    path += f"H{x.at(end):.1f}"
    marks = {
        level: tuple(
            (x.at(r["at_seconds"]), y.at(r["speedup"]), f"{r['structure'] or r['proposer']}: {r['speedup']:.2f}x")
            for r in timed
            if (r["level"] == "precise") == (level == "precise")
        )
        for level in ("coarse", "precise")
    }
    return Trajectory(
        path=path,
        dots=marks["coarse"],
        proofs=marks["precise"],
        x_ticks=tuple((x.at(v), f"{v:g} s") for v in x.ticks()),
        y_ticks=tuple((y.at(v), f"{v:g}x") for v in y.ticks()),
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float
    log: bool

    def at(self, value: float) -> float:
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, max(value, self.low)))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Three to six round values inside the axis."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            return [v for p in powers for v in (10.0**p, 3 * 10.0**p) if self.low <= v <= self.high]
        step = round_step((self.high - self.low) / 4)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, math.floor(self.high / step) + 1)]


def round_step(raw: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least ``raw``."""
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * 0.999)


def micros(value: float | None) -> str:
    """A time per call with three digits and a unit a person reads at once."""
    if value is None:
        return "not measured"
    for unit, size in (("s", 1e6), ("ms", 1e3), ("us", 1.0)):
        if value >= size:
            return f"{_digits(value / size)} {unit}"
    return f"{value:.2f} us"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def fences(texts: Sequence[str]) -> str:
    """A Markdown fence longer than any run of backticks in ``texts``: nothing inside can close it."""
    longest = 2
    for text in texts:
        run = 0
        for letter in text:
            run = run + 1 if letter == "`" else 0
            longest = max(longest, run)
    return "`" * (longest + 1)
