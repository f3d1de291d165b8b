# SPDX-License-Identifier: Apache-2.0
"""Candidates to recorded outcomes: each is judged once per level and machine, and every verdict is a Trial."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.ledger import Ledger
from kernelwright.task import Task
from kernelwright.trial import Outcome, Rejected, Trial
from kernelwright.workers import Worker

EXPECTED_SECONDS = {"coarse": 2.0, "precise": 15.0}
"""How long one judgement of a small task takes, until one was seen; precise includes compiling baselines."""
CALLS = {"coarse": 14.0, "precise": 20.0}
"""On top of that, so many calls of the reference. With ELEMENT_NS, by 258 runs on 2 cores, half of them beside other
work: a first coarse judgement took 0.9 to 2.7 times as long (quartiles), a first proof 0.8 to 1.4 times."""
ELEMENT_NS = {"cpu": {"coarse": 80.0, "precise": 150.0}, "cuda": {"coarse": 5.0, "precise": 25.0}}
"""And so many nanoseconds for each element that goes in or out: draws, oracles and comparisons."""
ONCE = 2.5
"""The first coarse judgement of a session takes up to so many times as long for what is done once; where even the
shortest took longer, the machine has other work, and everything takes so much longer. First proofs of 258 runs took 0.7
to 1.2 times what is expected then (quartiles)."""
PROOF_LONGER = 40.0
"""At most so many seconds longer than a coarse judgement, or than was foreseen: a coarse judgement of 140 s on a loaded
machine was followed by a proof of 20 s, and such an expectation would keep most of a budget from the search."""
GIVEN_UP, LONGER = "no answer within", 1.5
"""How the judge's reason begins where a program was waited for in vain; with so many times the time of that judgement
it is tried again in a resumed run."""


def foreseen(facts: Mapping[str, Any], device: str) -> dict[str, float]:
    """Seconds that a judgement of each level will take, by the judge's own description of the task."""
    call_s = 1e-6 * float(facts.get("eager_us") or 0.0)
    leaves = [*facts.get("inputs", ()), *facts.get("outputs", ())]
    elements = sum(math.prod(leaf.get("shape", ())) for leaf in leaves)
    share = ELEMENT_NS["cpu" if device == "cpu" else "cuda"]
    return {
        level: seconds + CALLS[level] * call_s + 1e-9 * share[level] * elements
        for level, seconds in EXPECTED_SECONDS.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Where a run's times are valid."""

    machine: str
    """Fingerprint."""
    versions: tuple[tuple[str, str], ...]


class Judging:
    """Judges through a worker and remembers in a ledger. A candidate seen before costs nothing."""

    def __init__(self, task: Task, device: str, worker: Worker, ledger: Ledger, seed: int, identity: Identity) -> None:
        self._task, self._device, self._worker, self._ledger = task, device, worker, ledger
        self._seed, self._identity = seed, identity
        self._seconds: dict[str, float] = {}
        self._foreseen = dict(EXPECTED_SECONDS)
        self._shortest = float("inf")
        self._building: set[str] = set()
        self.bound: dict[str, Any] = {}
        """``bound_us`` and ``limiter`` of the task, once they are known."""
        self.extra: dict[str, Any] = {}
        """Further fields of every judge job: ``facts``, ``extra_cases``."""
        self.waited: Callable[[float], None] = lambda seconds: None
        """Hears for how long a judgement waited for another judge of the device."""
        self.spare_seconds = 0.0
        """What may be spent on sanitizers once a proof has found a winner."""

    def foresee(self, facts: Mapping[str, Any]) -> None:
        """What judgements will take, by the judge's own description of the task."""
        self._foreseen = foreseen(facts, self._device)

    def known(self, candidate: Candidate, level: str) -> bool:
        """Whether it was judged at this level before."""
        return self._remembered(candidate, level) is not None

    def _remembered(self, candidate: Candidate, level: str) -> Outcome | None:
        """The recorded outcome; not that of one which was given up after less time than there is now."""
        number = self._ledger.known(candidate.digest(), level, self._identity.machine)
        if number is None:
            return None
        trial = self._ledger.trial(number)
        outcome = trial.outcome
        given_up = isinstance(outcome, Rejected) and outcome.reason.startswith(GIVEN_UP)
        return None if given_up and self.extra.get("hanging", 0.0) > LONGER * trial.seconds else outcome

    def outcome(self, candidate: Candidate, level: str, structure: str) -> tuple[Outcome, bool]:
        """(outcome, was it remembered). Raises what the worker raises: the judge's own failures, never a verdict."""
        remembered = self._remembered(candidate, level)
        if remembered is not None:
            return remembered, True
        started_at, began = time.time(), time.monotonic()
        result = self._worker.run(self._job("judge", candidate, level))
        seconds = time.monotonic() - began
        self.waited(min(float(result.get("waited", 0.0)), seconds))
        outcome: Outcome = wire.from_data(Outcome, result["outcome"])  # type: ignore[arg-type]  # a union is no class
        trial = Trial(
            candidate=candidate,
            outcome=outcome,
            level=level,
            machine=self._identity.machine,
            versions=self._identity.versions,
            seconds=seconds,
            started_at=started_at,
        )
        self._ledger.record(trial, structure)
        self._learn(level, outcome, seconds)
        return outcome, False

    def counts(self) -> tuple[int, int]:
        """How many judgements the run has made so far, earlier parts included, and how many were rejections."""
        count = self._ledger.count()
        return count, count - self._ledger.stages().get("", (0, 0.0))[0]

    def trial(self, candidate: Candidate, level: str) -> Trial:
        """The recorded trial of a candidate. Raises KeyError when it was not judged at this level."""
        number = self._ledger.known(candidate.digest(), level, self._identity.machine)
        if number is None:
            raise KeyError(candidate.digest())
        return self._ledger.trial(number)

    def recorded(self, level: str, most: int) -> list[tuple[Trial, str]]:
        """The fastest accepted trials of a level on this machine, best first, with the structure of each."""
        rows = [row for row in self._ledger.top(most, level) if row.machine == self._identity.machine]
        return [(self._ledger.trial(row.id), row.structure) for row in rows]

    def build_ahead(self, candidate: Candidate) -> None:
        """Start compiling a candidate beside other work; its judgement then finds it built."""
        if candidate.language in ("cpp", "cuda") and candidate.digest() not in self._building:
            self._building.add(candidate.digest())
            self._worker.submit(self._job("build", candidate, ""))

    def expected_seconds(self, level: str) -> float:
        """How long the next judgement of a level will take: as those seen did; until then as foreseen, and by how much
        longer than foreseen the shortest coarse one took."""
        if level in self._seconds:
            return self._seconds[level]
        foreseen = self._foreseen[level]
        if level != "precise" or "coarse" not in self._seconds:
            return foreseen
        return min(foreseen * self._load(), max(foreseen, self._shortest + PROOF_LONGER))

    def _load(self) -> float:
        """How many times longer than foreseen everything takes, by the shortest coarse judgement."""
        return max(1.0, self._shortest / (ONCE * self._foreseen["coarse"]))

    def _job(self, job: str, candidate: Candidate, level: str) -> dict[str, Any]:
        data: dict[str, Any] = {"job": job, "candidate": wire.to_data(candidate), "device": self._device}
        if job == "judge":
            data |= {"task": wire.to_data(self._task), "level": level, **self.bound, **self.extra}
        if level == "precise":
            data |= {"sanitize": "winner", "sanitize_seconds": self.spare_seconds, "also": ["warm"]}
        return data

    def _learn(self, level: str, outcome: Outcome, seconds: float) -> None:
        # Rejections end early and say nothing about what a full judgement costs.
        if isinstance(outcome, Rejected):
            return
        before = self._seconds.get(level)
        self._shortest = min(self._shortest, seconds) if level == "coarse" else self._shortest
        if before is None and level == "coarse":
            seconds = min(seconds, self._foreseen[level] * self._load())  # the rest was done once
        self._seconds[level] = seconds if before is None else 0.5 * (before + seconds)
