# SPDX-License-Identifier: Apache-2.0
"""Judges the whole corpus, or the part whose names hold one of the given words, and says what went wrong.

python tests/cheats/run_corpus.py [--repeats N] [--quick] [--level precise] [--json FILE] [word ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from almost_programs import ALMOST
from between_programs import BETWEEN
from beyond_programs import BEYOND
from border_programs import BORDERS
from cheat_programs import CHEATS
from cheat_tasks import TASKS
from common_programs import COMMON
from configured_programs import CONFIGURED
from contract_programs import CONTRACT
from corpus import Program
from dear_programs import DEAR
from device_programs import DEVICE
from edge_programs import EDGES
from elsewhere_programs import ELSEWHERE
from emptied_programs import EMPTIED
from ends_programs import ENDS
from extreme_programs import EXTREME
from far_programs import FAR
from field_programs import FIELD
from fitted_programs import FITTED
from formula_programs import FORMULAS
from gpu_programs import GPU
from grouped_programs import GROUPED
from hidden_programs import HIDDEN
from honest_programs import HONEST
from hostile_programs import HOSTILE
from hurried_programs import HURRIED
from insider_programs import INSIDERS
from kept_programs import KEPT
from labelled_programs import LABELLED
from later_programs import LATER
from lazy_programs import LAZY
from level_programs import LEVEL
from limit_programs import LIMITS
from losses_programs import LOSSES
from masked_programs import MASKED
from meeting_programs import MEETING
from met_size_programs import MET_SIZES
from named_programs import NAMED
from narrow_programs import NARROW
from near_programs import NEARLY
from near_size_programs import NEAR_SIZES
from other_hands import OTHERS
from padded_programs import PADDED
from phase_programs import PHASES
from ported_programs import PORTED
from rarely_programs import RARELY
from relation_programs import RELATED
from replaced_programs import REPLACED
from retried_programs import RETRIED
from running_programs import RUNNINGS
from scattered_programs import SCATTERED
from seam_programs import SEAMS
from several_programs import SEVERAL
from side_programs import SIDES
from sized_programs import SIZED
from slip_programs import SLIPS
from standing_programs import STANDING
from stray_programs import STRAYS
from tied_programs import TIED
from time_cheats import TIME_CHEATS
from trained_programs import TRAINED
from triton_programs import TRITON
from turning_programs import TURNING
from typed_programs import TYPED
from unmet_programs import UNMET
from unreached_programs import UNREACHED
from unseen_programs import UNSEEN
from untrained_programs import UNTRAINED

from kernelwright import wire
from kernelwright.errors import KernelwrightError
from kernelwright.workers.local import LocalWorker

ALL: tuple[Program, ...] = (
    *CHEATS, *TIME_CHEATS, *CONTRACT, *LATER, *SEAMS, *PHASES, *OTHERS, *ELSEWHERE, *INSIDERS, *HOSTILE, *NARROW,
    *TRITON, *HONEST, *FORMULAS, *BORDERS, *PORTED, *BEYOND, *SIDES, *UNMET, *SLIPS, *STRAYS, *COMMON, *KEPT, *DEAR,
    *TIED, *BETWEEN, *LOSSES, *MASKED, *SEVERAL, *HIDDEN, *LAZY, *EMPTIED, *ENDS, *FAR, *MEETING, *UNREACHED, *SIZED,
    *SCATTERED, *NEARLY, *FIELD, *RARELY, *LEVEL, *RUNNINGS, *ALMOST, *EXTREME, *EDGES, *RELATED, *UNSEEN, *FITTED,
    *TURNING, *LIMITS, *STANDING, *GROUPED, *PADDED, *NEAR_SIZES, *MET_SIZES, *NAMED, *CONFIGURED,
    *TYPED, *TRAINED, *RETRIED, *LABELLED, *REPLACED, *UNTRAINED,
    *GPU, *DEVICE, *HURRIED,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge said of one program and whether that was right."""

    program: Program
    right: bool
    words: str
    stage: str
    speedup: float | None
    seconds: float


