# SPDX-License-Identifier: Apache-2.0
"""The other verbs: judge one candidate, list runs, write a report again, measure the machine and the limits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright import settings, wire
from kernelwright.candidate import Candidate
from kernelwright.errors import NoSuchRun, NotAdmitted
from kernelwright.machine import Machine
from kernelwright.optimize import cost, tables
from kernelwright.optimize import folder as folders
from kernelwright.optimize.judging import foreseen
from kernelwright.optimize.services import Say, Services, bound_of, silent
from kernelwright.report import write as write_html
from kernelwright.task import Task
from kernelwright.trial import Outcome, Trial


def judge_candidate(
    task: Task,
    candidate: Candidate,
    device: str,
    *,
    level: str = "precise",
    sanitize: bool = False,
    also: Sequence[str] = (),
    say: Say = silent,
    services: Services | None = None,
) -> Trial:
    """Admit the task, then build, verify and measure the candidate; ``sanitize``: then look at it with sanitizers.

    ``also``: of ``server``, ``cold``, ``memory`` and ``warm``, measured besides.
    Raises BadCommand, TaskError, ToolMissing, JudgeFailed.
    """
    used = services or Services(device)
    used.hear(say)
    try:
        machine = used.machine(say)
        say(f"admitting {task.name} on {device}")
        decoys = admitted(used, task, device).get("decoys", ())
        facts = used.describe(task)
        takes = foreseen(facts, device).get(level, 1.0)
        say(f"admitted: {len(decoys)} known-wrong programs rejected; judging the candidate, some {takes:.0f} s")
        started_at, began = time.time(), time.monotonic()
        result = used.worker.run(
            {
                "job": "judge",
                "device": device,
                "task": wire.to_data(task),
                "candidate": wire.to_data(candidate),
                "level": level,
                "sanitize": sanitize,
                "also": list(also),
                **bound_of(facts),
            }
        )
        outcome: Outcome = wire.from_data(Outcome, result["outcome"])  # type: ignore[arg-type]  # a union is no class
        return Trial(
            candidate=candidate,
            outcome=outcome,
            level=level,
            machine=machine.fingerprint,
            versions=machine.versions,
            seconds=time.monotonic() - began,
            started_at=started_at,
        )
    finally:
        if services is None:
            used.close()


def admit_task(task: Task, device: str, *, say: Say = silent, services: Services | None = None) -> dict[str, Any]:
    """The admission of a task: which known-wrong programs the judge rejected, and how. Raises NotAdmitted."""
    used = services or Services(device)
    used.hear(say)
    try:
        say(f"admitting {task.name} on {device}")
        return admitted(used, task, device)
    finally:
        if services is None:
            used.close()


def admitted(services: Services, task: Task, device: str) -> dict[str, Any]:
    """``admit_task`` by services that somebody hears already."""
    reply = services.worker.run({"job": "admit", "device": device, "task": wire.to_data(task)})
    check_admitted(task, reply)
    return reply


def check_admitted(task: Task, reply: dict[str, Any]) -> None:
    """Raise NotAdmitted unless the reply to the job ``admit`` says that the task is."""
    if not reply.get("admitted", True):
        raise NotAdmitted(
            f"The task {task.name} is not admitted: no verdict on it would mean anything.",
            got="; ".join(str(reason) for reason in reply.get("reasons", ())),
            expected="every known-wrong program is rejected, every input has influence",
            what_next="change the inputs so that a wrong program shows, or state the contract in a task folder",
        )


def measure_machine(device: str, *, say: Say = silent, services: Services | None = None) -> Machine:
    """The device as measured, from the cache while its fingerprint is the same. Raises NoSuchDevice."""
    used = services or Services(device)
    used.hear(say)
    try:
        return used.machine(say)
    finally:
        if services is None:
            used.close()


def measure_limits(
    task: Task,
    device: str,
    *,
    grid: float = settings.WORLD_GRID,
    say: Say = silent,
    services: Services | None = None,
) -> dict[str, Any]:
    """Bounds of a task on a device with eager's time of each operator, and ``text``, the table.

    Raises TaskError, NoSuchDevice."""
    used = services or Services(device)
    used.hear(say)
    try:
        machine = used.machine(say)
        data = wire.to_data(machine)
        job = {"job": "limits", "device": device, "task": wire.to_data(task), "machine": data, "timed": True}
        reply = used.worker.run(job)
        spent = cost.least(reply.get("bounds"), machine, grid)
        return {**reply, "energy": spent, "text": tables.limits(reply.get("bounds")) + cost.least_words(spent)}
    finally:
        if services is None:
            used.close()


def profile_candidate(
    task: Task,
    candidate: Candidate,
    device: str,
    *,
    parent: Candidate | None = None,
    grid: float = settings.WORLD_GRID,
    say: Say = silent,
    services: Services | None = None,
) -> dict[str, Any]:
    """Facts of exactly this candidate, the notes on what could not be measured, and ``text``, the diagnosis.

    ``parent`` is profiled first, and the page then says what changed. Raises TaskError, ToolMissing, JudgeFailed."""
    used = services or Services(device)
    used.hear(say)
    try:
        machine = wire.to_data(used.machine(say))
        job = {"job": "profile", "device": device, "task": wire.to_data(task), "machine": machine}
        before = used.worker.run({**job, "candidate": wire.to_data(parent)}) if parent is not None else {}
        reply = used.worker.run({**job, "candidate": wire.to_data(candidate)})
        reply |= {"parent": before.get("candidate"), "parent_facts": before.get("facts")} if before else {}
        facts = reply.get("facts", {})
        reply["cost"] = cost.call(facts.get("energy_mJ"), grid)
        return {**reply, "text": tables.profile(reply, device) + cost.call_words(facts, grid) + "\n"}
    finally:
        if services is None:
            used.close()


def list_runs(parent: Path | None = None) -> list[dict[str, Any]]:
    """Every run below ``parent`` (default: the runs folder), newest first, as plain data. Raises NoSuchRun where a
    ``parent`` that is named is no folder."""
    if parent is not None and (why := folders.unlisted(parent)):
        raise NoSuchRun("There is no folder of runs.", got=why, expected="the folder in which run folders lie")
    found = []
    for path, record in folders.listed(parent or settings.read().runs):
        result = record.get("result") or {}
        found.append(
            {
                "run": str(path),
                "task": record.get("task", {}).get("name", "?"),
                "device": record.get("options", {}).get("device", "?"),
                "status": record.get("status", "?"),
                "message": record.get("message", ""),
                "tried": result.get("tried"),
                "speedup": (result.get("winner") or {}).get("speedup"),
                "started_at": record.get("started_at"),
            }
        )
    return found


def write_report(run: Path) -> Path:
    """Write report.html of a run again from its ledger. Raises NoSuchRun, LedgerCorrupt."""
    folders.read(run)
    return write_html(run)
