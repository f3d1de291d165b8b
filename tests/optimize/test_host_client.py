# SPDX-License-Identifier: Apache-2.0
"""optimize/host.py: a real child over pipes; one death is survived, two are an error, noise is not believed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernelwright.errors import CandidateError, KernelwrightError
from kernelwright.optimize import host as hosts
from kernelwright.optimize.host import ProposerHost
from kernelwright.task import Task

TASK = Task(name="t", form="kernelbench", reference="")
SERVER = """
import json, os, sys, time
from kernelwright import wire
from kernelwright.candidate import Candidate
marks = {marks!r}
for line in sys.stdin:
    job = json.loads(line)
    def say(**data):
        print(json.dumps({{"id": job["id"], **data}}), flush=True)
    if job["proposer"] == "dies" or (job["proposer"] == "dies-once" and not os.path.exists(marks)):
        open(marks, "w").close()
        sys.stderr.write("out of luck")
        os._exit(3)
    if job["proposer"] == "hangs":
        time.sleep(3600)
    if job["proposer"] == "noisy":
        print("not json", flush=True)
    if job["job"] == "structures":
        why = "odd graph in %g" % job["seconds"]
        say(event={{"event": "proposer-skipped", "proposer": job["proposer"], "reason": why}})
        taken = {{"seconds": 7.0}} if job["proposer"] == "takes-7" else {{}}
        say(result={{"structures": [], "late": job["proposer"] == "late", **taken}})
    elif job["structure"] == "bad":
        say(error={{"error": "CandidateError", "what": "no", "got": "", "expected": "", "what_next": ""}})
    else:
        text = str(job["values"])
        made = Candidate(task="t", language="torch", entry="a.py::M", sources=(("a.py", text),), proposer="p")
        say(result={{"candidate": wire.to_data(made)}})
"""


@pytest.fixture
def host(tmp_path: Path) -> ProposerHost:
    """A host that runs SERVER in place of the real one."""
    made = ProposerHost(tmp_path, command=(sys.executable, "-c", SERVER.format(marks=str(tmp_path / "died"))))
    yield made
    made.close()


def test_questions_are_answered_in_one_child(host: ProposerHost) -> None:
    """Structures, events on the way, rendered candidates with the values asked for."""
    assert [] == host.structures("p", TASK, "cpu", None)
    assert ["p: odd graph in 120"] == host.heard()
    assert [] == host.heard()
    assert (("a.py", "{'x': 3}"),) == host.render("p", TASK, "cpu", None, "s", {"x": 3}).sources


def test_an_error_of_the_host_is_the_same_error_here(host: ProposerHost) -> None:
    """Its class crosses the pipe."""
    with pytest.raises(CandidateError, match="no"):
        host.render("p", TASK, "cpu", None, "bad", {})


def test_a_host_that_dies_is_started_once_more(host: ProposerHost) -> None:
    """The second child answers the same question."""
    assert [] == host.structures("dies-once", TASK, "cpu", None)


@pytest.mark.parametrize("proposer", ["dies", "noisy"])
def test_a_host_that_dies_or_babbles_twice_is_an_error_and_the_next_question_works(
    host: ProposerHost, proposer: str
) -> None:
    """One proposer that kills the host does not take the others along."""
    with pytest.raises(KernelwrightError, match="twice"):
        host.structures(proposer, TASK, "cpu", None)
    assert [] == host.structures("p", TASK, "cpu", None)


def test_a_host_that_hangs_is_an_error_and_its_task_is_not_traced_again(
    host: ProposerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting once for every proposer would take as long again; other tasks are traced, and who needs no trace is
    asked: torch.compile is the one candidate such a task has."""
    other = Task(name="o", form="kernelbench", reference="pass")
    assert [] == host.structures("p", other, "cpu", None)
    monkeypatch.setattr(hosts, "GRACE_SECONDS", 0.1)
    host.patience = 0.0
    with pytest.raises(KernelwrightError, match="(?s)longer than 0 s, its share of the budget.*no answer of hangs"):
        host.structures("hangs", TASK, "cpu", None)
    host.patience = hosts.PATIENCE_SECONDS
    with pytest.raises(KernelwrightError, match="p is not asked"):
        host.structures("p", TASK, "cpu", None)
    assert [] == host.structures("compiler", TASK, "cpu", None)
    assert (("a.py", "{}"),) == host.render("compiler", TASK, "cpu", None, "s", {}).sources
    assert [] == host.structures("p", other, "cpu", None)


def test_proposers_share_the_time_for_tracing_a_task(host: ProposerHost) -> None:
    """What one took the next has no more; another task has all of it, and so has who does not trace."""
    host.patience = 10.0
    for proposer in ("takes-7", "p", "compiler"):
        host.structures(proposer, TASK, "cpu", None)
    host.structures("p", Task(name="o", form="kernelbench", reference="pass"), "cpu", None)
    assert ["10", "3", "10", "10"] == [note.rpartition(" ")[2] for note in host.heard()]


def test_a_proposer_that_was_interrupted_is_late(host: ProposerHost) -> None:
    """The child stopped in time and lives on; no proposer that traces the task is asked again."""
    with pytest.raises(KernelwrightError, match="its share of the budget"):
        host.structures("late", TASK, "cpu", None)
    with pytest.raises(KernelwrightError, match="not asked"):
        host.structures("p", TASK, "cpu", None)
