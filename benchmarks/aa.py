# SPDX-License-Identifier: Apache-2.0
"""A/A: the reference judged against itself, over and over. How often does the 95 % interval hold 1, how wide is it?

Run: python benchmarks/aa.py [--device cpu|cuda:N] [--repeats 100] [--seconds 600] [--task FOLDER|FILE ...] [--out FILE]
Each repeat is a full precise verdict: two fresh processes of the candidate against one long-running eager baseline.
Writes benchmarks/results/<machine>/aa.json, or FILE.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from provenance import commit

import kernelwright
from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.load import load_task
from kernelwright.task import Task

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Run, print a line per task, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after this, all tasks together")
    parser.add_argument("--task", action="append", help="default: the shipped rmsnorm")
    parser.add_argument("--out")
    given = parser.parse_args()
    rows, end = [], time.monotonic() + given.seconds
    names = given.task or [str(ROOT / "tasks/normalisation/rmsnorm")]
    with kernelwright.Services(given.device) as services:
        name = services.machine().name
        for number, place in enumerate(names):
            until = time.monotonic() + (end - time.monotonic()) / (len(names) - number)
            rows.append(row(load_task(Path(place), given.device), given.device, given.repeats, until, services))
            print({key: value for key, value in rows[-1].items() if key != "ratios"}, flush=True)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("nvidia ")).strip("-")
    target = Path(given.out) if given.out else ROOT / "benchmarks" / "results" / slug / "aa.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    record = {"command": shlex.join(["python", *sys.argv]), "commit": commit(), "machine": name, "rows": rows}
    target.write_text(json.dumps(record, indent=1) + "\n")


def row(task: Task, device: str, repeats: int, until: float, services: kernelwright.Services) -> dict[str, Any]:
    """Every ratio with its interval, and what they come to."""
    candidate = Candidate(
        task=task.digest(), language="torch", entry=f"same.py::{task.entry}", sources=(("same.py", task.reference),),
        proposer="benchmark", note="the reference itself",
    )  # fmt: skip
    job = {"job": "judge", "task": wire.to_data(task), "candidate": wire.to_data(candidate), "device": device}
    job |= {"level": "precise", "baselines": ["eager"], "admit": False}
    ratios, times = [], []
    while len(ratios) < repeats and (time.monotonic() < until or len(ratios) < 3):
        outcome = services.worker.run(job)["outcome"]
        if "baselines" not in outcome:
            raise SystemExit(f"the reference was refused as a candidate: {outcome}")
        best = outcome["baselines"][0]
        ratios.append([best["speedup"], best["speedup_low"], best["speedup_high"]])
        times.append(statistics.median(outcome["timing"]["samples_us"]))
    return {
        "task": task.name,
        "median_us": statistics.median(times),
        "runs": len(ratios),
        "hold_one": sum(low <= 1.0 <= high for _, low, high in ratios),
        "half_width": statistics.median((high - low) / 2 for _, low, high in ratios),
        "median_ratio": statistics.median(ratio for ratio, _, _ in ratios),
        "ratios": ratios,
    }


if __name__ == "__main__":
    main()
