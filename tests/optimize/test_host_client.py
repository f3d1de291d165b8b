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
        say(event={{"event": "proposer-skipped", "proposer": job["proposer"], "reason": "odd graph"}})
        say(result={{"structures": []}})
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
    assert ["p: odd graph"] == host.notes
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


def test_a_host_that_hangs_is_an_error_and_its_task_is_not_traced_again(host: ProposerHost) -> None:
    """Waiting twice, or once for every proposer, would take as long again; other tasks are traced."""
    other = Task(name="o", form="kernelbench", reference="pass")
    assert [] == host.structures("p", other, "cpu", None)
    host.patience = 0.0
    with pytest.raises(KernelwrightError, match="(?s)hangs on this task.*no answer"):
        host.structures("hangs", TASK, "cpu", None)
    host.patience = hosts.PATIENCE_SECONDS
    with pytest.raises(KernelwrightError, match="not asked: tracing this task hangs"):
        host.structures("p", TASK, "cpu", None)
    assert [] == host.structures("p", other, "cpu", None)
