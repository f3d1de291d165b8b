# SPDX-License-Identifier: Apache-2.0
"""optimize/pace.py and what the loop does with it: time is kept for the proof, and an overrun says what for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_doubles import SIZES, go, structure

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.optimize import Event, Options, Services, judging, pace, resume_run, run
from kernelwright.optimize.pace import Pace
from kernelwright.optimize.schedule import Schedule, Tries
from kernelwright.testing import FakeHost, FakeWorker, Verdict, timed
from kernelwright.trial import Rejected


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
    """Judgements that take what the test says, by level, and other jobs, by name, on the test's clock."""

    def __init__(self, clock: Clock, seconds: dict[str, float], verdict: Callable[[Candidate], Verdict]) -> None:
        super().__init__(verdict)
        self.clock, self.seconds = clock, seconds

    def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        if job["job"] == "judge":
            self.clock.now += self.seconds[job["level"]]
        self.clock.now += self.seconds.get(job["job"], 0.0)
        return super().run(job, on_event)

    def levels(self) -> list[str]:
        """Of each judgement, in order."""
        return [level for _, level in self.judged]


HOST = {"templates": [structure("tiles", SIZES, order=0.5), structure("other", SIZES, order=0.6)]}


def faster(candidate: Candidate) -> float:
    """Every candidate is another text and better than both baselines."""
    return 50.0 + int(dict(candidate.tunables)["size"])


UNSURE = {"templates": [structure("tiles", SIZES, order=0.6), structure("other", SIZES, order=0.7)]}
"""None of which is expected to take half of eager's time."""
SECONDS = {"coarse": 2.0, "precise": 5.0}


def second_best(candidate: Candidate) -> float:
    """The first structure is as slow as eager."""
    return 100.0 if "# tiles" in candidate.sources[0][1] else 50.0


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


def test_waiting_for_another_judge_is_not_the_proofs_time(clock: Clock) -> None:
    """Nor that of the search around it; the sentence on an overrun names it."""
    made = Pace(10.0, began=clock.now)
    with made.step("search"):
        clock.now += 2.0
        with made.step("proof"):
            clock.now += 12.0
            made.waited(5.0)
    assert {"search": 2.0, "proof": 7.0, "waiting": 5.0} == made.spent()
    assert "7 s for the proof, which is never skipped, 5 s for waiting for another judge of the device." in made.words()


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


def test_what_judgements_take_is_expected_by_those_seen(clock: Clock) -> None:
    """A first coarse one may have taken longer for what is done once; all take longer where even the shortest did."""
    made = judging.Judging(*[None] * 6)  # type: ignore[arg-type]  # nothing is judged here
    small, proof = (judging.EXPECTED_SECONDS[level] for level in ("coarse", "precise"))
    assert (small, proof) == (made.expected_seconds("coarse"), made.expected_seconds("precise"))
    made._learn("coarse", timed(50.0), 2 * judging.ONCE * small)
    assert (2 * small, 2 * proof) == (made.expected_seconds("coarse"), made.expected_seconds("precise"))
    made._learn("coarse", timed(50.0), small)
    assert (1.5 * small, proof) == (made.expected_seconds("coarse"), made.expected_seconds("precise"))
    made._learn("precise", timed(50.0), 7.0)
    assert 7.0 == made.expected_seconds("precise")


@pytest.mark.parametrize("coarse, budget", [(1.0, 30.0), (2.0, 30.0), (2.0, 120.0)])
def test_a_run_ends_within_its_budget_where_proofs_take_what_coarse_judgements_say(
    tmp_path: Path, clock: Clock, coarse: float, budget: float
) -> None:
    """The search stops in time for the proof and not long before; nothing is said of an overrun."""
    proof = judging.EXPECTED_SECONDS["precise"]
    judge = Slow(clock, {"coarse": coarse, "precise": proof}, faster)
    endless = FakeHost({"templates": [structure(f"s{n}", SIZES) for n in range(40)]})
    began = clock.now
    result, _ = go(tmp_path / "run", worker=judge, host=endless, options=Options(budget_seconds=budget))
    assert budget - 3 * coarse - proof < clock.now - began <= budget
    assert ("faster", "") == (result.status, result.overrun)
    assert {"search", "proof"} <= set(result.spent)


