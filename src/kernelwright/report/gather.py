# SPDX-License-Identifier: Apache-2.0
"""run.json, the ledger and proof.json to one plain dictionary: the report's data, and ``report.json`` itself."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelwright import wire
from kernelwright.errors import NoSuchRun, RunFolderError
from kernelwright.ledger import Ledger, Row, open_ledger, there
from kernelwright.task import Task
from kernelwright.trial import Baseline, Timed, Timing, Trial

FORMAT = 1
MOST_ROWS = 200
"""Trials listed one by one; beyond that the fastest are listed and the rest are counted."""
MOST_LINES = 1500
"""Lines of code shown per file."""


def gather(run_dir: Path) -> dict[str, Any]:
    """Everything the report shows, as plain data. Raises NoSuchRun, RunFolderError and LedgerCorrupt."""
    record = _read(run_dir / "run.json")
    if record is None:
        raise NoSuchRun("There is no run.", got=str(run_dir), expected="a folder with run.json")
    proof = _read(run_dir / "proof.json")
    task = _task(run_dir, record)
    data: dict[str, Any] = {
        "format": FORMAT,
        "run": run_dir.name,
        "status": record.get("status", "unknown"),
        "message": record.get("message", ""),
        "asked": _asked(task, record),
        "admission": record.get("admission") or {},
        "machine": record.get("machine") or {},
        "exported": (proof or {}).get("optimized", {}),
        "models": _models((record.get("result") or {}).get("models")),
        "spent": (record.get("result") or {}).get("spent") or {},
        "overrun": (record.get("result") or {}).get("overrun", ""),
        "cost": record.get("cost"),
        "energy": record.get("energy"),
        "left_out": _left_out(run_dir / "events.jsonl"),
    }
    path = run_dir / "ledger.sqlite"
    if not there(path, record):
        return data | _empty()
    ledger = open_ledger(path, writable=False)
    try:
        return data | _tried(ledger, float(record.get("started_at", 0.0))) | _best(ledger, task, record)
    finally:
        ledger.close()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError) as error:
        raise RunFolderError(f"{path} cannot be read.", got=str(error), expected="JSON") from error
    if not isinstance(data, dict):
        raise RunFolderError(f"{path} cannot be read.", got=type(data).__name__, expected="a JSON object")
    return data


def _left_out(path: Path) -> list[str]:
    """What the run noted of proposers that failed or had nothing, each once; resumed runs note it again."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found: dict[str, None] = {}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the last line of a run that was killed
        if isinstance(event, dict) and event.get("kind") == "note" and event.get("proposer"):
            found[str(event.get("text", ""))] = None
    return list(found)


def _task(run_dir: Path, record: Mapping[str, Any]) -> Task:
    try:
        return wire.from_data(Task, record["task"])
    except (KeyError, ValueError, TypeError) as error:
        raise RunFolderError.of_another_version(run_dir / "run.json", error) from error


def _asked(task: Task, record: Mapping[str, Any]) -> dict[str, Any]:
    options = record.get("options") or {}
    return {
        "task": task.name,
        "form": task.form,
        "digest": task.digest(),
        "entry": task.entry,
        "reference": task.reference,
        "cases": [wire.to_data(case) for case in task.cases],
        "contract": {k: v for k, v in wire.to_data(task.contract).items() if k != "is"},
        "device": options.get("device", ""),
        "budget_seconds": options.get("budget_seconds"),
        "seed": options.get("seed"),
        "proposers": options.get("proposers") or [],
        "start": options.get("start") or [],
        "started_at": record.get("started_at"),
        "kernelwright": record.get("kernelwright", ""),
        "python": record.get("python", ""),
        "fixed": record.get("fixed", ""),
    }


