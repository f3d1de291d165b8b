# SPDX-License-Identifier: Apache-2.0
"""optimize/run.py: whole runs against doubles: what wins, and what is kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from run_doubles import HOST, SIZES, TASK, go, landscape, structure

from kernelwright.candidate import Candidate
from kernelwright.ledger import open_ledger
from kernelwright.optimize import Event, Options, Services, optimize_task
from kernelwright.optimize import folder as folders
from kernelwright.optimize.host import ProposerHost
from kernelwright.proposers import Structure
from kernelwright.testing import FakeHost, FakeWorker, Verdict
from kernelwright.trial import Rejected, Timed


def test_the_tuned_optimum_wins_with_files_and_a_record(tmp_path: Path) -> None:
    """The best size is found, proved against the better baseline and exported; the ledger has every trial."""
    result, judge = go(tmp_path / "run")
    assert result.winner is not None and isinstance(result.winner.outcome, Timed)
    assert ("faster", (("size", 2),)) == (result.status, result.winner.candidate.tunables)
    assert ("compile", 4.0) == (result.winner.outcome.best_baseline, result.speedup)
    assert {"optimized.py", "proof.json", "report.html"} <= {path.name for path in result.files}
    assert all(path.exists() for path in result.files)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert ("faster", result.to_json()) == (record["status"], record["result"])
    ledger = open_ledger(tmp_path / "run" / "ledger.sqlite", writable=False)
    assert len(judge.judged) == ledger.count() == result.tried
    ledger.close()
    assert (tmp_path / "run" / "candidates" / result.winner.candidate.digest() / "optimized.py").exists()


def test_no_candidate_is_judged_twice_at_a_level(tmp_path: Path) -> None:
    """Device time spent on duplicates is zero, also when two structures write the same source."""
    twins = FakeHost({"templates": [structure("a"), structure("b")]})
    original = twins.render
    twins.render = lambda proposer, task, device, machine, name, values: original(  # type: ignore[method-assign]
        proposer, task, device, machine, "a", values
    )
    result, judge = go(tmp_path / "run", lambda candidate: 50.0, host=twins, options=Options(proposers=("templates",)))
    assert len(judge.judged) == len(set(judge.judged))
    assert 2 == len(judge.judged)  # one coarse, one precise
    assert "faster" == result.status


def test_values_that_change_nothing_are_no_further_trials(tmp_path: Path) -> None:
    """Choices of an arm that write the same text are one trial, and leave the few of a spent budget to others."""
    deaf = FakeHost({"templates": [structure("a", SIZES), structure("b"), structure("c", order=2.0)]})
    original = deaf.render
    deaf.render = lambda proposer, task, device, machine, name, values: original(  # type: ignore[method-assign]
        proposer, task, device, machine, name, {}
    )
    heard: list[Event] = []
    result, _ = go(
        tmp_path / "run", lambda candidate: 90.0, host=deaf, heard=heard, options=Options(proposers=("templates",))
    )
    coarse = [event.data["structure"] for event in heard if event.data.get("level") == "coarse"]
    assert ["templates/a", "templates/b", "templates/c"] == coarse
    assert len([event for event in heard if event.kind == "trial"]) == result.tried


def test_when_nothing_beats_the_best_baseline_that_is_the_result(tmp_path: Path) -> None:
    """1.1x over eager and slower than torch.compile is no win; the message cites it and nothing is exported."""
    result, _ = go(tmp_path / "run", lambda candidate: 90.0)
    assert ("not-faster", None) == (result.status, result.winner)
    assert "Nothing honest beats the baseline" in result.message
    assert "0.89x of compile" in result.message
    assert not (tmp_path / "run" / "optimized.py").exists()
    assert (tmp_path / "run" / "report.html").exists()


def test_a_win_within_the_noise_is_no_win(tmp_path: Path) -> None:
    """79.5 against 80 us is a ratio above 1 whose interval reaches below it."""
    result, _ = go(tmp_path / "run", lambda candidate: 79.5)
    assert "not-faster" == result.status
    assert "quiet machine" not in result.message


def test_a_likely_win_that_cannot_be_proved_is_told_from_none(tmp_path: Path) -> None:
    """Twice as fast in the median with an interval that reaches below 1: no win, and the message says why."""

    class Unsteady(FakeWorker):
        def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
            found = super().run(job, on_event)
            if job["job"] == "judge" and job["level"] == "precise":
                found["outcome"]["speedup_low"] = 0.9
            return found

    result, _ = go(tmp_path / "run", worker=Unsteady(landscape))
    assert ("not-faster", None) == (result.status, result.winner)
    assert "2.67x of compile (95 % interval 0.90" in result.message
    assert "That may be faster" in result.message
    assert "quiet machine" in result.message
    assert "likely" not in result.message  # an interval that holds both sides of 1 says no such thing


def test_a_baseline_that_did_not_run_is_named_beside_the_speedup(tmp_path: Path) -> None:
    """A speedup over eager alone must not pass for one over the best."""

    class Alone(FakeWorker):
        def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
            found = super().run(job, on_event)
            if job["job"] == "judge" and "conditions" in found["outcome"]:
                found["outcome"]["conditions"].append("baseline compile not raced: it ran out of memory")
            return found

    result, _ = go(tmp_path / "run", worker=Alone(landscape))
    assert "faster" == result.status
    assert result.message.endswith("The baseline compile not raced: it ran out of memory.")


def test_numbers_beside_tensors_are_said_to_be_fixed(tmp_path: Path) -> None:
    """A step of an optimiser stood still in the drop-in, unsaid: from the next step on the reference answered."""

    class Numbered(FakeWorker):
        def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
            found = super().run(job, on_event)
            if job["job"] == "describe":
                found["points"][0]["inputs"].append({"value": 10})
            return found

    result, _ = go(tmp_path / "run", worker=Numbered(landscape))
    said = "input 1 is 10"
    assert f'"text": "{said}: of other values nothing is proved' in (result.run / "events.jsonl").read_text()
    assert said in (result.run / "report.html").read_text()
    assert said in (result.run / "optimized.py").read_text().partition('"""')[2].partition('"""')[0]
    other, _ = go(tmp_path / "other", worker=FakeWorker(landscape))
    assert "nothing is proved" not in (other.run / "events.jsonl").read_text()


def test_a_finalist_that_fails_the_precise_judgement_is_replaced_by_the_next(tmp_path: Path) -> None:
    """The coarse best cheats on a hidden case: the runner-up wins."""
    judge: FakeWorker

    def verdict(candidate: Candidate) -> Verdict:
        precise = judge.judged[-1][1] == "precise"
        if candidate.proposer == "templates" and precise:
            return Rejected(stage="verify", reason="wrong on a hidden case", detail="")
        return 30.0 if candidate.proposer == "templates" else 60.0

    judge = FakeWorker(verdict)
    result, _ = go(tmp_path / "run", worker=judge)
    assert result.winner is not None
    assert "templates" != result.winner.candidate.proposer


def test_a_given_kernel_is_judged_first(tmp_path: Path) -> None:
    """--start: it competes with the proposers and can win."""
    (tmp_path / "mine.py").write_text("class ModelNew: pass\n")
    options = Options(start=(str(tmp_path / "mine.py"),))
    result, judge = go(tmp_path / "run", lambda c: 5.0 if c.proposer == "start" else 50.0, options=options)
    assert result.winner is not None
    assert "start" == result.winner.candidate.proposer
    assert judge.judged[0][0] == result.winner.candidate.digest()


def test_what_the_compiler_says_of_a_given_kernel_is_heard(tmp_path: Path) -> None:
    """It is the user's to mend; of candidates of our own one line is enough."""
    (tmp_path / "mine.py").write_text("class ModelNew: pass\n")
    options = Options(start=(str(tmp_path / "mine.py"),))
    refused = Rejected(stage="build", reason="k.cpp does not compile", detail="k.cpp:5:22: error: expected ';'\n")
    heard: list[Event] = []
    go(tmp_path / "run", lambda c: refused, options=options, heard=heard)
    texts = [event.text for event in heard if event.kind == "trial"]
    wanted = "start/mine.py: rejected at build: k.cpp does not compile\nk.cpp:5:22: error: expected ';'"
    assert [wanted] == [text for text in texts if "error:" in text]
    assert 1 < len([text for text in texts if "does not compile" in text])


