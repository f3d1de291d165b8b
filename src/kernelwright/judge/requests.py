# SPDX-License-Identifier: Apache-2.0
"""The nouns in a job, read or refused with the error of whoever wrote the job."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import CandidateError, KernelwrightError, NoSuchDevice, TaskError
from kernelwright.neighbours import placed
from kernelwright.task import Task


@dataclass(frozen=True, slots=True)
class Refused:
    """A task that could not be looked at: ``key`` says which on what device, ``at`` when (``time.monotonic``)."""

    key: tuple[str, str]
    error: KernelwrightError
    at: float

    def answers(self, key: tuple[str, str], job: dict[str, Any]) -> bool:
        """Whether a job on the same task fails alike without another look.

        One that was asked for while the look was going on does (``asked``, by the server: its ``admit`` would else
        begin after a budget was found too small), and any where the task itself is at fault. What was missing of
        memory, of one job's time or of a device may be there for a later one, and who asks to ``describe`` asks anew.
        """
        if key != self.key or job.get("job") == "describe":
            return False
        return isinstance(self.error, TaskError) or job.get("asked", math.inf) <= self.at


def task_of(job: dict[str, Any], state: Path | None = None) -> Task:
    """``job["task"]``; given the judge's ``state``, with its modules where references import them. Raises TaskError."""
    try:
        task = wire.from_data(Task, job["task"])
    except (KeyError, ValueError, TypeError) as error:
        raise TaskError("The task of a job cannot be read", str(error), "a Task as wire data") from error
    if state is None or not task.beside:
        return task
    return dataclasses.replace(task, imports=placed(task.beside, state / "beside"))


def candidate_of(job: dict[str, Any]) -> Candidate:
    """``job["candidate"]``. Raises CandidateError."""
    try:
        return wire.from_data(Candidate, job["candidate"])
    except (KeyError, ValueError, TypeError) as error:
        raise CandidateError("The candidate of a job cannot be read", str(error), "a Candidate as wire data") from error


def named(job: dict[str, Any], what: str) -> tuple[str, ...] | None:
    """The names that a job gives of something; None where it gives none and leaves the choice."""
    given = job.get(what)
    return None if given is None else tuple(given)


def device_of(job: dict[str, Any], default: str) -> str:
    """``cpu`` or ``cuda:N``, and it exists. Raises NoSuchDevice."""
    device = str(job.get("device") or default)
    device = "cuda:0" if device == "cuda" else device
    if device == "cpu":
        return device
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = device.removeprefix("cuda:")
    if not device.startswith("cuda:") or not index.isdigit() or int(index) >= count:
        raise NoSuchDevice(
            f"There is no device {device}", f"{count} CUDA devices", "a device that exists", "use --device cpu"
        )
    return device
