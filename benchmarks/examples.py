# SPDX-License-Identifier: Apache-2.0
"""Optimises every shipped task on one device and records what the README's table shows, raw samples included.

Run: python benchmarks/examples.py [--device cpu|cuda:N] [--budget 60s] [--task NAME ...] [--runs DIR]
or, for finished runs, as of `make demo`: python benchmarks/examples.py --device ... --finished runs
Writes benchmarks/results/<machine>/examples.json; nothing else writes there and nothing is edited by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import commit

import kernelwright
from kernelwright import wire
from kernelwright.ledger import open_ledger
from kernelwright.trial import Timed

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    """Run, record, and say where."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--task", action="append", help="name of a task; default: all")
    parser.add_argument("--runs", help="keep the run folders here; give it last")
    parser.add_argument("--finished", help="run nothing: record the runs in this folder, the last of each task")
    given = parser.parse_args()
    folders = sorted(path.parent for path in ROOT.glob("tasks/*/*/task.toml"))
    chosen = [folder for folder in folders if not given.task or folder.name in given.task]
    with tempfile.TemporaryDirectory() as scratch, kernelwright.Services(given.device) as services:
        machine = kernelwright.measure_machine(given.device, services=services)
        home = Path(given.runs or scratch)
        record = {
            "command": shlex.join(["python", *sys.argv]).partition(" --runs")[0],
            "commit": commit(),
            "seed": given.seed,
            "machine": wire.to_data(machine),
        }
        target = RESULTS / slug(machine.name) / "examples.json"
        rows = json.loads(target.read_text())["rows"] if given.task and target.exists() else []
        for folder in chosen:
            if given.finished:
                found = finished(Path(given.finished), folder.name)
                if found is None:
                    continue
                run = found
            else:
                run = kernelwright.optimize(
                    str(folder),
                    device=given.device,
                    budget=given.budget,
                    seed=given.seed,
                    out=home / folder.name,
                    services=services,
                ).run
            said = json.loads((run / "run.json").read_text())["result"]
            print(f"{folder.name}: {said['message']}", flush=True)
            rows = [old for old in rows if old["task"] != folder.name] + [row(folder, run, said)]
            write(target, record, rows)
    if given.finished and not rows:
        parser.error(f"{given.finished} holds no finished run of {', '.join(folder.name for folder in chosen)}")
    print(target)


def finished(folder: Path, task: str) -> Path | None:
    """The last finished run of a task: the folder of its name, or of that and a time, as ``make demo`` makes."""
    runs = [folder / task, *sorted(folder.glob(f"{task}-[0-9]*"))]
    return next((run for run in reversed(runs) if (run / "run.json").exists()), None)


def write(target: Path, record: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """After every task: a run that is cut short keeps what it measured."""
    target.parent.mkdir(parents=True, exist_ok=True)
    full = record | {
        "recorded_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rows": sorted(rows, key=lambda item: item["task"]),
    }
    target.write_text(json.dumps(full, indent=1) + "\n")


def row(folder: Path, run: Path, said: dict[str, Any]) -> dict[str, Any]:
    """One task's outcome: the winner's, or the best proved attempt's where nothing won."""
    ledger = open_ledger(run / "ledger.sqlite", writable=False)
    try:
        best = ledger.best("precise")
        trial = ledger.trial(best.id) if best else None
    finally:
        ledger.close()
    timed = trial.outcome if trial is not None and isinstance(trial.outcome, Timed) else None
    task = kernelwright.load_task(folder, said["device"])
    return {
        "task": folder.name,
        "axes": dict(task.timed_case().axes),
        "commit": commit(),
        "status": said["status"],
        "tried": said["tried"],
        "seconds": round(said["seconds"], 1),
        "candidate": trial.candidate.digest() if trial else None,
        "proposer": trial.candidate.proposer if trial else None,
        "outcome": wire.to_data(timed) if timed else None,
    }


def slug(name: str) -> str:
    """A folder name for a machine."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("nvidia ")).strip("-") or "unknown"


if __name__ == "__main__":
    main()
