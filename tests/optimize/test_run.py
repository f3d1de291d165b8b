# SPDX-License-Identifier: Apache-2.0
"""optimize/run.py: whole runs against doubles: what wins, what is kept, what survives, what each mistake says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kernelwright.candidate import Candidate
from kernelwright.errors import (
    BadCommand,
    JudgeFailed,
    KernelwrightError,
    LedgerCorrupt,
    NoSuchDevice,
    NoSuchRun,
    NotAdmitted,
    ReferenceFails,
    ReferenceIsRandom,
    RunFolderBusy,
    RunFolderError,
    RunFolderUnwritable,
    ToolMissing,
)
from kernelwright.ledger import open_ledger
from kernelwright.optimize import Event, Options, Result, Services, optimize_task, resume_run
from kernelwright.optimize import folder as folders
from kernelwright.optimize import run as running
from kernelwright.proposers import Structure
from kernelwright.task import Task
from kernelwright.testing import FakeHost, FakeWorker, Verdict
from kernelwright.trial import Rejected, Timed
from kernelwright.tuning import Parameter, Space

REFERENCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.randn(4)]
def get_init_inputs():
    return []
"""
TASK = Task(name="double", form="kernelbench", reference=REFERENCE)
NOWHERE = Space(parameters=(), constraints=())
SIZES = Space(parameters=(Parameter(name="size", values=(8, 1, 2, 4, 16, 32)),), constraints=())


def structure(name: str, space: Space = NOWHERE, order: float = 1.0, language: str = "torch") -> Structure:
    """A structure with a fixed name."""
    return Structure(name=name, note=f"about {name}", language=language, space=space, order=order)


HOST = {
    "compiler": [structure("mode", order=2.0)],
    "rewrites": [structure("law")],
    "templates": [structure("tiles", SIZES, order=0.5)],
}


def landscape(candidate: Candidate) -> Verdict:
    """law is wrong, mode takes 90 us, tiles are best at size 2 with 20 us."""
    if candidate.proposer == "rewrites":
        return Rejected(stage="verify", reason="wrong by 3 bits", detail="at 0")
    if candidate.proposer == "compiler":
        return 90.0
    size = int(dict(candidate.tunables)["size"])
    return 20.0 + 5 * abs(size.bit_length() - 2)


def go(
    out: Path | None,
    verdict: Callable[[Candidate], Verdict] = landscape,
    *,
    host: FakeHost | None = None,
    heard: list[Event] | None = None,
    worker: FakeWorker | None = None,
    options: Options | None = None,
) -> tuple[Result, FakeWorker]:
    """One run against doubles."""
    judge = worker or FakeWorker(verdict)
    services = Services("cpu", worker=judge, host=host or FakeHost(HOST))
    listen = heard.append if heard is not None else None
    return optimize_task(TASK, options or Options(), out=out, services=services, listen=listen), judge


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches and runs of the test's own."""
    for name in list(os.environ):
        if name.startswith("KERNELWRIGHT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELWRIGHT_RUNS", str(tmp_path / "runs"))
    return tmp_path


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
    assert "quiet machine" in result.message


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


def test_a_proposer_that_dies_is_noted_and_the_run_goes_on(tmp_path: Path) -> None:
    """One missing idea is no reason to lose the others."""
    host, heard = FakeHost(HOST), []
    host.dead.add("rewrites")
    result, _ = go(tmp_path / "run", host=host, heard=heard)
    assert "faster" == result.status
    assert any(event.kind == "note" and "rewrites" in event.text for event in heard)


def test_a_missing_compiler_skips_its_language_and_is_an_error_when_nothing_else_is_left(tmp_path: Path) -> None:
    """With torch candidates left the run goes on; with C++ alone the user is told what to install."""
    host = FakeHost({"templates": [structure("fast", language="cpp")], "compiler": [structure("mode")]})
    missing = ToolMissing("There is no C++ compiler", "g++ is not on PATH", "g++ 11 or newer", "install g++")

    def verdict(candidate: Candidate) -> Verdict:
        return missing if candidate.language == "cpp" else 50.0

    result, _ = go(tmp_path / "a", verdict, host=host)
    assert result.winner is not None
    assert "compiler" == result.winner.candidate.proposer
    with pytest.raises(ToolMissing, match="no C\\+\\+ compiler"):
        go(tmp_path / "b", verdict, host=host, options=Options(proposers=("templates",)))


