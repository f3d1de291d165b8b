# SPDX-License-Identifier: Apache-2.0
"""Full proofs a minute: honest compiled programs of the corpus, judged precisely again and again, caches warm.

    python benchmarks/rate.py [--device cpu|cuda] [--seconds 60] [--out FILE] [WORD ...]

One judge, one verdict at a time. A program counts from its second verdict on: the first one compiles, admits the task
and warms the baselines. WORDs choose programs by parts of their names; without any, Triton and CUDA C++ on a GPU, C++
on a CPU. Writes benchmarks/results/<machine>/rate.json, or FILE.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import statistics
import sys
import tempfile
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


def measured(worker: LocalWorker, program: Program, seconds: float) -> dict:
    """Verdicts of one program after a first one, until its seconds are spent; at least three."""
    first = run_corpus.judge(worker, program, "precise")
    spent: list[float] = []
    right = first.right
    while right and (sum(spent) < seconds or len(spent) < 3):
        verdict = run_corpus.judge(worker, program, "precise")
        spent.append(verdict.seconds)
        right = verdict.right
    return {
        "program": f"{program.task}/{program.name}",
        "language": program.language,
        "right": right,
        "first_seconds": round(first.seconds, 2),
        "verdicts": len(spent),
        "median_seconds": round(statistics.median(spent), 3) if spent else None,
        "proofs_per_minute": round(60 * len(spent) / sum(spent), 1) if spent else 0.0,
        "words": first.words[:200],
    }


def main() -> int:
    """Measure and record; 1 where an honest program was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=60.0, help="all programs together, first verdicts left out")
    parser.add_argument("--out", type=Path)
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    programs = wanted(asked.device, asked.words)
    if not programs:
        parser.error(f"no honest program of {asked.device} is called like {asked.words}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with LocalWorker(asked.device, Path(folder, "state"), Path(folder, "cache")) as worker:
            for program in programs:
                rows.append(measured(worker, program, asked.seconds / len(programs)))
                sys.stdout.write(f"{json.dumps(rows[-1])}\n")
                sys.stdout.flush()
            name = worker.run({"job": "machine"})["machine"]["name"]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("nvidia ")).strip("-")
    target = asked.out or ROOT / "benchmarks" / "results" / slug / "rate.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    record = {"command": shlex.join(["python", *sys.argv]), "commit": commit(), "machine": name, "rows": rows}
    target.write_text(json.dumps(record, indent=1) + "\n")
    return not all(row["right"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
