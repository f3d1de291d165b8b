# SPDX-License-Identifier: Apache-2.0
"""What an optimisation is asked, what it says while running, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelwright.optimize.guide import Guide
from kernelwright.settings import WORLD_GRID
from kernelwright.trial import Timed, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to search; what is correct is the task's contract alone."""

    device: str = "cpu"
    budget_seconds: float = 120.0
    seed: int = 0
    proposers: tuple[str, ...] = ()
    """Names from the table; empty: all of them."""
    start: tuple[str, ...] = ()
    """Files with existing kernels, judged first."""
    guide: Guide | None = None
    """Models that write candidates too, after the deterministic proposers; None: none."""
    grid: float = WORLD_GRID
    """kg CO2e per kWh, for the cost of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something worth telling a person. ``kind``: phase, admitted, structures, trial, best, note, done."""

    kind: str
    text: str
    seconds: float
    """Since the start of the run."""
    data: dict[str, Any]


Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run ended. ``status``: ``faster``, ``not-faster`` or ``interrupted`` (with what was proved until then)."""

    status: str
    message: str
    """One or two sentences for a person."""
    run: Path
    task: str
    device: str
    winner: Trial | None = field(repr=False)
    """Proved faster than every baseline at level precise; None where nothing was."""
    tried: int
    rejected: int
    seconds: float
    files: tuple[Path, ...]
    spent: Mapping[str, float]
    """Seconds that its steps took (``pace.STEPS``): start, search, proof; those it came to."""
    overrun: str
    """A sentence on a budget that was overrun, and for what; empty where it was kept."""
    models: Mapping[str, Any] | None = None
    """What the models cost and where their candidates died (see ``tally.py``); None where no model was asked for."""

    @property
    def speedup(self) -> float | None:
        """Of the winner, against the best baseline."""
        return self.winner.outcome.speedup if self.winner and isinstance(self.winner.outcome, Timed) else None

    @property
    def optimized(self) -> Path | None:
        """The drop-in file, where there is a winner."""
        return next((path for path in self.files if path.name == "optimized.py"), None)

    def __str__(self) -> str:
        """The message, where to look, and what a budget was overrun for, as the command line ends: no sources."""
        return "\n".join(text for text in (self.message, self.overrun, *(f"  {path}" for path in self.files)) if text)

    def to_json(self) -> dict[str, Any]:
        """The result as plain data: ``--json`` prints exactly this."""
        timed = self.winner.outcome if self.winner and isinstance(self.winner.outcome, Timed) else None
        return {
            "status": self.status,
            "message": self.message,
            "run": str(self.run),
            "task": self.task,
            "device": self.device,
            "tried": self.tried,
            "rejected": self.rejected,
            "seconds": round(self.seconds, 3),
            "spent": {name: round(seconds, 3) for name, seconds in self.spent.items()},
            "overrun": self.overrun,
            "files": [str(path) for path in self.files],
            "models": None if self.models is None else dict(self.models),
            "winner": None if self.winner is None else _winner(self.winner),
            "best_baseline": timed.best_baseline if timed else None,
            "baselines_us": {b.name: b.timing.median_us for b in timed.baselines} if timed else {},
        }


def _winner(trial: Trial) -> dict[str, Any]:
    assert isinstance(trial.outcome, Timed)
    timed = trial.outcome
    return {
        "candidate": trial.candidate.digest(),
        "proposer": trial.candidate.proposer,
        "language": trial.candidate.language,
        "note": trial.candidate.note,
        "tunables": dict(trial.candidate.tunables),
        "median_us": timed.timing.median_us,
        "speedup": timed.speedup,
        "speedup_low": timed.speedup_low,
        "speedup_high": timed.speedup_high,
        "warm_speedup": float(warm) if (warm := dict(timed.profile).get("warm.candidate.speedup")) else None,
        "bits_lost": timed.proof.bits_lost,
        "error_ratio": timed.proof.error_ratio,
        "bound_us": timed.bound_us,
        "bound_fraction": timed.bound_fraction,
        "limiter": timed.limiter,
    }
