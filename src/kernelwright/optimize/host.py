# SPDX-License-Identifier: Apache-2.0
"""The proposer host seen from the parent: one child that traces references, restarted once when it dies."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from kernelwright import sandbox, wire
from kernelwright.candidate import Candidate
from kernelwright.errors import JudgeFailed, KernelwrightError, from_json
from kernelwright.machine import Machine
from kernelwright.proposers import TRACELESS, Structure
from kernelwright.task import Task
from kernelwright.tuning import Value

COMMAND = (sys.executable, "-m", "kernelwright.proposers", "--serve")
PATIENCE_SECONDS = 120.0
"""Equality saturation has a budget of its own far below this; longer means a trace that does not end."""
GRACE_SECONDS = 5.0
"""How long the child may take to stop when its time is over, before it is ended: some of what it calls is deaf."""
START_SECONDS = 120.0
"""And how much longer its first answer may take: it imports torch, and what traces with it, first."""


class Host(Protocol):
    """Lists structures and renders candidates."""

    def structures(self, proposer: str, task: Task, device: str, machine: Machine | None) -> list[Structure]:
        """What the proposer has for the task. Raises KernelwrightError."""
        ...

    def render(
        self,
        proposer: str,
        task: Task,
        device: str,
        machine: Machine | None,
        structure: str,
        values: Mapping[str, Value],
    ) -> Candidate:
        """One structure closed with values. Raises KernelwrightError."""
        ...

    def heard(self) -> list[str]:
        """Why proposers failed or left something out, in their own words, since this was last asked."""
        ...

    def close(self) -> None:
        """End the child."""
        ...


class ProposerHost:
    """``python -m kernelwright.proposers --serve`` as an object; the child starts on first use. Not thread-safe.

    ``share``: around each answer, which then does not run beside what a judge times.
    """

    def __init__(
        self,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        command: tuple[str, ...] = COMMAND,
        share: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._cwd, self._env, self._command, self._share = cwd, env, command, share
        self._child: sandbox.Child | None = None
        self._answered = False
        self._numbers = itertools.count(1)
        self.patience = PATIENCE_SECONDS
        """Seconds that tracing one task may take, all proposers together; and any other answer."""
        self._notes: list[str] = []
        self._spent: dict[str, float] = {}
        """Seconds that tracing took so far, by task."""
        self._slow: dict[str, set[str]] = {}
        """By task, proposers that did not end in time: neither they nor others that trace it are asked again."""

    def structures(self, proposer: str, task: Task, device: str, machine: Machine | None) -> list[Structure]:
        """See Host."""
        key = task.digest()
        slow = self._slow.setdefault(key, set())
        traces = proposer not in TRACELESS
        if traces and slow:
            raise KernelwrightError(f"{proposer} is not asked: tracing this task takes too long.")
        left = self.patience - self._spent.get(key, 0.0) if traces else self.patience
        try:
            reply = self._ask(self._job("structures", proposer, task, device, machine), left)
        except TimeoutError:
            reply = {"late": True}
        if traces:
            self._spent[key] = self._spent.get(key, 0.0) + reply.get("seconds", 0.0)
        if reply.get("late"):
            slow.add(proposer)
            raise KernelwrightError(
                f"Tracing this task takes longer than {self.patience:.3g} s, its share of the budget.",
                got=f"no answer of {proposer} in the {max(left, 0.0):.3g} s that were left of them",
                expected="a trace in that time",
                what_next="a longer --budget, or fewer steps in the loops of forward",
            )
        return [wire.from_data(Structure, item) for item in reply["structures"]]

    def render(
        self,
        proposer: str,
        task: Task,
        device: str,
        machine: Machine | None,
        structure: str,
        values: Mapping[str, Value],
    ) -> Candidate:
        """See Host."""
        if proposer in self._slow.get(task.digest(), ()):
            raise KernelwrightError(f"{proposer} is not asked: it takes too long.")
        job = self._job("render", proposer, task, device, machine)
        try:
            reply = self._ask({**job, "structure": structure, "values": dict(values)}, self.patience)
        except TimeoutError as error:
            self._slow.setdefault(task.digest(), set()).add(proposer)
            raise KernelwrightError(f"The proposer {proposer} hangs on this task.", str(error), "an answer") from error
        return wire.from_data(Candidate, reply["candidate"])

    def heard(self) -> list[str]:
        """See Host."""
        told, self._notes = self._notes, []
        return told

    def start(self) -> None:
        """Start the child now, so that its imports overlap with other work."""
        if self._child is None:
            self._child = sandbox.start(list(self._command), env=self._env, cwd=self._cwd)
            self._answered = False

    def stand_still(self) -> None:
        """Stop the child until ``go_on``: it imports for seconds after its start, which is seen in what is measured."""
        if self._child is not None:
            self._child.stand_still()

    def go_on(self) -> None:
        """Let the child go on after ``stand_still``."""
        if self._child is not None:
            self._child.go_on()

    def close(self) -> None:
        """End the child; calling it twice is harmless."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    @staticmethod
    def _job(job: str, proposer: str, task: Task, device: str, machine: Machine | None) -> dict[str, Any]:
        described = None if machine is None else wire.to_data(machine)
        return {"job": job, "proposer": proposer, "task": wire.to_data(task), "device": device, "machine": described}

    def _ask(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The result of a job that may take so long. Raises TimeoutError, and ends the child, where it hangs."""
        tail = ""
        for _attempt in range(2):
            self.start()
            try:
                with self._share():
                    reply = self._reply({**job, "seconds": seconds, "id": next(self._numbers)})
            except TimeoutError:
                self.close()
                raise
            if reply is not None:
                if "error" in reply:
                    raise from_json(reply["error"])
                result: dict[str, Any] = reply["result"]
                return result
            tail = self._child.error_tail()[-500:] if self._child is not None else ""
            self.close()
        raise KernelwrightError(
            f"The proposer {job['proposer']} died on this task, twice.", got=tail, expected="an answer"
        )

    def _reply(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The reply to one request, or None when the child is lost. Raises TimeoutError for a child that hangs."""
        assert self._child is not None
        patience = max(request["seconds"], 0.0) + (GRACE_SECONDS if self._answered else START_SECONDS)
        until = time.monotonic() + patience
        try:
            self._child.send(request)
            while time.monotonic() < until:
                reply = self._child.receive(timeout=0.5)
                if reply is None:
                    if not self._child.alive:
                        return None
                    continue
                if reply.get("id") != request["id"]:
                    continue
                if "event" in reply:
                    event = reply["event"]
                    self._notes.append(f"{event.get('proposer', '?')}: {event.get('reason', event)}")
                elif "result" in reply or "error" in reply:
                    self._answered = True
                    return dict(reply)
        except (OSError, JudgeFailed):
            return None  # a broken pipe or a line that is not JSON: the child is lost either way
        raise TimeoutError(f"no answer after {patience:.3g} s")
