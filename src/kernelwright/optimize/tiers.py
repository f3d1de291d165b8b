# SPDX-License-Identifier: Apache-2.0
"""The cheap tiers beside a run's loop: objects read before anything runs, profiles of survivors, a tester's cases.

Builds and their facts run beside whatever is being judged. What they found is in facts.jsonl, so that a resumed run
and a replay decide alike.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from typing import Any

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import KernelwrightError
from kernelwright.machine import Machine
from kernelwright.optimize.bare import is_bare
from kernelwright.optimize.facts import FactBook, Found
from kernelwright.optimize.fitting import TUNED
from kernelwright.optimize.loop import Loop
from kernelwright.task import Task
from kernelwright.trial import Outcome, Rejected
from kernelwright.workers import Worker

COMPILED = ("cpp", "cuda")
EXPECTED_S = 8.0
"""What a profile takes (3 to 10 s on a CPU), until one was made."""
SHARE = 4.0
"""A profile is made where there is time for so many of them."""
COUNTING_LEFT_S = 120.0
"""Hardware counters replay every kernel; they are read only when there is this much time."""
NOT_BUILT: Found = {"built": 0.0}


def fault_of(found: Found) -> Rejected | None:
    """The rejection that was written down, or None."""
    if not found.get("stage"):
        return None
    return Rejected(stage=str(found["stage"]), reason=str(found["reason"]), detail=str(found["detail"]))


def said_of(found: Found) -> tuple[str, ...]:
    """What was written down of a tester's cases, a line each."""
    return tuple(str(found.get("said", "")).splitlines())


class Tiers:
    """``Trier`` of a live run."""

    def __init__(
        self, loop: Loop, worker: Worker, task: Task, device: str, machine: Machine | None, book: FactBook,
        say: Callable[..., None],
    ) -> None:  # fmt: skip
        self._loop, self._worker, self._device, self._book, self._say = loop, worker, device, book, say
        self._task, self._machine = wire.to_data(task), None if machine is None else wire.to_data(machine)
        self._builds: dict[str, concurrent.futures.Future[dict[str, Any]]] = {}
        self._profile_s = EXPECTED_S
        loop.judge_with(facts=True)

    def consider(self, candidate: Candidate, structure: str) -> Outcome | None:
        """Judge coarsely and remember, hidden cases before any time; None for a source without an entry.

        A point of a structure's tunables is checked in full when it is proved: its structure was checked here."""
        if is_bare(candidate):
            return None
        self._loop.judge_with(verify=structure != TUNED)
        return self._loop.consider(candidate, structure)

    def build_ahead(self, candidate: Candidate) -> None:
        """Start compiling and reading what was compiled."""
        digest = candidate.digest()
        if candidate.language in COMPILED and digest not in self._builds and self._book.get("static", digest) is None:
            self._builds[digest] = self._worker.submit(self._job("build", candidate) | {"facts": True})

    def static(self, candidate: Candidate) -> Found | None:
        """Facts of the compiled object; None where it does not compile, empty where nothing is compiled ahead."""
        if candidate.language not in COMPILED or is_bare(candidate):
            return {}
        digest = candidate.digest()
        found = self._book.get("static", digest)
        if found is None:
            self.build_ahead(candidate)
            try:
                reply = self._builds.pop(digest).result()
            except KernelwrightError as error:
                self._say("note", f"no facts of a compiled object: {error.what}", detail=str(error))
                return {}  # the judge finds the same trouble and says so in its own way
            found = self._book.put("static", digest, NOT_BUILT if reply["outcome"] else reply.get("facts", {}))
        return None if found == NOT_BUILT else found

    def profile(self, candidate: Candidate) -> Found:
        """Facts of a few observed calls."""
        found = self._book.get("profile", candidate.digest())
        if found is not None:
            return found
        if self.seconds_left() < SHARE * self._profile_s:
            return self._book.put("profile", candidate.digest(), {})
        job = self._job("profile", candidate) | {"task": self._task, "count": self.seconds_left() > COUNTING_LEFT_S}
        began = time.monotonic()
        try:
            reply = self._worker.run(job | ({} if self._machine is None else {"machine": self._machine}))
        except KernelwrightError as error:
            self._say("note", f"no profile: {error.what}", detail=str(error))
            return self._book.put("profile", candidate.digest(), {})
        self._profile_s = time.monotonic() - began
        return self._book.put("profile", candidate.digest(), reply.get("facts", {}))

    def sanitized(self, candidate: Candidate) -> Rejected | None:
        """The first fault that a sanitizer shows, before the candidate is timed; what did not run is a note."""
        found = self._book.get("sanitized", candidate.digest())
        if found is None:
            try:
                reply = self._worker.run(self._job("sanitize", candidate) | {"task": self._task})
            except KernelwrightError as error:
                self._say("note", f"no sanitizer ran: {error.what}", detail=str(error))
                reply = {"outcome": None, "notes": []}
            for note in reply.get("notes", ()):
                if "not run" in note:
                    self._say("note", str(note), candidate=candidate.digest())
            fault = reply["outcome"] or {}
            kept = {name: str(fault[name]) for name in ("stage", "reason", "detail") if name in fault}
            found = self._book.put("sanitized", candidate.digest(), kept)
        return fault_of(found)

    def test_with(self, source: str) -> tuple[str, ...]:
        """Candidates judged from now on must also pass these cases; what the judge says of each."""
        self._loop.judge_with(extra_cases=source)
        found = self._book.get("cases", wire.digest(source))
        if found is None:
            job = {"job": "cases", "task": self._task, "device": self._device, "extra_cases": source}
            try:
                reply = self._worker.run(job)
            except KernelwrightError as error:
                self._say("note", f"nothing is known of the tester's cases: {error.what}", detail=str(error))
                reply = {"used": [], "notes": []}
            said = [*(f"case {name!r} is in force" for name in reply["used"]), *reply["notes"]]
            self._say("note", f"{len(reply['used'])} cases of the tester are in force", cases=said)
            found = self._book.put("cases", wire.digest(source), {"said": "\n".join(said)})
        return said_of(found)

    def seconds_left(self) -> float:
        """Until the finals must begin."""
        return self._loop.seconds_left()

    def _job(self, job: str, candidate: Candidate) -> dict[str, Any]:
        return {"job": job, "candidate": wire.to_data(candidate), "device": self._device}
