# SPDX-License-Identifier: Apache-2.0
"""proof.json: everything that was established about the winner, and everything needed to establish it again."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright import wire
from kernelwright.machine import Machine
from kernelwright.task import Task
from kernelwright.trial import Baseline, Timed, Timing, Trial

FORMAT = 1


def proof(
    task: Task,
    trial: Trial,
    cases: Sequence[Mapping[str, Any]],
    machine: Machine | None,
    energy: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The proof of a timed trial as plain data. Raises ValueError for a rejected one: there is nothing to prove.

    ``energy``: {"mJ", "watts", "note"} of one call; a figure that is None stands as "not measured"."""
    outcome = trial.outcome
    if not isinstance(outcome, Timed):
        raise ValueError(f"a candidate rejected at {outcome.stage} has no proof")
    verified = outcome.proof
    return {
        "format": FORMAT,
        "kernelwright": _version(),
        "task": {"name": task.name, "digest": task.digest(), "noun": wire.to_data(task)},
        "candidate": {
            "digest": trial.candidate.digest(),
            "language": trial.candidate.language,
            "entry": trial.candidate.entry,
            "proposer": trial.candidate.proposer,
            "note": trial.candidate.note,
            "tunables": dict(trial.candidate.tunables),
            "parent": trial.candidate.parent,
            "prompt": trial.candidate.prompt,
            "sources": {name: sha256(text) for name, text in trial.candidate.sources},
        },
        "contract": wire.to_data(task.contract),
        "precision": {
            "error_ratio": verified.error_ratio,
            "bits_lost": verified.bits_lost,
            "oracle": verified.oracle,
            "allowed_bits_lost": task.contract.bits_lost,
        },
        "cases": [wire.to_data(case) for case in verified.cases],
        "outputs": verified.outputs,
        "checked_calls": verified.checked_calls,
        "deterministic": verified.deterministic,
        "notes": list(verified.notes),
        "speed": _speed(outcome),
        "bound": {
            "unavoidable_us": outcome.bound_us,
            "fraction": outcome.bound_fraction,
            "limiter": outcome.limiter,
        },
        "conditions": list(outcome.conditions),
        "profile": dict(outcome.profile),
        "energy": _energy(energy or {}),
        "seed": verified.seed,
        "sandbox": verified.sandbox,
        "machine": wire.to_data(machine) if machine else {"fingerprint": trial.machine},
        "versions": dict(trial.versions),
        "level": trial.level,
        "judged_at": trial.started_at,
        "inputs": [dict(case) for case in cases],
    }


def _energy(found: Mapping[str, Any]) -> dict[str, Any]:
    """Advisory: the calls are counted by the program itself."""
    figures = {name: found.get(key) for name, key in (("per_call_mJ", "mJ"), ("watts", "watts"))}
    said = {name: "not measured" if value is None else value for name, value in figures.items()}
    return {**said, "note": found.get("note") or "not asked for"}


def sha256(text: str) -> str:
    """Hex digest of a text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _version() -> str:
    """Of this package; "source" when it runs from a checkout that is not installed."""
    try:
        return importlib.metadata.version("kernelwright")
    except importlib.metadata.PackageNotFoundError:
        return "source"


def _speed(outcome: Timed) -> dict[str, Any]:
    return {
        "timing": _timing(outcome.timing),
        "best_baseline": outcome.best_baseline,
        "speedup": outcome.speedup,
        "speedup_low": outcome.speedup_low,
        "speedup_high": outcome.speedup_high,
        "repeats": outcome.repeats,
        "baselines": [_baseline(baseline) for baseline in outcome.baselines],
    }


def _timing(timing: Timing) -> dict[str, Any]:
    return {
        "median_us": timing.median_us,
        "low_us": timing.low_us,
        "high_us": timing.high_us,
        "samples_us": list(timing.samples_us),
    }


def _baseline(baseline: Baseline) -> dict[str, Any]:
    return {
        "name": baseline.name,
        "timing": _timing(baseline.timing),
        "speedup": baseline.speedup,
        "speedup_low": baseline.speedup_low,
        "speedup_high": baseline.speedup_high,
    }
