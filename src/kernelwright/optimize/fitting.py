# SPDX-License-Identifier: Apache-2.0
"""Declared tunables are fitted before a structure is compared: the best point stands for it."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.candidate import Candidate
from kernelwright.optimize.flight import Trier
from kernelwright.proposers.agent import declared_space, with_values
from kernelwright.trial import Outcome, Timed
from kernelwright.tuning import Tuner

TUNED = "agent/tune"
"""Structure of the points that are tried of a candidate's declared space."""


def fitted(
    candidate: Candidate, outcome: Outcome | None, trier: Trier, most: int
) -> tuple[Candidate, Outcome | None, str]:
    """The candidate at the best of up to ``most`` points of its space, and what each point gave, in words; itself where
    it has none or was rejected."""
    space = declared_space(candidate)
    if not space.parameters or not most or not isinstance(outcome, Timed):
        return candidate, outcome, ""
    tuner = Tuner(space, 0)
    best: tuple[Candidate, Timed] = (candidate, outcome)
    first = tuner.ask()
    if first is not None:
        tuner.tell(first, outcome.timing.median_us)
    gave = [_line(first or {}, outcome)]
    for _ in range(most):
        point = tuner.ask()
        if point is None or trier.seconds_left() <= 0:
            break
        changed = with_values(candidate, dict(point))
        found = trier.consider(changed, TUNED)
        tuner.tell(point, found.timing.median_us if isinstance(found, Timed) else None)
        gave.append(_line(point, found))
        if isinstance(found, Timed) and found.timing.median_us < best[1].timing.median_us:
            best = (changed, found)
    return *best, f"Values tried, in times as fast as {outcome.best_baseline}: {'; '.join(gave)}."


def _line(point: Mapping[str, object], outcome: Outcome | None) -> str:
    values = ", ".join(f"{name} {value}" for name, value in point.items())
    if isinstance(outcome, Timed):
        return f"{values}: {outcome.speedup:.3g}"
    return f"{values}: " + (f"rejected at {outcome.stage}" if outcome is not None else "not judged")