def test_one_lost_judge_costs_one_candidate_and_a_lost_machine_ends_the_run(tmp_path: Path) -> None:
    """A judge that dies again and again is raised, with everything recorded before it kept."""
    lost = JudgeFailed("The judge died under a job, twice")
    result, _ = go(tmp_path / "a", lambda c: lost if c.proposer == "rewrites" else landscape(c))
    assert "faster" == result.status
    with pytest.raises(JudgeFailed):
        go(tmp_path / "b", lambda c: landscape(c) if dict(c.tunables).get("size") == 8 else lost)
    assert "failed" == folders.read(tmp_path / "b")["status"]
    ledger = open_ledger(tmp_path / "b" / "ledger.sqlite", writable=False)
    assert 2 == ledger.count()  # the first structure, coarse and (once all were asked for) precise
    ledger.close()


@pytest.mark.parametrize(
    "error",
    [
        ReferenceIsRandom("Two runs differ."),
        NotAdmitted("zeros pass"),
        NoSuchDevice("There is no device cuda:3"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_task_or_device_that_is_at_fault_is_that_error(tmp_path: Path, error: KernelwrightError) -> None:
    """What the judge says about the task reaches the user as it is, and the folder says so too."""
    with pytest.raises(type(error)):
        go(tmp_path / "run", worker=FakeWorker(landscape, admit=error))
    assert ["failed", type(error).__name__] == [
        folders.read(tmp_path / "run")[key] if key == "status" else folders.read(tmp_path / "run")[key]["error"]
        for key in ("status", "error")
    ]


def test_a_reference_that_never_ends_is_given_up_with_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge that runs it is killed, and the run folder says why."""
    monkeypatch.setattr(running, "LONGEST_FIRST_CALL_S", 0.0)
    monkeypatch.setattr(running, "LONGEST_IN_BUDGETS", 0.0)

    class Endless(FakeWorker):
        def submit(self, job: dict[str, Any]) -> Future[dict[str, Any]]:
            return Future() if job["job"] == "describe" else super().submit(job)

    judge = Endless(landscape)
    with pytest.raises(ReferenceFails, match="(?s)does not come to an end.*longer --budget"):
        go(tmp_path / "run", worker=judge)
    assert "abandon" in judge.jobs
    assert "failed" == json.loads((tmp_path / "run" / "run.json").read_text())["status"]


def test_an_unknown_proposer_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """The message lists the known ones, and no folder is made."""
    with pytest.raises(BadCommand) as caught:
        go(tmp_path / "run", options=Options(proposers=("tempaltes",)))
    assert "templates" in caught.value.expected
    assert not (tmp_path / "run").exists()


def test_a_second_run_in_the_same_folder_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    """Finished or running."""
    go(tmp_path / "run")
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(RunFolderBusy, match="already"):
        go(tmp_path / "run")
    assert before == (tmp_path / "run" / "run.json").read_bytes()
    held = folders.create(tmp_path / "held")
    with pytest.raises(RunFolderBusy, match="Another run"):
        go(tmp_path / "held")
    held.close()


def test_places_that_cannot_be_a_run_folder_are_refused(tmp_path: Path) -> None:
    """A file, and a place below a file."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunFolderError):
        go(tmp_path / "file")
    with pytest.raises(RunFolderUnwritable):
        go(Path("/proc/nowhere/run"))
    assert "mine" == (tmp_path / "file").read_text()


def test_a_disk_that_fills_up_ends_the_run_with_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the ledger stays, and a later resume goes on from it."""
    import errno

    original = folders.RunFolder.event
    count = 0

    def full(self: folders.RunFolder, data: dict[str, object]) -> None:
        nonlocal count
        count += 1
        if count > 12:
            with folders.unwritable(self.path):
                raise OSError(errno.ENOSPC, "No space left on device")
        original(self, data)

    monkeypatch.setattr(folders.RunFolder, "event", full)
    with pytest.raises(RunFolderUnwritable, match="cannot be written"):
        go(tmp_path / "run")
    monkeypatch.undo()
    kept = open_ledger(tmp_path / "run" / "ledger.sqlite", writable=False)
    found = kept.count()
    kept.close()
    assert found > 0
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    again = FakeWorker(landscape)
    result = resume_run(tmp_path / "run", services=Services("cpu", worker=again, host=FakeHost(HOST)))
    assert "faster" == result.status


def test_an_interrupt_keeps_what_was_proved(tmp_path: Path) -> None:
    """Ctrl-C after the early proof: the result is that proof, exported, and resume goes on."""

    def stop(count: int) -> None:
        if count == 8:
            raise KeyboardInterrupt

    result, judge = go(tmp_path / "run", worker=FakeWorker(landscape, after=stop))
    assert "interrupted" == result.status
    assert result.winner is not None
    assert (tmp_path / "run" / "optimized.py").exists()
    judge = FakeWorker(landscape)
    final = resume_run(tmp_path / "run", services=Services("cpu", worker=judge, host=FakeHost(HOST)))
    assert "faster" == final.status


def test_an_interrupt_before_any_proof_says_how_to_go_on(tmp_path: Path) -> None:
    """Nothing is exported that was not proved."""

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    result, judge = go(tmp_path / "run", worker=FakeWorker(landscape, after=stop))
    assert ("interrupted", None) == (result.status, result.winner)
    assert "abandon" == judge.jobs[1 + max(n for n, job in enumerate(judge.jobs) if job == "judge")]
    assert "--resume" in result.message
    assert not (tmp_path / "run" / "optimized.py").exists()


def test_resume_after_kill_repeats_no_judgement_and_reaches_the_same_winner(tmp_path: Path) -> None:
    """A child process kills itself with SIGKILL in its fifth judgement; the resumed run judges only what is left."""
    code = f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from test_run import FakeWorker, go, landscape
        def kill(count):
            if count == 5:
                os.kill(os.getpid(), signal.SIGKILL)
        go(Path({str(tmp_path / "run")!r}), worker=FakeWorker(landscape, after=kill))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, env={**os.environ})
    assert -signal.SIGKILL == done.returncode
    whole, complete = go(tmp_path / "whole")
    judge = FakeWorker(landscape)
    result = resume_run(tmp_path / "run", services=Services("cpu", worker=judge, host=FakeHost(HOST)))
    assert complete.judged[4:] == judge.judged
    assert whole.winner is not None and result.winner is not None
    assert whole.winner.candidate == result.winner.candidate


def test_given_kernels_that_use_up_the_budget_do_not_keep_ours_from_being_tried(tmp_path: Path) -> None:
    """Three hanging kernels and no time left: the structures still get their turn, and one of them wins."""
    given = []
    for number in range(3):
        given.append(tmp_path / f"k{number}.py")
        given[-1].write_text(f"class ModelNew: pass  # {number}\n")

    def hang(candidate: Candidate) -> Verdict:
        if candidate.proposer == "start":
            return Rejected(stage="smoke", reason="no answer within 20 s", detail="")
        return landscape(candidate)

    options = Options(budget_seconds=1e-9, start=tuple(str(path) for path in given))
    result, judge = go(tmp_path / "run", hang, options=options)
    coarse = [candidate for candidate, level in judge.judged if level == "coarse"]
    assert ("faster", 4) == (result.status, len(coarse))  # the given ones, and ours until one was accepted


def test_a_short_resume_proves_the_best_that_was_found(tmp_path: Path) -> None:
    """The killed part of the run found the optimum; a resume without time to search again must not lose it."""

    def stop(count: int) -> None:
        if count == 12:
            raise KeyboardInterrupt

    options = Options(budget_seconds=1e6)
    go(tmp_path / "run", worker=FakeWorker(landscape, after=stop), options=options)
    ledger = open_ledger(tmp_path / "run" / "ledger.sqlite", writable=False)
    fastest = min(row.median_us for row in ledger.rows() if row.median_us is not None)
    ledger.close()
    assert 20.0 == fastest
    judge = FakeWorker(landscape)
    services = Services("cpu", worker=judge, host=FakeHost(HOST))
    result = resume_run(tmp_path / "run", budget_seconds=1e-9, services=services)
    assert result.winner is not None
    assert (("size", 2),) == result.winner.candidate.tunables


def test_resuming_what_is_no_run_or_damaged_is_one_clear_error(tmp_path: Path) -> None:
    """No folder; a folder without run.json; a record of another version; a damaged ledger."""
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(NoSuchRun):
            resume_run(path)
    go(tmp_path / "run")
    (tmp_path / "run" / "ledger.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(LedgerCorrupt):
        resume_run(tmp_path / "run", services=Services("cpu", worker=FakeWorker(landscape), host=FakeHost(HOST)))
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(RunFolderError, match="another version"):
        resume_run(tmp_path / "run", services=Services("cpu", worker=FakeWorker(landscape), host=FakeHost(HOST)))


def test_a_given_kernel_is_judged_first(tmp_path: Path) -> None:
    """--start: it competes with the proposers and can win."""
    (tmp_path / "mine.py").write_text("class ModelNew: pass\n")
    options = Options(start=(str(tmp_path / "mine.py"),))
    result, judge = go(tmp_path / "run", lambda c: 5.0 if c.proposer == "start" else 50.0, options=options)
    assert result.winner is not None
    assert "start" == result.winner.candidate.proposer
    assert judge.judged[0][0] == result.winner.candidate.digest()


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
