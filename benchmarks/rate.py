# SPDX-License-Identifier: Apache-2.0
"""Full proofs a minute: honest compiled programs of the corpus, judged precisely again and again, caches warm.

    python benchmarks/rate.py [--device cpu|cuda] [--seconds 60] [--judges 1] [--out FILE] [WORD ...]

Each judge gives one verdict at a time. A program counts from its second verdict on: the first one compiles, admits
the task and warms the baselines. WORDs choose programs by parts of their names; without any, Triton and CUDA C++ on
a GPU, C++ on a CPU. Writes benchmarks/results/<machine>/rate.json, or FILE.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "cheats"), str(Path(__file__).parent)]

import run_corpus  # noqa: E402
from corpus import Program  # noqa: E402
from provenance import commit  # noqa: E402

from kernelwright.workers.local import LocalWorker  # noqa: E402

USUAL = {"cuda": ("cuda/triton", "cuda/CUDA C++"), "cpu": ("C++",)}


def wanted(device: str, words: list[str]) -> list[Program]:
    """Honest programs whose names hold one of the words."""
    chosen = words or USUAL[device]
    mine = [p for p in run_corpus.ALL if p.honest and p.device == device]
    return [p for p in mine if any(word in p.name or word in f"{p.task}/{p.language}" for word in chosen)]


def first(worker: LocalWorker, program: Program) -> dict:
    """The first verdict of one judge: it compiles, admits and warms."""
    verdict = run_corpus.judge(worker, program, "precise")
    return {
        "program": f"{program.task}/{program.name}",
        "language": program.language,
        "right": verdict.right,
        "first_seconds": round(verdict.seconds, 2),
        "words": verdict.words[:200],
    }


def repeated(workers: Sequence[LocalWorker], program: Program, seconds: float) -> dict:
    """Verdicts of one program by all judges at once, until the seconds are over; at least three."""
    until = time.monotonic() + seconds
    spent: list[float] = []
    wrong: list[str] = []

    def work(worker: LocalWorker) -> None:
        while not wrong and (time.monotonic() < until or len(spent) < 3):
            verdict = run_corpus.judge(worker, program, "precise")
            spent.append(verdict.seconds)
            if not verdict.right:
                wrong.append(verdict.words[:200])

    began = time.monotonic()
    with ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(work, workers))
    took = time.monotonic() - began
    return {
        "right": not wrong,
        "refused": wrong[:1],
        "judges": len(workers),
        "verdicts": len(spent),
        "median_seconds": round(statistics.median(spent), 3),
        "proofs_per_minute": round(60 * len(spent) / took, 1),
    }


def main() -> int:
    """Measure and record; 1 where an honest program was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=60.0, help="all programs together, first verdicts left out")
    parser.add_argument("--judges", type=int, default=1, help="at once: checks share the device, timing does not")
    parser.add_argument("--out", type=Path)
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    programs = wanted(asked.device, asked.words)
    if not programs:
        parser.error(f"no honest program of {asked.device} is called like {asked.words}")
    rows = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as judges:
        Path(folder).chmod(0o755)
        workers = [
            judges.enter_context(LocalWorker(asked.device, Path(folder, f"state{number}"), Path(folder, "cache")))
            for number in range(asked.judges)
        ]
        for program in programs:
            with ThreadPoolExecutor(len(workers)) as pool:
                begun = list(pool.map(lambda worker, one=program: first(worker, one), workers))
            row = {**begun[0], **repeated(workers, program, asked.seconds / len(programs))}
            wrong = [one["words"] for one in begun if not one["right"]]
            rows.append({**row, "right": row["right"] and not wrong, "refused": wrong + row["refused"]})
            sys.stdout.write(f"{json.dumps(rows[-1])}\n")
            sys.stdout.flush()
        name = workers[0].run({"job": "machine"})["machine"]["name"]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("nvidia ")).strip("-")
    target = asked.out or ROOT / "benchmarks" / "results" / slug / "rate.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    record = {"command": shlex.join(["python", *sys.argv]), "commit": commit(), "machine": name, "rows": rows}
    target.write_text(json.dumps(record, indent=1) + "\n")
    return not all(row["right"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