def test_a_budget_that_is_over_still_gives_the_first_structures_a_proof(tmp_path: Path) -> None:
    """Admission may eat a small budget; the user still gets the best of a few."""
    result, judge = go(tmp_path / "run", options=Options(budget_seconds=0.001))
    assert "faster" == result.status
    assert len(judge.judged) <= 6


def test_the_same_seed_asks_for_the_same_candidates_in_the_same_order(tmp_path: Path) -> None:
    """A run can be repeated."""
    first, second = go(tmp_path / "a")[1], go(tmp_path / "b")[1]
    assert first.judged == second.judged


def test_runs_without_a_folder_get_names_of_their_own(home: Path) -> None:
    """Two runs of a task never share a folder."""
    first, second = go(None)[0], go(None)[0]
    assert first.run != second.run
    assert {home / "runs"} == {first.run.parent, second.run.parent}
    assert {str(first.run), str(second.run)} == {item[0].as_posix() for item in folders.listed(home / "runs")}


def test_modules_of_the_task_are_among_the_files_that_are_named(tmp_path: Path) -> None:
    """Who moves what is listed has all that optimized.py needs."""
    task = dataclasses.replace(TASK, beside=(("kw_number.py", "NUMBER = 1\n"),))
    services = Services("cpu", worker=FakeWorker(landscape), host=FakeHost(HOST))
    found = optimize_task(task, Options(), out=tmp_path / "run", services=services)
    assert "NUMBER = 1\n" == (tmp_path / "run" / "task_modules" / "kw_number.py").read_text()
    assert tmp_path / "run" / "task_modules" in found.files


class Recorded(ProposerHost):
    """Says when its child would be started, stopped and asked."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.known = FakeHost(HOST)

    def start(self) -> None:
        """One of the calls of interest."""
        self.did.append("start")

    def stand_still(self) -> None:
        """Another."""
        self.did.append("stand still")

    def go_on(self) -> None:
        """Another."""
        self.did.append("go on")

    def structures(self, proposer: str, *given: Any) -> list[Structure]:  # type: ignore[override]
        """As the double has them."""
        self.did.append("asked")
        return self.known.structures(proposer, *given)

    def render(self, *given: Any) -> Candidate:  # type: ignore[override]
        """As the double writes them."""
        return self.known.render(*given)

    def heard(self) -> list[str]:
        """Nothing."""
        return []

    def close(self) -> None:
        """There is no child."""


def test_proposers_stand_still_while_a_device_is_measured(tmp_path: Path) -> None:
    """What they import at their start takes seconds of a processor whose bandwidth is looked at."""
    host = Recorded()
    go(tmp_path / "run", host=host)  # type: ignore[arg-type]
    assert ["start", "stand still", "go on", "asked"] == host.did[:4]
    assert 1 == host.did.count("stand still")
