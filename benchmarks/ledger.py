# SPDX-License-Identifier: Apache-2.0
"""How long a ledger of 100,000 trials takes to open and to answer the report's questions.

    python benchmarks/ledger.py [--trials 100000] [--out benchmarks/results/cpu/ledger.json]

Times are the median of seven, each on a freshly opened ledger; the raw samples are in the result.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kernelwright.candidate import Candidate
from kernelwright.ledger import Ledger, open_ledger
from kernelwright.testing import timed, timing
from kernelwright.trial import Rejected, Trial

REPEATS = 7
PROPOSERS = ("templates", "rewrites", "compiler", "agent:coder")


def fill(path: Path, count: int) -> None:
    """Trials like those of a real run: a quarter rejected, nine samples each, shared wrappers, long reasons."""
    dice = random.Random(0)
    ledger = open_ledger(path)
    wrapper = "import ctypes\n" + "# wrapper\n" * 100
    for number in range(count):
        candidate = Candidate(
            task="benchmark",
            language="cpp",
            entry="optimized.py::ModelNew",
            sources=(("kernel.cpp", f"// {number}\n" + "int x;\n" * 50), ("optimized.py", wrapper)),
            tunables=(("block", number % 64), ("unroll", number % 7)),
            proposer=dice.choice(PROPOSERS),
        )
        median = dice.lognormvariate(4.0, 0.5)
        outcome = timed(median)
        samples = tuple(median * dice.uniform(0.95, 1.05) for _ in range(9))
        outcome = dataclasses.replace(outcome, timing=dataclasses.replace(timing(median), samples_us=samples))
        rejected = Rejected(stage=dice.choice(("build", "verify", "smoke")), reason="wrong " * 10, detail="at " * 300)
        ledger.record(
            Trial(
                candidate=candidate,
                outcome=rejected if number % 4 == 0 else outcome,
                level="precise" if number % 50 == 1 else "coarse",
                machine="m",
                versions=(("torch", "2"),),
                seconds=1.0,
                started_at=float(number),
            ),
            "templates/rowwise",
        )
    ledger.close()


def sampled(action: Callable[[], object]) -> list[float]:
    """Seconds of each repetition."""
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        action()
        found.append(time.perf_counter() - began)
    return found


def ask(ledger: Ledger) -> None:
    """Everything the report asks for."""
    ledger.best()
    ledger.top(20)
    ledger.trajectory()
    ledger.stages()
    ledger.proposers()
    ledger.count()


def main() -> None:
    """Fill, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "cpu" / "ledger.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "ledger.sqlite"
        began = time.perf_counter()
        fill(path, options.trials)
        filling = time.perf_counter() - began
        size = path.stat().st_size
        opening = sampled(lambda: open_ledger(path, writable=False).close())
        queries = []
        for _ in range(REPEATS):
            ledger = open_ledger(path, writable=False)
            queries += sampled(lambda ledger=ledger: ask(ledger))[:1]
            ledger.close()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    result = {
        "command": " ".join(["python", "benchmarks/ledger.py", *sys.argv[1:]]),
        "commit": commit,
        "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
        "sqlite": sqlite3.sqlite_version,
        "seed": 0,
        "trials": options.trials,
        "bytes": size,
        "fill_seconds": filling,
        "open_seconds": {"median": statistics.median(opening), "samples": opening},
        "report_queries_seconds": {"median": statistics.median(queries), "samples": queries},
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"open {1e3 * statistics.median(opening):.1f} ms, queries {1e3 * statistics.median(queries):.1f} ms")


if __name__ == "__main__":
    main()
