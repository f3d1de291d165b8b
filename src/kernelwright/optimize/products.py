# SPDX-License-Identifier: Apache-2.0
"""The files a run leaves for its user: exported winner, proof and report, each written by its own room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelwright import export, wire
from kernelwright.machine import Machine
from kernelwright.report import write as write_report
from kernelwright.task import Task
from kernelwright.trial import Trial
from kernelwright.workers import Worker

Say = Callable[..., None]


def export_winner(
    run: Path,
    task: Task,
    winner: Trial,
    facts: Mapping[str, Any],
    machine: Machine | None,
    worker: Worker,
    device: str,
    energy: Mapping[str, Any] | None = None,
) -> tuple[Path, ...]:
    """optimized.py with its compiled files, and proof.json. ``facts`` is the judge's answer to ``describe``,
    ``energy`` that of ``energy_of_call``."""
    built = worker.run({"job": "build", "candidate": wire.to_data(winner.candidate), "device": device})
    folder = built.get("folder")
    path = export.write(
        run,
        task=task,
        trial=winner,
        cases=facts["points"],
        built=Path(folder) if folder else None,
        commands=built.get("commands", {}),
        machine=machine,
        energy=energy,
    )
    names = [name for name, _ in winner.candidate.sources if name.endswith((".cpp", ".cu"))]
    compiled = [run / name for name in names] + [run / Path(name).with_suffix(".so") for name in names]
    return (path, *(file for file in compiled if file.exists()), run / "proof.json")


def energy_of_call(task: Task, winner: Trial, worker: Worker, device: str) -> dict[str, Any]:
    """{"mJ", "watts", "note"} of one call of the winner; None where it was not measured, and why."""
    job = {"job": "energy", "device": device, "task": wire.to_data(task), "candidate": wire.to_data(winner.candidate)}
    reply = worker.run(job)
    return reply.get("call") or {"mJ": None, "watts": None, "note": reply.get("note", "not asked for")}


def write_pages(run: Path) -> tuple[Path, ...]:
    """report.html and its plain forms."""
    return (write_report(run),)