def judge(worker: LocalWorker, program: Program, level: str = "") -> Verdict:
    """One program at its own level (or at ``level``), without admission: the tasks are admitted by a test."""
    task = TASKS[program.task]
    began = time.monotonic()
    job = {
        "job": "judge",
        "task": wire.to_data(task),
        "candidate": wire.to_data(program.candidate(task)),
        "level": level or program.level,
        "baselines": ["eager"],
        "admit": False,
    }
    if program.patience is not None:
        job["patience"] = program.patience
    try:
        outcome = worker.run(job)["outcome"]
    except KernelwrightError as error:
        return Verdict(program, False, f"the judge failed: {error}"[:800], "", None, time.monotonic() - began)
    right, words, stage, speedup = opinion(program, outcome)
    return Verdict(program, right, words, stage, speedup, time.monotonic() - began)


def opinion(program: Program, outcome: dict | None) -> tuple[bool, str, str, float | None]:
    """(whether the outcome is right, in words, stage of a refusal, speedup granted)."""
    if outcome is None or outcome["is"] == "Timed":
        speedup = None if outcome is None else float(outcome["speedup_low"])
        said = "passed" if speedup is None else f"granted {outcome['speedup']:.2f} (low {speedup:.2f})"
        harmless = program.gains is not None and speedup is not None and speedup < program.gains
        return program.honest or harmless, said, "", speedup
    said = f"{outcome['stage']}: {outcome['reason']}"
    return not program.honest and outcome["stage"] in program.stages, said, outcome["stage"], None


def by_task(programs: Iterable[Program]) -> list[Program]:
    """Together what shares a task: the judge keeps two warm."""
    return sorted(programs, key=lambda program: program.task)


def verdicts(worker: LocalWorker, programs: Iterable[Program], level: str = "") -> Iterator[Verdict]:
    """Every program judged; compiling goes on beside."""
    ordered = by_task(p for p in programs if p.device == worker.device)
    builds = [
        worker.submit({"job": "build", "candidate": wire.to_data(p.candidate(TASKS[p.task]))})
        for p in ordered
        if p.language in ("cpp", "cuda")
    ]
    for program in ordered:
        yield judge(worker, program, level)
    for build in builds:
        build.result()


def main() -> int:
    """Print every wrong verdict; the exit code says whether there was one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--honest", action="store_true", help="honest programs only")
    parser.add_argument("--level", default="")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--all", action="store_true", help="print right verdicts too")
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    programs = [p for p in ALL if not asked.words or any(word in p.name or word == p.task for word in asked.words)]
    programs = [p for p in programs if not (asked.quick and p.slow) and (p.honest or not asked.honest)]
    found: list[Verdict] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with LocalWorker(asked.device, Path(folder, "state"), Path(folder, "cache")) as worker:
            for _ in range(asked.repeats):
                for verdict in verdicts(worker, programs, asked.level):
                    found.append(verdict)
                    if asked.all or not verdict.right:
                        mark = "ok   " if verdict.right else "WRONG"
                        kind = "honest" if verdict.program.honest else f"cheat {verdict.program.classes}"
                        line = f"{mark} {kind} {verdict.program.task}/{verdict.program.name}: {verdict.words[:300]}"
                        sys.stdout.write(f"{line} [{verdict.seconds:.2f} s]\n")
                        sys.stdout.flush()
    wrong = [v for v in found if not v.right]
    accepted = sum(not v.program.honest for v in wrong)
    seconds = time.monotonic() - began
    sys.stdout.write(
        f"{len(found)} verdicts in {seconds:.0f} s: {accepted} cheats misjudged, "
        f"{len(wrong) - accepted} honest refused\n"
    )
    if asked.json:
        asked.json.write_text(
            json.dumps([[v.program.name, v.program.task, v.right, v.words, v.seconds] for v in found])
        )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
