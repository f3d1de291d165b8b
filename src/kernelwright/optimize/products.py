# SPDX-License-Identifier: Apache-2.0
"""The files a run leaves for its user: exported winner, proof and report, each written by its own room."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelwright import export, wire
from kernelwright.errors import RunFolderUnwritable
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
    """optimized.py with its compiled files, proof.json and captured weights.

    ``facts`` is the judge's answer to ``describe``, ``energy`` that of ``energy_of_call``."""
    built = worker.run({"job": "build", "candidate": wire.to_data(winner.candidate), "device": device})
    folder = built.get("folder")
    weights = _place_weights(run, task)
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
    modules = [run / export.MODULES] if task.beside else []
    return (path, *(file for file in compiled if file.exists()), *modules, *weights, run / "proof.json")


def _place_weights(run: Path, task: Task) -> tuple[Path, ...]:
    """Copy a captured module's weights beside optimized.py, which looks for them there: caches are cleared."""
    if task.form != "object":
        return ()
    made = [node for node in ast.parse(task.reference).body if isinstance(node, ast.Assign)]
    found = [node.value for node in made if [ast.unparse(name) for name in node.targets] == ["CAPTURED_STATE"]]
    if not found:
        return ()
    saved = Path(str(ast.literal_eval(found[-1])))
    try:
        body = saved.read_bytes()
    except OSError:
        return ()  # optimized.py warns where it finds none
    try:
        (run / saved.name).write_bytes(body)
    except OSError as error:
        raise RunFolderUnwritable(
            f"The run folder {run} cannot be written.",
            got=str(error),
            expected="a folder on a disk with free space",
            what_next="free space, then run again with --resume",
        ) from error
    return (run / saved.name,)


def energy_of_call(task: Task, winner: Trial, worker: Worker, device: str) -> dict[str, Any]:
    """{"mJ", "watts", "note"} of one call of the winner; None where it was not measured, and why."""
    job = {"job": "energy", "device": device, "task": wire.to_data(task), "candidate": wire.to_data(winner.candidate)}
    reply = worker.run(job)
    return reply.get("call") or {"mJ": None, "watts": None, "note": reply.get("note", "not asked for")}


def write_pages(run: Path) -> tuple[Path, ...]:
    """report.html and its plain forms."""
    return (write_report(run),)
