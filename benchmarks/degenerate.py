# SPDX-License-Identifier: Apache-2.0
"""Published KernelBench problems on which a known-wrong program passes, found by the judge's own admission.

    python benchmarks/degenerate.py PATH_OF_KernelBench --out FILE [--problem level2/80 ...]

PATH is a checkout (problems are read from PATH/KernelBench/levelN). Nothing of it is written but names and reasons.
Each problem runs as it was published,
or with its module-level sizes capped (``--cap``, or ``NAME@CAP``): the shipped sizes
take minutes each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import queue
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

CHOSEN = (
    "level2/23@8", "level2/80@32", "level2/83@8", "level2/9@32", "level2/36@8", "level2/42@8", "level3/28@32",
)  # fmt: skip


def find(root: Path, name: str) -> Path:
    """The file of a problem such as ``level2/80``."""
    level, _, number = name.partition("/")
    found = list((root / "KernelBench" / level).glob(f"{number}_*.py"))
    if not found:
        raise SystemExit(f"no problem {name} in {root}")
    return found[0]


def capped(text: str, cap: int) -> str:
    """Whole numbers assigned at module level, at most ``cap``."""
    return re.sub(r"(?m)^(\w+ *= *)(\d+)\b", lambda m: m[1] + str(min(int(m[2]), cap)), text)


def examine(path: Path, cap: int, answer: multiprocessing.Queue) -> None:
    """Admit one problem and say what passed."""
    import torch

    from kernelwright.judge.admission import admit
    from kernelwright.judge.reference import Reference
    from kernelwright.task import Task

    torch.set_num_threads(2)
    text = path.read_text()
    task = Task(name=path.stem, form="kernelbench", reference=capped(text, cap) if cap else text)
    found = admit(Reference(task, "cpu"))
    passed = [name for name, by in found.decoys if by.startswith("PASSES")]
    published = [note for note in found.notes if note.startswith("on the task's own inputs")]
    answer.put({"admitted": found.admitted, "passes": passed, "reasons": found.reasons, "as published": published})


def within(path: Path, cap: int, seconds: float) -> dict:
    """``examine`` in a process of its own, given up after ``seconds``."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=examine, args=(path, cap, answer))
    began = time.monotonic()
    process.start()
    found = {"undecided": f"no answer within {seconds:g} s"}
    while time.monotonic() - began < seconds:
        with contextlib.suppress(queue.Empty):
            found = answer.get(timeout=0.5)
            break
        if not process.is_alive():
            found = {"undecided": f"it ended with exit code {process.exitcode}"}
            break
    process.kill()
    process.join()
    return {**found, "seconds": round(time.monotonic() - began, 1)}


def main() -> int:
    """Examine the chosen problems and write what passed on each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--problem", action="append")
    parser.add_argument("--cap", type=int, default=0, help="cap module-level sizes (0: as published)")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    results = {}
    for name in asked.problem or CHOSEN:
        name, _, cap = name.partition("@")
        path = find(asked.path, name)
        found = {"sizes capped at": int(cap or asked.cap)} | within(path, int(cap or asked.cap), asked.seconds)
        results[f"{name} {path.stem.partition('_')[2]}"] = found
        sys.stdout.write(f"{name} {path.stem}: {json.dumps(found)[:500]}\n")
        sys.stdout.flush()
    degenerate = sorted(
        name for name, found in results.items() if found.get("as published") or found.get("admitted") is False
    )
    if asked.out:
        body = {"degenerate": degenerate}
        asked.out.write_text(json.dumps({**body, "problems": results}, indent=1, sort_keys=True) + "\n")
    sys.stdout.write(f"{len(degenerate)} of {len(results)} degenerate\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