def test_a_budget_too_small_for_the_proof_is_overrun_for_it_and_says_so(tmp_path: Path, clock: Clock) -> None:
    """One promising candidate is judged, then proved: no other trial delays the proof, and it is never skipped."""
    judge = Slow(clock, {"coarse": 6.0, "precise": 20.0}, faster)
    result, _ = go(tmp_path / "run", worker=judge, host=FakeHost(UNSURE), options=Options(budget_seconds=5.0))
    assert ["coarse", "precise"] == judge.levels()
    assert "faster" == result.status
    assert "The budget of 5 s was overrun, 26 s in all" in result.overrun and "20 s for the proof" in result.overrun
    assert result.overrun in (tmp_path / "run" / "report.html").read_text()
    assert result.overrun == result.to_json()["overrun"]


def test_where_the_first_promises_nothing_others_are_tried_while_little_is_overrun_for_them(
    tmp_path: Path, clock: Clock
) -> None:
    """As slow as eager: the next structure may still be the one, where admission took longer than a candidate does."""
    judge = Slow(clock, SECONDS | {"admit": 20.0}, second_best)
    result, _ = go(tmp_path / "run", worker=judge, host=FakeHost(UNSURE), options=Options(budget_seconds=3.0))
    assert ["coarse", "coarse", "precise"] == judge.levels()
    assert "faster" == result.status


def test_where_another_candidate_takes_long_none_is_begun_beyond_the_budget(tmp_path: Path, clock: Clock) -> None:
    """The same candidates: the run ends with the first, and says that it was not over."""
    judge = Slow(clock, SECONDS | {"coarse": 6.0}, second_best)
    result, _ = go(tmp_path / "run", worker=judge, host=FakeHost(UNSURE), options=Options(budget_seconds=3.0))
    assert ["coarse"] == judge.levels()
    assert "The search was not over" in result.message


@pytest.mark.parametrize(
    "order, budget, levels",
    [
        (0.5, 5.0, ["precise"]),
        (0.6, 5.0, ["coarse", "precise"]),
        (0.5, 19.0, ["coarse", "precise"]),
    ],
)
def test_what_is_expected_to_win_is_proved_straight_away_where_nobody_else_would_be_tried(
    tmp_path: Path, clock: Clock, order: float, budget: float, levels: list[str]
) -> None:
    """A coarse judgement before would only put off the same verdict; where there is time to choose it is made."""
    judge = Slow(clock, {"coarse": 2.0, "precise": 15.0}, faster)
    host = FakeHost({"templates": [structure("tiles", SIZES, order=order), structure("other", order=0.7)]})
    result, _ = go(tmp_path / "run", worker=judge, host=host, options=Options(budget_seconds=budget))
    assert (levels, "faster") == (judge.levels(), result.status)
    assert "proof" in result.spent and (tmp_path / "run" / "report.html").exists()


def test_a_wrong_candidate_that_was_to_be_proved_straight_away_leaves_its_time_to_others(
    tmp_path: Path, clock: Clock
) -> None:
    """It is rejected as soon as a coarse judgement would have, and is known when the run goes on."""

    def verdict(candidate: Candidate) -> Verdict:
        first = "# tiles" in candidate.sources[0][1]
        return Rejected(stage="smoke", reason="wrong", detail="") if first else 50.0

    host = FakeHost({"templates": [structure("tiles", order=0.3), structure("other", order=0.4)]})
    judge = Slow(clock, {"precise": 1.0}, verdict)
    result, _ = go(tmp_path / "run", worker=judge, host=host, options=Options(budget_seconds=0.5))
    assert (["precise", "precise"], "faster", 1) == (judge.levels(), result.status, result.rejected)
    again = Slow(clock, {"precise": 1.0}, verdict)
    more = resume_run(tmp_path / "run", budget_seconds=60.0, services=Services("cpu", worker=again, host=host))
    assert ([], "faster", 2) == (again.levels(), more.status, more.tried)


