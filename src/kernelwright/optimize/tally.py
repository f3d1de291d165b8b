# SPDX-License-Identifier: Apache-2.0
"""What became of the candidates of a model-driven search: where each died, what it cost, how good predictions were."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernelwright.llm import Meter

TIERS = (
    "unanswered", "parse", "duplicate", "build", "same object", "sanitize", "predicted", "scan", "load", "smoke",
    "verify", "time", "integrity", "sandbox", "unjudged", "timed",
)  # fmt: skip
"""Where candidates end, in the order in which they pass these places; everything before ``load`` needs no device."""


@dataclass(slots=True)
class Cost:
    """Candidates that ended at one place, and what they took together. ``usd`` None: a price was not known."""

    count: int = 0
    tokens: int = 0
    usd: float | None = 0.0
    seconds: float = 0.0
    """With the judge: building, checking, timing."""


@dataclass(slots=True)
class Tally:
    """Counts of one search. Predictions are scored only where the judge spoke."""

    ended: str = ""
    """Why no more was asked: ``candidates``, ``time``, ``model`` (none was left), or the budget that was spent."""
    asked: int = 0
    malformed: int = 0
    failed: int = 0
    """Requests that no model answered."""
    duplicates: int = 0
    tests: int = 0
    """Times a tester wrote cases."""
    profiled: int = 0
    """Candidates that were observed more closely."""
    predicted: int = 0
    """Kept off the device by the verifier."""
    prediction_hits: int = 0
    prediction_misses: int = 0
    right_alarms: int = 0
    """Predicted to fail, and rejected."""
    false_alarms: int = 0
    missed: int = 0
    """Predicted to pass, and rejected."""
    stages: dict[str, int] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)

    def died(self, stage: str) -> None:
        """Count one rejection."""
        self.stages[stage] = self.stages.get(stage, 0) + 1

    def charge(self, place: str, meter: Meter, seconds: float) -> None:
        """Count what one ask took, at the place where it ended."""
        cost = self.costs.setdefault(place, Cost())
        cost.count += 1
        cost.tokens += meter.tokens
        cost.usd = None if cost.usd is None or meter.usd is None else cost.usd + meter.usd
        cost.seconds += seconds

    def guessed(self, fails: bool, rejected: bool) -> None:
        """Score one prediction."""
        self.prediction_hits += fails == rejected
        self.prediction_misses += fails != rejected
        self.right_alarms += fails and rejected
        self.false_alarms += fails and not rejected
        self.missed += rejected and not fails

    @property
    def precision(self) -> float | None:
        """Of the alarms that were checked, how many were right."""
        alarms = self.right_alarms + self.false_alarms
        return self.right_alarms / alarms if alarms else None

    @property
    def recall(self) -> float | None:
        """Of the rejected candidates that were predicted on, how many raised an alarm."""
        rejected = self.right_alarms + self.missed
        return self.right_alarms / rejected if rejected else None

    def _funnel(self) -> dict[str, dict[str, Any]]:
        """Tier by tier: how many came so far, how many ended there, and what those had taken."""
        left, rows = sum(cost.count for cost in self.costs.values()), {}
        for name in sorted(self.costs, key=lambda name: (TIERS.index(name) if name in TIERS else len(TIERS), name)):
            c = self.costs[name]
            rows[name] = {
                "reached": left, "count": c.count, "tokens": c.tokens, "usd": c.usd,
                "judge_seconds": round(c.seconds, 3),
            }  # fmt: skip
            left -= c.count
        return rows

    def to_json(self) -> dict[str, Any]:
        """As plain data, for result and report."""
        return {
            "ended": self.ended,
            "asked": self.asked,
            "parsed": self.asked - self.malformed - self.failed,
            "malformed": self.malformed,
            "failed": self.failed,
            "duplicates": self.duplicates,
            "predicted": self.predicted,
            "stages": dict(sorted(self.stages.items())),
            "tests": self.tests,
            "profiled": self.profiled,
            "died": self._funnel(),
            "verifier": {
                "checked": self.prediction_hits + self.prediction_misses,
                "precision": self.precision,
                "recall": self.recall,
            },
        }
