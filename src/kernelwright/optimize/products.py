# SPDX-License-Identifier: Apache-2.0
"""The files a run leaves for its user: exported winner, proof and report, each written by its own room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernelwright import export
from kernelwright.report import write as write_report
from kernelwright.task import Task
from kernelwright.trial import Trial


def write_products(run: Path, task: Task, winner: Trial | None, say: Callable[..., None]) -> tuple[Path, ...]:
    """optimized.py and proof.json (with a winner) and report.html; returns what was written."""
    files: list[Path] = []
    if winner is not None:
        files += export.write(run, task, winner)
    files.append(write_report(run))
    say("phase", "written: " + ", ".join(path.name for path in files))
    return tuple(files)
