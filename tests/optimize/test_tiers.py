# SPDX-License-Identifier: Apache-2.0
"""The cheap tiers: asked for once, remembered on disk, and never in the way of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelwright.candidate import Candidate
from kernelwright.errors import JudgeFailed
from kernelwright.optimize.bare import bare_source, is_bare
from kernelwright.optimize.facts import FACTS, FactBook
from kernelwright.optimize.tiers import Tiers
from kernelwright.task import Task
from kernelwright.testing import FakeWorker

TASK = Task(name="relu", form="kernelbench", reference="class Model: pass")


def candidate(text: str = "int x;", language: str = "cpp") -> Candidate:
    """A compiled candidate."""
    sources = (("kernel.cpp", text), ("kernel.py", "class ModelNew: pass"))
    return Candidate(task="t", language=language, entry="kernel.py::ModelNew", sources=sources, proposer="p")


class Answers(FakeWorker):
    """A judge with a canned answer for each job; an error is raised."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(lambda _: 1.0)
        self.answers = answers

    def run(self, job: dict[str, Any], on_event: object = None) -> dict[str, Any]:
        """The canned answer."""
        self.jobs.append(str(job["job"]))
        answer = self.answers[str(job["job"])]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Loop:
    """What a tier needs of a run's loop."""

    def __init__(self, left: float = 1000.0) -> None:
        self.fields: dict[str, Any] = {}
        self.left = left

    def judge_with(self, **fields: Any) -> None:
        """Remember."""
        self.fields |= fields

    def seconds_left(self) -> float:
        """As told."""
        return self.left

    def consider(self, one: Candidate, structure: str) -> None:
        """Never called with a source that has no entry."""
        raise AssertionError(one)


def tiers(path: Path, worker: FakeWorker, left: float = 1000.0) -> Tiers:
    """Tiers over doubles."""
    made = Loop(left)
    return Tiers(made, worker, TASK, "cpu", None, FactBook(path / FACTS), lambda *_, **__: None)  # type: ignore[arg-type]


def test_facts_of_an_object_are_asked_for_once_and_survive_a_restart(tmp_path: Path) -> None:
    """Two questions, one build; another process reads the file and asks nobody."""
    worker = Answers(build={"outcome": None, "facts": {"object": "ab", "widest_bits": 512.0}})
    first = tiers(tmp_path, worker)
    first.build_ahead(candidate())
    assert {"object": "ab", "widest_bits": 512.0} == first.static(candidate()) == first.static(candidate())
    assert ["build"] == worker.jobs
    assert {"object": "ab", "widest_bits": 512.0} == tiers(tmp_path, Answers()).static(candidate())


def test_what_does_not_compile_has_no_facts_and_what_is_not_compiled_has_none_yet(tmp_path: Path) -> None:
    """None for the first, so that the judge says why; nothing, without a question, for Triton and torch."""
    worker = Answers(build={"outcome": {"is": "Rejected"}, "facts": {}})
    assert tiers(tmp_path, worker).static(candidate()) is None
    assert tiers(tmp_path, worker).static(candidate()) is None
    assert {} == tiers(tmp_path, Answers()).static(candidate(language="triton"))
    assert ["build"] == worker.jobs


def test_a_judge_that_fails_at_a_tier_costs_that_tier_alone(tmp_path: Path) -> None:
    """No facts, no profile, no sanitizer: the candidate goes on to be judged."""
    lost = JudgeFailed("The judge died", "nothing", "an answer", "see the log")
    made = tiers(tmp_path, Answers(build=lost, profile=lost, sanitize=lost))
    assert ({}, {}, None) == (made.static(candidate()), made.profile(candidate()), made.sanitized(candidate()))


@pytest.mark.parametrize(("left", "jobs"), [(1000.0, ["profile"]), (5.0, [])])
def test_a_profile_needs_time_and_is_made_once(tmp_path: Path, left: float, jobs: list[str]) -> None:
    """With little time left none is begun, and a replay sees that there was none."""
    worker = Answers(profile={"facts": {"busy_us": 3.0}})
    made = tiers(tmp_path, worker, left)
    assert made.profile(candidate()) == made.profile(candidate()) == ({"busy_us": 3.0} if jobs else {})
    assert jobs == worker.jobs
    assert FactBook(tmp_path / FACTS).get("profile", candidate().digest()) is not None


def test_a_fault_that_a_sanitizer_shows_is_a_rejection_with_its_report(tmp_path: Path) -> None:
    """Stage, reason and report as the judge gave them, after a restart too; clean is None."""
    fault = {"is": "Rejected", "stage": "sanitize", "reason": "ThreadSanitizer: data race", "detail": "at k.cpp:3"}
    for worker in (Answers(sanitize={"outcome": fault, "notes": []}), Answers()):
        found = tiers(tmp_path, worker).sanitized(candidate())
        assert found is not None
        assert ("sanitize", "at k.cpp:3") == (found.stage, found.detail)
    clean = Answers(sanitize={"outcome": None, "notes": ["ThreadSanitizer: clean on 1 cases"]})
    assert tiers(tmp_path, clean).sanitized(candidate("int y;")) is None


def test_cases_of_a_tester_go_with_every_further_judgement(tmp_path: Path) -> None:
    """The loop's jobs carry the source, and facts of objects from the start; the judge says once which count."""
    worker = Answers(cases={"used": ["0: ones"], "notes": ["case 'odd' is not used: no"]})
    made = tiers(tmp_path, worker)
    said = ("case '0: ones' is in force", "case 'odd' is not used: no")
    assert said == made.test_with("def cases(): ...") == tiers(tmp_path, worker).test_with("def cases(): ...")
    assert ["cases"] == worker.jobs
    assert {"facts": True, "extra_cases": "def cases(): ..."} == made._loop.fields  # type: ignore[attr-defined]


def test_every_case_is_checked_before_a_structure_is_timed_and_not_for_points_of_its_space(tmp_path: Path) -> None:
    """Models hear of hidden cases while there is time to mend; a tuned point waits for its proof."""
    made = tiers(tmp_path, Answers())
    asked: list[bool] = []
    made._loop.consider = lambda *_: asked.append(made._loop.fields["verify"])  # type: ignore[attr-defined,method-assign,func-returns-value]
    made.consider(candidate(), "agent/fresh")
    made.consider(candidate(), "agent/tune")
    made.consider(candidate(), "agent/repair")
    assert [True, False, True] == asked


def test_a_bare_source_is_shown_and_never_judged(tmp_path: Path) -> None:
    """A CUDA file without an interface has a language and a text; the judge is not asked about it."""
    path = tmp_path / "k.cu"
    path.write_text("__global__ void f();")
    found = bare_source(str(path), TASK)
    assert found is not None and is_bare(found)
    assert ("cuda", None) == (found.language, tiers(tmp_path, Answers()).consider(found, "start"))
    assert bare_source(str(tmp_path / "absent.cu"), TASK) is None


def test_a_half_line_of_facts_does_not_swallow_the_next(tmp_path: Path) -> None:
    """A kill in the middle of a write; what is found out afterwards is known to a replay."""
    (tmp_path / FACTS).write_text('{"kind": "profile", "cand')
    FactBook(tmp_path / FACTS).put("profile", "a", {"kernels": 1.0})
    assert {"kernels": 1.0} == FactBook(tmp_path / FACTS).get("profile", "a")
