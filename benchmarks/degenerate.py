# SPDX-License-Identifier: Apache-2.0
"""Published KernelBench problems on which a known-wrong program passes, found by the judge's own admission.

    python benchmarks/degenerate.py PATH_OF_KernelBench --out FILE [--problem level2/80 ...]

PATH is a checkout (problems are read from PATH/KernelBench/levelN). Nothing of it is written but names, numbers and
reasons. Two questions are asked of each problem, each in a process of its own:

- as published, at its own sizes: what the reference gives for one draw of inputs, held as a constant against what it
  gives for other draws, under the problem's own comparison (absolute and relative 1e-4, in float32). Where it passes,
  a program that computes nothing passes.
- the judge's admission, with module-level sizes capped where the name says so (``NAME@CAP``): the shipped sizes take
  minutes each. ``--no-admission`` leaves it out, ``--admission-only`` the other.

With ``--out`` what FILE already has is kept, so that a run can be continued problem by problem.
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
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

import provenance  # noqa: E402

CHOSEN = (
    "level2/80@32", "level2/9@32", "level2/23@8", "level2/83@8", "level2/36@8", "level2/42@8", "level3/28@32",
    "level3/3@32", "level3/7@32", "level3/11@32", "level3/18@32", "level3/35@32",
)  # fmt: skip
TOLERANCE = 1e-4
"""KernelBench's for float32, absolute and relative (its ``eval.py``)."""
DRAWS = 3
"""Draws of the inputs that the constant, a fourth draw's result, must pass on."""


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


def constant(path: Path, cap: int, answer: multiprocessing.Queue) -> None:
    """Hold the result for one draw of the inputs against the results for others, as the problem was published."""
    import torch

    torch.set_num_threads(2)
    space: dict = {"__name__": path.stem}
    exec(compile(path.read_text(), str(path), "exec"), space)  # noqa: S102 - the user's own checkout
    torch.manual_seed(42)
    model = space["Model"](*space["get_init_inputs"]())
    found = []
    with torch.no_grad():
        for seed in range(DRAWS + 1):
            torch.manual_seed(1000 + seed)
            found.append(model(*space["get_inputs"]()))
    held, *others = found
    gaps = [float((one - held).abs().max()) for one in others]
    passes = [torch.allclose(held, one, atol=TOLERANCE, rtol=TOLERANCE) for one in others]
    answer.put({"passes": all(passes), "largest difference": max(gaps), "shape": list(held.shape)})


def within(question: Callable[..., None], path: Path, cap: int, seconds: float) -> dict:
    """A question in a process of its own, given up after ``seconds``."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=question, args=(path, cap, answer))
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
    parser.add_argument("--no-admission", action="store_true")
    parser.add_argument("--admission-only", action="store_true", help="leave what FILE has about constants as it is")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    results: dict[str, dict] = {}
    commands: list[str] = []
    if asked.out and asked.out.exists():
        before = json.loads(asked.out.read_text())
        results, commands = before["problems"], before["command"].split("; ")
    said = "python benchmarks/degenerate.py PATH_OF_KernelBench --out FILE"
    said += " --admission-only" * asked.admission_only + " --no-admission" * asked.no_admission
    commands = list(dict.fromkeys([*commands, f"{said} --seconds {asked.seconds:g}"]))
    for name in asked.problem or CHOSEN:
        name, _, cap = name.partition("@")
        path = find(asked.path, name)
        row = results.setdefault(f"{name} {path.stem.partition('_')[2]}", {})
        if not asked.admission_only:
            row["constant at published sizes"] = within(constant, path, 0, asked.seconds)
        if not asked.no_admission:
            capped_at = int(cap or asked.cap)
            row["admission"] = {"sizes capped at": capped_at} | within(examine, path, capped_at, asked.seconds)
        sys.stdout.write(f"{name} {path.stem}: {json.dumps(row)[:600]}\n")
        sys.stdout.flush()
        if asked.out:
            asked.out.write_text(json.dumps(summary(results, commands), indent=1, sort_keys=True) + "\n")
    found = summary(results, commands)
    sys.stdout.write(f"{len(found['degenerate'])} of {len(results)} degenerate\n")
    return 0


def summary(results: dict[str, dict], commands: list[str]) -> dict:
    """The rows, and which problems a constant passes at published sizes, or the judge does not admit."""

    def judged(row: dict) -> bool:
        found = row.get("admission", {})
        return found.get("admitted") is False or bool(found.get("as published"))

    by_constant = sorted(n for n, row in results.items() if row.get("constant at published sizes", {}).get("passes"))
    by_judge = sorted(name for name, row in results.items() if judged(row))
    return {
        "commit": provenance.commit(),
        "command": "; ".join(commands),
        "a constant passes at published sizes": by_constant,
        "named by the judge": by_judge,
        "degenerate": sorted({*by_constant, *by_judge}),
        "problems": results,
    }


if __name__ == "__main__":
    sys.exit(main())
