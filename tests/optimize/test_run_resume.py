# SPDX-License-Identifier: Apache-2.0
"""optimize/run.py: what survives an interrupt, a kill and damage."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_doubles import HOST, go, landscape

from kernelwright.candidate import Candidate
from kernelwright.errors import (
    LedgerCorrupt,
    NoSuchRun,
    RunFolderError,
)
from kernelwright.ledger import open_ledger
from kernelwright.optimize import Options, Services, resume_run
from kernelwright.optimize import folder as folders
from kernelwright.report import write
from kernelwright.testing import FakeHost, FakeWorker, Verdict
from kernelwright.trial import Rejected


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


def test_an_interrupt_before_any_proof_names_the_fastest(tmp_path: Path) -> None:
    """Whoever waited for it wants to know what it was worth; nothing says that it is right."""

    def stop(count: int) -> None:
        if count == 3:
            raise KeyboardInterrupt

    result, _ = go(tmp_path / "run", worker=FakeWorker(landscape, after=stop))
    assert ("interrupted", None) == (result.status, result.winner)
    assert re.search(r"2 trials; the fastest, not proved, is at \d+\.\d\dx of \w+\)", result.message), result.message


def test_an_interrupt_before_any_proof_says_how_to_go_on(tmp_path: Path) -> None:
    """Nothing is exported that was not proved."""

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    result, judge = go(tmp_path / "run", worker=FakeWorker(landscape, after=stop))
    assert ("interrupted", None) == (result.status, result.winner)
    assert "abandon" == judge.jobs[1 + max(n for n, job in enumerate(judge.jobs) if job == "judge")]
    assert "--resume" in result.message
    assert not (tmp_path / "run" / "optimized.py").exists()


def test_an_interrupted_run_starts_no_judge_to_read_a_counter(tmp_path: Path) -> None:
    """That would take seconds; its energy is not measured, and says why. A run that ends by itself reads it."""

    class Counted(FakeWorker):
        def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
            found = super().run(job, on_event)
            return {"joules": 100.0 + len(self.jobs), "note": ""} if job["job"] == "energy" else found

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    _, judge = go(tmp_path / "a", worker=Counted(landscape, after=stop))
    assert "energy" not in judge.jobs[judge.jobs.index("abandon") :]
    spent = folders.read(tmp_path / "a")["cost"]
    assert (None, "not read after an interrupt") == (spent["kWh"], spent["note"])
    go(tmp_path / "b", worker=Counted(landscape))
    assert folders.read(tmp_path / "b")["cost"]["kWh"] > 0


def test_resume_after_kill_repeats_no_judgement_and_reaches_the_same_winner(tmp_path: Path) -> None:
    """A child process kills itself with SIGKILL in its fifth judgement; the resumed run judges only what is left."""
    code = f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from run_doubles import FakeWorker, go, landscape
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
    levels = [level for _, level in judge.judged]
    assert ("faster", ["coarse"] * 3 + ["precise"]) == (result.status, levels)  # the given ones, and ours


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
    with pytest.raises(RunFolderError, match=r"another version.\n  got: no 'task'(?s:.*)\n  next: read it with"):
        resume_run(tmp_path / "run", services=Services("cpu", worker=FakeWorker(landscape), host=FakeHost(HOST)))


def test_a_resumed_run_counts_what_its_earlier_parts_tried(tmp_path: Path) -> None:
    """Too short a budget to look at anything again: the report counts the ledger, and the message must not say less."""

    def slow(candidate: Candidate) -> Verdict:
        return Rejected(stage="verify", reason="wrong", detail="") if candidate.proposer == "rewrites" else 110.0

    first, _ = go(tmp_path / "run", slow)
    assert first.tried > 2 and first.rejected == 1
    services = Services("cpu", worker=FakeWorker(slow), host=FakeHost(HOST))
    again = resume_run(tmp_path / "run", budget_seconds=1e-6, services=services)
    assert (first.tried, 1) == (again.tried, again.rejected)
    assert f"({first.tried} trials, 1 of them rejected)" in again.message
    assert len(open_ledger(tmp_path / "run" / "ledger.sqlite", writable=False).rows()) == again.tried


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_run_whose_ledger_is_gone_is_not_begun_again_over_what_it_found(tmp_path: Path, left: str) -> None:
    """Its record tells of trials: neither a search nor a page without them takes the place of what is there."""
    found, _ = go(tmp_path / "run")
    ledger, page = tmp_path / "run" / "ledger.sqlite", tmp_path / "run" / "report.html"
    page.write_text("the page as it was")
    ledger.unlink()
    if left == "an empty file":
        ledger.touch()
    words = rf"(?s)is gone.*the {found.tried} trials that run.json tells of"
    with pytest.raises(LedgerCorrupt, match=words):
        resume_run(tmp_path / "run", services=Services("cpu", worker=FakeWorker(landscape), host=FakeHost(HOST)))
    with pytest.raises(LedgerCorrupt, match=words):
        write(tmp_path / "run")
    assert "the page as it was" == page.read_text()
