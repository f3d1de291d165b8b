# SPDX-License-Identifier: Apache-2.0
"""optimize/pace.py and what the loop does with it: time is kept for the proof, and an overrun says what for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_doubles import SIZES, go, structure

from kernelwright.candidate import Candidate
from kernelwright.optimize import Options, Services, judging, loop, pace, resume_run, run
from kernelwright.optimize.pace import Pace
from kernelwright.testing import FakeHost, FakeWorker, timed


class Clock:
    """A clock that only the test moves; it stands in place of the module ``time``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a run."""
    made = Clock()
    for module in (pace, judging, run):
        monkeypatch.setattr(module, "time", made)
    return made


class Slow(FakeWorker):
    """Judgements that take what the test says, by level, on the test's clock."""

    def __init__(self, clock: Clock, seconds: dict[str, float], verdict: Callable[[Candidate], float]) -> None:
        super().__init__(verdict)
        self.clock, self.seconds = clock, seconds

    def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        if job["job"] == "judge":
            self.clock.now += self.seconds[job["level"]]
        return super().run(job, on_event)

    def levels(self) -> list[str]:
        """Of each judgement, in order."""
        return [level for _, level in self.judged]


HOST = {"templates": [structure("tiles", SIZES, order=0.5), structure("other", SIZES, order=0.6)]}


def faster(candidate: Candidate) -> float:
    """Every candidate is another text and better than both baselines."""
    return 50.0 + int(dict(candidate.tunables)["size"])


def test_steps_within_steps_count_once_and_the_start_from_the_beginning(clock: Clock) -> None:
    """A proof within the search is the proof's time."""
    made = Pace(10.0, began=clock.now - 3.0)
    with made.step("search"):
        clock.now += 2.0
        with made.step("proof"):
            clock.now += 5.0
        clock.now += 1.0
    assert {"start": 3.0, "search": 3.0, "proof": 5.0} == made.spent()
    assert -1.0 == made.left()


@pytest.mark.parametrize("late, said", [(0.9, False), (1.1, True)])
def test_an_overrun_is_said_with_what_it_was_for(clock: Clock, late: float, said: bool) -> None:
    """A second, or a tenth of the budget, is not worth a sentence."""
    made = Pace(5.0, began=clock.now)
    with made.step("proof"):
        clock.now += 5.0 + late
    assert ("budget of 5 s was overrun, 6 s in all: 6 s for the proof" in made.words()) == said
    assert bool(made.words()) == said


def test_time_that_was_granted_is_no_overrun(clock: Clock) -> None:
    """Models are given their minutes on top of the budget."""
    made = Pace(5.0, began=clock.now)
    made.grant(60.0)
    clock.now += 50.0
    assert (10.0, "") == (made.left(), made.words())


def test_one_slow_judgement_does_not_keep_the_budget_from_the_search(clock: Clock) -> None:
    """What made it slow was done once."""
    made = judging.Judging(*[None] * 6)  # type: ignore[arg-type]  # nothing is judged here
    made._learn("coarse", timed(50.0), 100.0)
    assert 100.0 + judging.PROOF_LONGER == made.expected_seconds("precise")


def test_a_first_proof_is_expected_to_take_what_coarse_judgements_say(clock: Clock) -> None:
    """By the shortest of them; once a proof was seen, by that."""
    made = judging.Judging(*[None] * 6)  # type: ignore[arg-type]  # nothing is judged here
    assert judging.EXPECTED_SECONDS["precise"] == made.expected_seconds("precise")
    made._learn("coarse", timed(50.0), 4.0)
    made._learn("coarse", timed(50.0), 2.0)
    assert (3.0, 2.0 * judging.PROOF_IN_COARSE) == (made.expected_seconds("coarse"), made.expected_seconds("precise"))
    made._learn("precise", timed(50.0), 7.0)
    assert 7.0 == made.expected_seconds("precise")


