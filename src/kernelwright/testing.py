# SPDX-License-Identifier: Apache-2.0
"""Doubles that ship with the package: a judge and a proposer host that say what they are told.

Neither starts a process or needs torch; the outcomes they make are marked as such (``sandbox`` is "none:
a double"), so that a made-up number cannot pass for a measured one.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import KernelwrightError
from kernelwright.machine import Machine
from kernelwright.proposers import Structure
from kernelwright.task import Task
from kernelwright.trial import Baseline, Outcome, Rejected, Timed, Timing, Verified

EAGER_US = 100.0
MACHINE = Machine(
    device="cpu", name="double", fingerprint="feedfacefeedface", versions=(("double", "1"),), facts=(), measured_at=0.0
)
Verdict = float | Rejected | KernelwrightError


def timing(median_us: float) -> Timing:
    """Three samples around a median, 1 % apart."""
    samples = (median_us * 0.99, median_us, median_us * 1.01)
    return Timing(samples_us=samples, low_us=samples[0], high_us=samples[2])


def timed(median_us: float, *, level: str = "coarse", compile_us: float = 80.0) -> Timed:
    """A made-up Timed: eager takes 100 us, torch.compile ``compile_us`` (only at level precise)."""
    others = [("eager", EAGER_US)] + ([("compile", compile_us)] if level == "precise" else [])
    baselines = tuple(
        Baseline(
            name=name,
            timing=timing(us),
            speedup=us / median_us,
            speedup_low=us / median_us * 0.98,
            speedup_high=us / median_us * 1.02,
        )
        for name, us in others
    )
    best = min(baselines, key=lambda baseline: baseline.timing.median_us)
    return Timed(
        proof=proof(),
        timing=timing(median_us),
        baselines=baselines,
        best_baseline=best.name,
        speedup=best.speedup,
        speedup_low=best.speedup_low,
        speedup_high=best.speedup_high,
        bound_us=1.0,
        bound_fraction=1.0 / median_us,
        limiter="memory",
        conditions=(f"level {level}", "a double"),
        repeats=2 if level == "precise" else 1,
        profile=(),
    )


def proof() -> Verified:
    """A proof-shaped value, built from data: the judge alone constructs real ones."""
    case = {"name": "main", "required": True, "passed": True, "detail": "", "error_ratio": 1.0, "calls": 1}
    return wire.from_data(
        Verified,
        {
            "cases": [case],
            "outputs": 1,
            "checked_calls": 1,
            "error_ratio": 1.0,
            "bits_lost": 0.0,
            "oracle": "float64",
            "deterministic": True,
            "seed": 0,
            "sandbox": "none: a double",
            "notes": ["not a judgement"],
        },
    )


class FakeWorker:
    """A judge that answers from a function: candidate to microseconds, to a Rejected, or to an error it raises.

    ``jobs`` records every job's name; ``judged`` the digest and level of every judgement.
    """

    def __init__(
        self,
        verdict: Callable[[Candidate], Verdict],
        *,
        admit: KernelwrightError | None = None,
        compile_us: float = 80.0,
        after: Callable[[int], None] | None = None,
    ) -> None:
        self._verdict, self._admit, self._compile_us, self._after = verdict, admit, compile_us, after
        self.hears: Callable[[str], None] | None = None
        self.jobs: list[str] = []
        self.judged: list[tuple[str, str]] = []

    def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """Answer one job as the judge server would."""
        name = str(job["job"])
        self.jobs.append(name)
        if name == "judge":
            return self._judge(job)
        if name == "admit":
            if self._admit is not None:
                raise self._admit
            return {"admitted": True, "reasons": [], "decoys": [["zeros", "verify"]]}
        if name == "build":
            return {"outcome": None, "folder": None, "commands": {}}
        if name == "machine":
            if on_event is not None:
                on_event({"measuring": "memory bandwidth", "share": 0.25})
            return {"machine": wire.to_data(MACHINE)}
        if name == "describe":
            leaf = {"shape": [4], "dtype": "float32"}
            points = [{"name": "main", "inputs": [leaf], "state": []}]
            return {"points": points, "eager_us": EAGER_US, "bound_us": 1.0, "limiter": "memory"}
        return {}

    def submit(
        self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None
    ) -> concurrent.futures.Future[dict[str, Any]]:
        """The same, already done."""
        future: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()
        try:
            future.set_result(self.run(job, on_event))
        except KernelwrightError as error:
            future.set_exception(error)
        return future

    def interrupt(self) -> None:
        """See Worker."""

    def abandon(self) -> None:
        """Nothing is in progress; that it was asked for is recorded among the jobs."""
        self.jobs.append("abandon")

    def close(self) -> None:
        """Nothing was started."""

    def _judge(self, job: Mapping[str, Any]) -> dict[str, Any]:
        candidate = wire.from_data(Candidate, job["candidate"])
        level = str(job["level"])
        self.judged.append((candidate.digest(), level))
        if self._after is not None:
            self._after(len(self.judged))
        verdict = self._verdict(candidate)
        if isinstance(verdict, KernelwrightError):
            raise verdict
        outcome: Outcome = (
            verdict if isinstance(verdict, Rejected) else timed(verdict, level=level, compile_us=self._compile_us)
        )
        return {"outcome": wire.to_data(outcome), "seconds": 0.01}


class FakeHost:
    """A proposer host with fixed structures; ``render`` writes the values into the source text."""

    def __init__(self, structures: Mapping[str, Sequence[Structure]]) -> None:
        self._structures = dict(structures)
        self.dead: set[str] = set()
        """Proposers that raise when asked."""
        self.notes: list[str] = []
        """What ``heard`` says next."""

    def structures(self, proposer: str, task: Task, device: str, machine: object) -> list[Structure]:
        """The structures given for this proposer."""
        if proposer in self.dead:
            raise KernelwrightError(f"The proposer {proposer} died.")
        return list(self._structures.get(proposer, ()))

    def heard(self) -> list[str]:
        """The notes, once."""
        told, self.notes = self.notes, []
        return told

    def render(
        self, proposer: str, task: Task, device: str, machine: object, structure: str, values: Mapping[str, object]
    ) -> Candidate:
        """A candidate whose source names its structure and values."""
        found = next(item for item in self._structures[proposer] if item.name == structure)
        text = f"class ModelNew: pass  # {structure} {sorted(values.items())}\n"
        return Candidate(
            task=task.digest(),
            language=found.language,
            entry="optimized.py::ModelNew",
            sources=(("optimized.py", text),),
            tunables=tuple(sorted(values.items())),  # type: ignore[arg-type]  # values of a Space by construction
            proposer=proposer,
            note=found.note,
        )

    def close(self) -> None:
        """Nothing was started."""