def test_what_was_proved_straight_away_and_is_no_faster_ends_the_run(tmp_path: Path, clock: Clock) -> None:
    """There is time for one proof, and the run says what it found."""
    judge = Slow(clock, SECONDS, lambda candidate: 100.0)
    result, _ = go(tmp_path / "run", worker=judge, host=FakeHost(HOST), options=Options(budget_seconds=3.0))
    assert (["precise"], "not-faster") == (judge.levels(), result.status)
    assert "Nothing honest beats" in result.message and "The search was not over" in result.message


def test_rejected_candidates_are_followed_by_others_in_the_time_that_a_proof_was_to_take(
    tmp_path: Path, clock: Clock
) -> None:
    """Three are tried, not the fourth; where they take long, fewer."""
    wrong = Rejected(stage="verify", reason="wrong", detail="")
    many = FakeHost({"templates": [structure(f"s{n}") for n in range(9)]})
    for seconds, tried in ((1.0, 3), (9.0, 2)):
        judge = Slow(clock, {"coarse": seconds}, lambda candidate: wrong)
        go(tmp_path / f"{seconds}", worker=judge, host=many, options=Options(budget_seconds=0.5))
        assert tried == len(judge.judged)


def test_a_second_proof_begins_late_only_where_the_first_ended_soon(tmp_path: Path, clock: Clock) -> None:
    """One that failed at once leaves the time for the next; one that failed at the end does not."""

    class Failing(Slow):
        def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
            found = super().run(job, on_event)
            if job["job"] == "judge" and job["level"] == "precise":
                found["outcome"] = wire.to_data(Rejected(stage="verify", reason="wrong", detail=""))
            return found

    for seconds, proofs in ((5.0, 2), (12.0, 1)):
        judge = Failing(clock, {"coarse": 2.0, "precise": seconds}, lambda candidate: 50.0)
        go(tmp_path / f"{seconds}", worker=judge, host=FakeHost(HOST), options=Options(budget_seconds=21.0))
        assert proofs == judge.levels().count("precise")


def test_a_run_that_cannot_keep_its_budget_says_so_once_the_task_is_admitted(tmp_path: Path, clock: Clock) -> None:
    """With what it expects, before the first candidate; a run that can says nothing."""
    for budget, said in ((5.0, True), (60.0, False)):
        heard: list[Event] = []
        judge = Slow(clock, {"coarse": 2.0, "precise": 12.0}, faster)
        options = Options(budget_seconds=budget)
        go(tmp_path / f"{budget}", worker=judge, host=FakeHost(HOST), heard=heard, options=options)
        kinds = [event.kind for event in heard]
        notes = [event.text for event in heard[: kinds.index("trial")] if event.kind == "note"]
        assert said == any(
            "5 s are left of the budget, one candidate and its proof take about 17 s" in n for n in notes
        )


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


def test_a_large_task_is_expected_to_take_longer_before_a_candidate_was_seen(clock: Clock) -> None:
    """A call of half a second on 134 million elements: 21 s were seen for a first coarse judgement."""
    made = judging.Judging(*[None] * 6)  # type: ignore[arg-type]  # nothing is judged here
    made._device = "cpu"
    made.foresee({"eager_us": 464_000.0, "inputs": [{"shape": [64, 64, 128, 128]}], "outputs": [{"shape": [1 << 26]}]})
    assert 15.0 < made.expected_seconds("coarse") < 25.0
    assert 35.0 < made.expected_seconds("precise") < 60.0


@pytest.mark.parametrize("asked, accepted, may", [(0, False, True), (1, False, False), (1, True, False)])
def test_a_candidate_that_compiles_for_long_is_begun_late_only_as_the_first(
    clock: Clock, asked: int, accepted: bool, may: bool
) -> None:
    """A budget of 5 s; with 5 minutes it is begun in any case."""
    made: Any = SimpleNamespace(expected_seconds={"coarse": 2.0, "precise": 12.0}.get)
    tries = Tries(asked=asked, accepted=accepted, promising=False)
    assert may == Schedule(Pace(5.0, clock.now), made).may_compile(tries)
    assert Schedule(Pace(300.0, clock.now), made).may_compile(tries)