@pytest.mark.parametrize("coarse, budget", [(1.0, 30.0), (2.0, 30.0), (2.0, 120.0)])
def test_a_run_ends_within_its_budget_where_proofs_take_what_coarse_judgements_say(
    tmp_path: Path, clock: Clock, coarse: float, budget: float
) -> None:
    """The search stops in time for the proof and not long before; nothing is said of an overrun."""
    judge = Slow(clock, {"coarse": coarse, "precise": judging.PROOF_IN_COARSE * coarse}, faster)
    endless = FakeHost({"templates": [structure(f"s{n}", SIZES) for n in range(40)]})
    began = clock.now
    result, _ = go(tmp_path / "run", worker=judge, host=endless, options=Options(budget_seconds=budget))
    assert budget - 3 * coarse - judging.PROOF_IN_COARSE * coarse < clock.now - began <= budget
    assert ("faster", "") == (result.status, result.overrun)
    assert {"search", "proof"} <= set(result.spent)


def test_a_budget_too_small_for_the_proof_is_overrun_for_it_and_says_so(tmp_path: Path, clock: Clock) -> None:
    """One promising candidate is judged, then proved: no other trial delays the proof, and it is never skipped."""
    judge = Slow(clock, {"coarse": 6.0, "precise": 20.0}, faster)
    result, _ = go(tmp_path / "run", worker=judge, host=FakeHost(HOST), options=Options(budget_seconds=5.0))
    assert ["coarse", "precise"] == judge.levels()
    assert "faster" == result.status
    assert "The budget of 5 s was overrun, 26 s in all" in result.overrun and "20 s for the proof" in result.overrun
    assert result.overrun in (tmp_path / "run" / "report.html").read_text()
    assert result.overrun == result.to_json()["overrun"]


def test_where_the_first_promises_nothing_others_are_tried_beyond_the_budget(tmp_path: Path, clock: Clock) -> None:
    """As slow as eager: the next structure may still be the one."""
    judge = Slow(clock, {"coarse": 2.0, "precise": 5.0}, lambda c: 100.0 if "# tiles" in c.sources[0][1] else 50.0)
    result, _ = go(tmp_path / "run", worker=judge, host=FakeHost(HOST), options=Options(budget_seconds=3.0))
    assert ["coarse", "coarse", "precise"] == judge.levels()
    assert "faster" == result.status


def test_a_resumed_run_tries_more_where_what_promised_is_proved_already(tmp_path: Path, clock: Clock) -> None:
    """However small its budget: else it would only repeat what it knows."""
    options = Options(budget_seconds=5.0)
    judge = Slow(clock, {"coarse": 4.0, "precise": 20.0}, faster)
    go(tmp_path / "run", worker=judge, host=FakeHost(HOST), options=options)
    again = Slow(clock, {"coarse": 4.0, "precise": 20.0}, faster)
    resume_run(tmp_path / "run", services=Services("cpu", worker=again, host=FakeHost(HOST)))
    assert again.judged and not set(again.judged) & set(judge.judged)


def test_measuring_a_device_is_not_on_the_budget(tmp_path: Path, clock: Clock) -> None:
    """It is done once, and takes longer than many a budget."""

    class Measured(Slow):
        def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
            found = super().run(job, on_event)
            if job["job"] == "machine":
                self.clock.now += 50.0
            return found

    judge = Measured(clock, {"coarse": 1.0, "precise": 5.0}, faster)
    result, _ = go(tmp_path / "run", worker=judge, host=FakeHost(HOST), options=Options(budget_seconds=20.0))
    assert judge.levels().count("coarse") > 3
    assert "" == result.overrun


def test_the_search_is_over_at_the_bound(tmp_path: Path, clock: Clock) -> None:
    """What runs at the unavoidable time cannot be tuned further; the double's bound is 1 us."""
    judge = Slow(clock, {"coarse": 1.0, "precise": 5.0}, lambda candidate: 1.0)
    result, _ = go(tmp_path / "run", worker=judge, host=FakeHost(HOST), options=Options(budget_seconds=90.0))
    assert ["coarse", "precise"] == judge.levels()
    assert "faster" == result.status


def test_the_reserve_never_takes_the_search_its_share() -> None:
    """A proof that is expected to take longer than the budget overruns it."""
    made: Any = loop.Loop.__new__(loop.Loop)
    made._judging = SimpleNamespace(expected_seconds=lambda level: 300.0)
    made._options = Options(budget_seconds=100.0)
    assert loop.MOST_RESERVED * 100.0 == made._reserve() < 100.0