def _models(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What models were asked and what it cost, every field filled in; None where none was asked."""
    if not found:
        return None
    tally = found.get("tally") or {}
    verifier = tally.get("verifier") or {}
    return {
        "recipe": found.get("recipe", ""),
        "names": list(found.get("models", ())),
        "requests": found.get("requests", 0),
        "tokens": found.get("tokens", 0),
        "usd": found.get("usd"),
        "verified": found.get("verified", 0),
        "usd_per_verified": found.get("usd_per_verified"),
        "tokens_per_verified": found.get("tokens_per_verified"),
        "asked": tally.get("asked", 0),
        "died": [{"place": place, **cost} for place, cost in (tally.get("died") or {}).items()],
        "checked": verifier.get("checked", 0),
        "precision": verifier.get("precision"),
        "recall": verifier.get("recall"),
    }


def _empty() -> dict[str, Any]:
    levels: dict[str, list[Any]] = {"coarse": [], "precise": []}
    nothing: dict[str, Any] = {"count": 0, "proposers": [], "stages": [], "rows": [], "trajectory": levels}
    return {"tried": nothing, "won": False, "best": None}


def _tried(ledger: Ledger, began: float) -> dict[str, Any]:
    count = ledger.count()
    if count <= MOST_ROWS:
        rows = ledger.rows()
    else:
        rows = ledger.top(MOST_ROWS // 4, "precise") + ledger.top(MOST_ROWS - MOST_ROWS // 4, "coarse")
    return {
        "tried": {
            "count": count,
            "proposers": [
                {"proposer": name, "trials": n, "timed": timed, "seconds": seconds, "best": best}
                for name, (n, timed, seconds, best) in sorted(ledger.proposers().items())
            ],
            "stages": [
                {"stage": stage or "timed", "trials": n, "seconds": seconds}
                for stage, (n, seconds) in sorted(ledger.stages().items())
            ],
            "rows": [_row(row, began) for row in rows],
            "trajectory": {
                level: [
                    {"seconds": at - began, "speedup": speedup, "median_us": median_us, "candidate": candidate}
                    for at, speedup, median_us, candidate in ledger.trajectory(level)
                ]
                for level in ("coarse", "precise")
            },
        }
    }


def _row(row: Row, began: float) -> dict[str, Any]:
    return {
        "id": row.id,
        "candidate": row.candidate,
        "structure": row.structure,
        "proposer": row.proposer,
        "language": row.language,
        "note": row.note,
        "tunables": dict(json.loads(row.tunables)),
        "level": row.level,
        "stage": row.stage,
        "reason": row.reason,
        "median_us": row.median_us,
        "speedup": row.speedup,
        "speedup_low": row.speedup_low,
        "seconds": row.seconds,
        "at_seconds": row.started_at - began,
    }


def _best(ledger: Ledger, task: Task, record: Mapping[str, Any]) -> dict[str, Any]:
    """The winner, or the best attempt where nothing won."""
    winner = ((record.get("result") or {}).get("winner") or {}).get("candidate", "")
    fingerprint = str((record.get("machine") or {}).get("fingerprint", ""))
    number = ledger.known(winner, "precise", fingerprint) if winner else None
    if number is None:
        row = ledger.best("precise")
        number = row.id if row else None
    if number is None:
        return {"won": False, "best": None}
    trial = ledger.trial(number)
    if not isinstance(trial.outcome, Timed):
        return {"won": False, "best": None}
    return {"won": trial.outcome.speedup_low > 1.0, "best": _described(task, trial, trial.outcome)}


def _described(task: Task, trial: Trial, timed: Timed) -> dict[str, Any]:
    candidate, proof = trial.candidate, timed.proof
    entry_file = candidate.entry.partition("::")[0]
    sources = dict(candidate.sources)
    return {
        "candidate": {
            "digest": candidate.digest(),
            "language": candidate.language,
            "entry": candidate.entry,
            "proposer": candidate.proposer,
            "note": candidate.note,
            "tunables": dict(candidate.tunables),
            "parent": candidate.parent,
        },
        "diff": _diff(task.reference, sources.get(entry_file, ""), entry_file),
        "files": [{"name": name, "text": _cut(text)} for name, text in candidate.sources if name != entry_file],
        "timing": _timing(timed.timing),
        "baselines": [_baseline(baseline) for baseline in timed.baselines],
        "best_baseline": timed.best_baseline,
        "speedup": timed.speedup,
        "speedup_low": timed.speedup_low,
        "speedup_high": timed.speedup_high,
        "repeats": timed.repeats,
        "bound_us": timed.bound_us,
        "bound_fraction": timed.bound_fraction,
        "limiter": timed.limiter,
        "error_ratio": _finite(proof.error_ratio),
        "bits_lost": _finite(proof.bits_lost),
        "oracle": proof.oracle,
        "outputs": proof.outputs,
        "checked_calls": proof.checked_calls,
        "deterministic": proof.deterministic,
        "judge_seed": proof.seed,
        "sandbox": proof.sandbox,
        "notes": list(proof.notes),
        "cases": [
            {**{k: v for k, v in wire.to_data(c).items() if k != "is"}, "error_ratio": _finite(c.error_ratio)}
            for c in proof.cases
        ],
        "conditions": list(timed.conditions),
        "profile": dict(timed.profile),
        "versions": dict(trial.versions),
    }


def _timing(timing: Timing) -> dict[str, Any]:
    return {
        "median_us": timing.median_us,
        "low_us": timing.low_us,
        "high_us": timing.high_us,
        "samples": len(timing.samples_us),
    }


def _baseline(baseline: Baseline) -> dict[str, Any]:
    return {
        "name": baseline.name,
        "timing": _timing(baseline.timing),
        "speedup": baseline.speedup,
        "speedup_low": baseline.speedup_low,
        "speedup_high": baseline.speedup_high,
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def _diff(reference: str, optimized: str, name: str) -> list[str]:
    lines = difflib.unified_diff(reference.splitlines(), optimized.splitlines(), "reference.py", name, lineterm="", n=3)
    return _cut("\n".join(lines)).splitlines()


def _cut(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= MOST_LINES:
        return text
    return "\n".join(lines[:MOST_LINES] + [f"... {len(lines) - MOST_LINES} more lines"])