def test_kernels_that_were_given_are_all_judged_and_one_of_ours(clock: Clock) -> None:
    """Whatever the budget."""
    made: Any = SimpleNamespace(expected_seconds={"coarse": 9.0, "precise": 12.0}.get)
    pace = Pace(1.0, clock.now)
    pace.admitted()
    clock.now += 60.0
    asked = [Tries(asked=n, accepted=True, promising=False) for n in range(5)]
    assert [True, True, True, False, False] == [Schedule(pace, made, given=2).may_try(tries) for tries in asked]


def test_what_was_given_up_for_lack_of_time_is_tried_again_with_more(tmp_path: Path, clock: Clock) -> None:
    """A resumed run remembers verdicts; that nobody waited long enough is none."""
    hangs = Rejected(stage="load", reason="no answer within 20 s", detail="")
    host = FakeHost({"compiler": [structure("compile.mode")]})
    first = Slow(clock, {"coarse": 20.0}, lambda candidate: hangs)
    go(tmp_path / "run", worker=first, host=host, options=Options(budget_seconds=5.0))
    for budget, tried in ((5.0, 0), (300.0, 1)):
        again = Slow(clock, {"coarse": 20.0, "precise": 5.0}, lambda candidate: hangs)
        resume_run(tmp_path / "run", budget_seconds=budget, services=Services("cpu", worker=again, host=host))
        assert (1, tried) == (len(first.judged), len(again.judged))


@pytest.mark.parametrize("budget, kept", [(40.0, 0.0), (60.0, 16.0), (300.0, 16.0)])
def test_larger_budgets_keep_time_for_sanitizers_after_the_proof(clock: Clock, budget: float, kept: float) -> None:
    """The search ends so much earlier; a proof that is begun then is told what it leaves."""
    made: Any = SimpleNamespace(expected_seconds={"coarse": 2.0, "precise": 12.0}.get)
    pace = Pace(budget, clock.now)
    pace.admitted()
    schedule = Schedule(pace, made)
    while schedule.fits():
        clock.now += 2.0
    assert 12.0 + kept <= schedule.left() <= 12.0 + kept + 2.0
    assert schedule.spare() == schedule.left() - 12.0
    assert schedule.in_budget()


def test_what_is_left_may_not_hold_is_said_once(clock: Clock) -> None:
    """At the admission, or when the proof begins; where another judge was waited for, twice as much may be needed."""
    made: Any = SimpleNamespace(expected_seconds={"coarse": 2.0, "precise": 12.0}.get)
    for waited, said in ((0.0, ""), (0.5, ""), (3.0, "12 s, and another judge takes turns on this device")):
        pace = Pace(30.0, clock.now)
        pace.waited(waited)
        schedule = Schedule(pace, made)
        assert ("", 15.0) == (schedule.news(), schedule.hanging())  # the latter for a program that does not answer
        clock.now += 10.0
        assert said in schedule.news(proving=True) and bool(said) == schedule._announced
        clock.now += 10.0
        assert bool(said) != bool(schedule.news(proving=True))
        assert "" == schedule.news(proving=True)


def test_waiting_of_judgements_reaches_the_runs_result(tmp_path: Path, clock: Clock) -> None:
    """As much as the judge says, but no more than its answer took; of the proof and of the admission."""

    class Shared(Slow):
        def run(self, job: dict[str, Any], on_event: Any = None) -> dict[str, Any]:
            return {**super().run(job, on_event), "waited": 4.0 if job.get("level") == "precise" else 0.0}

        def submit(self, job: dict[str, Any], on_event: Any = None) -> Any:
            future = super().submit(job, on_event)
            future.result()["waited"] = 99.0  # already done when it is asked for: nobody waited
            return future

    judge = Shared(clock, {"coarse": 1.0, "precise": 9.0}, second_best)
    result, _ = go(tmp_path / "run", worker=judge, host=FakeHost(HOST), options=Options(budget_seconds=5.0))
    proofs = judge.levels().count("precise")
    assert (4.0 * proofs, 5.0 * proofs) == (result.spent["waiting"], result.spent["proof"])
    assert f"{4 * proofs} s for waiting for another judge of the device" in result.overrun
