# SPDX-License-Identifier: Apache-2.0
"""optimize/run.py: what each mistake and each fault of a part says, and what goes on in spite of it."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from run_doubles import HOST, go, landscape, structure

from kernelwright.candidate import Candidate
from kernelwright.errors import (
    BadCommand,
    CandidateError,
    JudgeFailed,
    KernelwrightError,
    NoSuchDevice,
    NotAdmitted,
    NotEnoughMemory,
    ReferenceFails,
    ReferenceIsRandom,
    RunFolderBusy,
    RunFolderError,
    RunFolderUnwritable,
    ToolMissing,
)
from kernelwright.ledger import open_ledger
from kernelwright.optimize import Event, Options, Services, resume_run
from kernelwright.optimize import folder as folders
from kernelwright.optimize import run as running
from kernelwright.testing import FakeHost, FakeWorker, Verdict


def test_a_proposer_that_dies_is_noted_and_the_run_goes_on(tmp_path: Path) -> None:
    """One missing idea is no reason to lose the others."""
    host, heard = FakeHost(HOST), []
    host.dead.add("rewrites")
    result, _ = go(tmp_path / "run", host=host, heard=heard)
    assert "faster" == result.status
    assert any(event.kind == "note" and "rewrites" in event.text for event in heard)


def test_what_a_proposer_left_out_reaches_the_events_and_the_report(tmp_path: Path) -> None:
    """It was kept in the host, where nobody looked."""
    host, heard = FakeHost(HOST), []
    host.notes = ["compiler: no such mode here"]
    go(tmp_path / "run", host=host, heard=heard)
    (note,) = (event for event in heard if "no such mode here" in event.text)
    assert ("note", "compiler") == (note.kind, note.data["proposer"])
    assert "compiler: no such mode here" in (tmp_path / "run" / "report.html").read_text()


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


def test_what_needs_a_missing_compiler_is_not_said_to_be_proved_again(tmp_path: Path) -> None:
    """The first proof found the compiler missing; a budget too small for coarse judgements proves at once."""
    compiled = [structure(name, language="cpp", order=0.1) for name in ("one", "two", "three")]
    host = FakeHost({"templates": compiled, "rewrites": [structure("mode", order=0.9)]})
    missing = ToolMissing("There is no C++ compiler", "g++ is not on PATH", "g++ 11 or newer", "install g++")

    def verdict(candidate: Candidate) -> Verdict:
        return missing if candidate.language == "cpp" else 50.0

    heard: list[Event] = []
    options = Options(budget_seconds=12.0)
    result, _ = go(tmp_path / "run", verdict, host=host, options=options, heard=heard)
    assert result.winner is not None
    assert 1 == sum(event.text.startswith("proving templates") for event in heard)


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


def test_a_proof_without_room_costs_one_candidate_not_its_language(tmp_path: Path) -> None:
    """A GPU that was full of call sets ended all Triton candidates, and the run spoke of an honest baseline."""
    full = NotEnoughMemory("The judge ran out of memory.", "10 GiB on cuda:0", "room", "smaller sizes")
    result, _ = go(tmp_path / "a", lambda c: full if dict(c.tunables).get("size") == 8 else landscape(c))
    assert "faster" == result.status
    with pytest.raises(NotEnoughMemory):
        go(tmp_path / "b", lambda c: full)


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
        def submit(self, job: dict[str, Any], on_event: Any = None) -> Future[dict[str, Any]]:  # noqa: ANN401
            return Future() if job["job"] == "describe" else super().submit(job, on_event)

    judge = Endless(landscape)
    with pytest.raises(ReferenceFails, match="(?s)does not come to an end.*longer --budget"):
        go(tmp_path / "run", worker=judge)
    assert "abandon" in judge.jobs
    assert "failed" == json.loads((tmp_path / "run" / "run.json").read_text())["status"]


def test_a_reference_that_fails_is_said_before_the_proposers_are_through_with_it(tmp_path: Path) -> None:
    """Beside other work they took 16 s over a file whose forward raises."""
    heard: list[Event] = []

    class Failing(FakeWorker):
        def run(self, job: dict[str, Any], on_event: Any = None) -> dict[str, Any]:  # noqa: ANN401
            if job["job"] == "describe":
                raise ReferenceFails("The reference of add fails (forward).", got="ValueError: no")
            return super().run(job, on_event)

    with pytest.raises(ReferenceFails, match="ValueError: no"):
        go(tmp_path / "run", worker=Failing(landscape), heard=heard)
    assert not [event for event in heard if event.kind == "structures"]


def test_an_unknown_proposer_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """The message lists the known ones, and no folder is made."""
    with pytest.raises(BadCommand) as caught:
        go(tmp_path / "run", options=Options(proposers=("tempaltes",)))
    assert "templates" in caught.value.expected
    assert not (tmp_path / "run").exists()


def test_a_kernel_to_start_from_is_read_before_anything_starts(tmp_path: Path) -> None:
    """Missing, a folder, of a wrong kind or no text: no job was sent and no folder made."""
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "kernel.txt").write_text("class ModelNew: pass")
    (tmp_path / "kernel.cu").write_bytes(b"\xff\xfe")
    for name in ("none.py", "folder.py", "kernel.txt", "kernel.cu"):
        judge = FakeWorker(landscape)
        with pytest.raises(CandidateError, match=name):
            go(tmp_path / "run", worker=judge, options=Options(start=(str(tmp_path / name),)))
        assert [] == judge.jobs
        assert not (tmp_path / "run").exists()


def test_kernels_of_one_name_from_two_folders_are_both_judged(tmp_path: Path) -> None:
    """Neither takes the other's place."""
    places = [tmp_path / folder / "kernel.py" for folder in ("a", "b")]
    for place in places:
        place.parent.mkdir()
        place.write_text(f"class ModelNew: pass  # {place}\n")
    heard: list[Event] = []
    go(tmp_path / "run", lambda candidate: 50.0, heard=heard, options=Options(start=tuple(map(str, places))))
    asked = {event.data["structure"] for event in heard if event.kind == "trial"}
    assert {"start/kernel.py", "start/kernel.py-2"} <= asked


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
