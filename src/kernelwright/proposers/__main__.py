# SPDX-License-Identifier: Apache-2.0
"""The proposer host: ``python -m kernelwright.proposers --serve`` answers JSON lines on stdin, one reply per job.

It may execute the reference while tracing it, so file descriptor 1 is handed to stderr at start and the
replies go through a private copy: a reference that prints cannot corrupt the protocol.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from kernelwright import wire
from kernelwright.errors import BadCommand, CandidateError, KernelwrightError, TaskError
from kernelwright.machine import Machine
from kernelwright.neighbours import placed
from kernelwright.proposers import TABLE, Proposer, Request
from kernelwright.task import Task

Emit = Callable[[dict[str, Any]], None]
AGAIN_S = 0.5
"""After so many seconds a job that goes on is interrupted once more: what was traced may have caught the first time."""


class OutOfTime(BaseException):
    """A job's ``seconds`` are over. No Exception: torch, and references, catch those while they are traced."""


class Host:
    """Holds the proposers loaded so far; each job is one method call."""

    def __init__(self, table: Mapping[str, str] = TABLE) -> None:
        self._table = table
        self._loaded: dict[str, Proposer] = {}

    def proposer(self, name: str) -> Proposer:
        """The named proposer, imported on first use; an unknown name is a ``BadCommand``."""
        if name not in self._loaded:
            if name not in self._table:
                raise BadCommand("No such proposer.", name, ", ".join(sorted(self._table)), "choose one of these")
            module, _, attribute = self._table[name].partition(":")
            self._loaded[name] = getattr(importlib.import_module(module), attribute)()
        return self._loaded[name]

    def warm(self) -> None:
        """Import every proposer and run torch.export once, which imports for seconds more when first used.

        Done before the first request, while the judge starts; what fails here fails again, in words, when asked."""
        try:
            for name in self._table:
                self.proposer(name)
            importlib.import_module("kernelwright.proposers.templates.graph").warm()
        except Exception:  # noqa: BLE001 - a missing package is the request's to report
            traceback.print_exc(file=sys.stderr)

    def answer(self, job: Mapping[str, Any], emit: Emit) -> dict[str, Any]:
        """Run one job; ``emit`` takes events on the way. Raises ``KernelwrightError`` and nothing else."""
        kind = job.get("job")
        if kind == "structures":
            return self._structures(job, emit)
        if kind == "render":
            return self._render(job)
        raise BadCommand("No such job.", repr(kind), "structures, render or shutdown")

    def _structures(self, job: Mapping[str, Any], emit: Emit) -> dict[str, Any]:
        name = str(job.get("proposer"))

        def say(reason: str) -> None:
            emit({"event": "left-out", "proposer": name, "reason": " ".join(reason.split())[:300]})

        request = dataclasses.replace(_request(job), say=say)
        began = time.monotonic()
        try:
            with _within(job.get("seconds")):
                found = self.proposer(name).structures(request)
        except OutOfTime:
            return {"structures": [], "late": True}
        except KernelwrightError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - tracing runs the user's reference
            traceback.print_exc(file=sys.stderr)
            emit({"event": "proposer-skipped", "proposer": name, "reason": _one_line(error)})
            return {"structures": [], "seconds": time.monotonic() - began}
        return {"structures": [wire.to_data(structure) for structure in found], "seconds": time.monotonic() - began}

    def _render(self, job: Mapping[str, Any]) -> dict[str, Any]:
        request, name, structure = _request(job), str(job.get("proposer")), str(job.get("structure"))
        values = job.get("values") or {}
        try:
            with _within(job.get("seconds")):
                candidate = self.proposer(name).render(request, structure, values)
        except OutOfTime as error:
            raise CandidateError(f"{name} did not render {structure} in time.", f"over {job['seconds']:g} s") from error
        except KernelwrightError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - the reference may run again
            traceback.print_exc(file=sys.stderr)
            raise CandidateError(f"{name} could not render {structure}.", _one_line(error)) from error
        return {"candidate": wire.to_data(candidate)}


@contextmanager
def _within(seconds: float | None) -> Iterator[None]:
    """Raises OutOfTime in what is done inside once it takes longer; outside the main thread nothing can."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, over)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), AGAIN_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _events(send: Emit, number: object) -> Emit:
    return lambda event: send({"id": number, "event": event})


def _request(job: Mapping[str, Any]) -> Request:
    try:
        machine = job.get("machine")
        task = wire.from_data(Task, job["task"])
        if task.beside:
            task = dataclasses.replace(task, imports=placed(task.beside, _scratch()))
        return Request(
            task=task,
            device=str(job["device"]).partition(":")[0],
            machine=None if machine is None else wire.from_data(Machine, machine),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise TaskError("The job carries no readable task.", _one_line(error), "task, device, machine") from error


@functools.cache
def _scratch() -> Path:
    """A folder of this process's own, which goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="kernelwright-host-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]


def serve(lines: TextIO, out: TextIO, host: Host | None = None) -> None:
    """Answer requests line by line until ``shutdown`` or the end of input."""
    host = host or Host()

    def send(data: dict[str, Any]) -> None:
        out.write(json.dumps(data) + "\n")
        out.flush()

    for line in lines:
        if not line.strip():
            continue
        number: object = None
        try:
            job = json.loads(line)
            if not isinstance(job, dict):
                raise BadCommand("A request is one JSON object per line.", line[:80])
            number = job.get("id")
            if job.get("job") == "shutdown":
                send({"id": number, "result": {}})
                return
            send(
                {
                    "id": number,
                    "result": host.answer(job, _events(send, number)),
                }
            )
        except json.JSONDecodeError as error:
            send(
                {
                    "id": number,
                    "error": BadCommand("A request is one JSON object per line.", str(error)).to_json(),
                }
            )
        except KernelwrightError as error:
            send({"id": number, "error": error.to_json()})


def main(arguments: list[str]) -> int:
    """Entry of ``python -m kernelwright.proposers``; returns the exit code."""
    if arguments != ["--serve"]:
        sys.stderr.write("usage: python -m kernelwright.proposers --serve\n")
        return BadCommand.exit_code
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    host = Host()
    host.warm()
    serve(sys.stdin, replies, host)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
