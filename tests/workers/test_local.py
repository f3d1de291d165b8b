# SPDX-License-Identifier: Apache-2.0
"""The worker keeps one judge alive, tells replies apart, and knows a dead judge from a verdict."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.errors import DeviceLost, JudgeFailed, ReferenceFails, ToolMissing
from kernelwright.optimize import Services
from kernelwright.optimize.services import silent
from kernelwright.testing import FakeHost
from kernelwright.workers import LocalWorker

JUDGE = """
import json, os, sys, threading, time
marker = sys.argv[0] + ".died"
for line in sys.stdin:
    job = json.loads(line)
    say = lambda **reply: (sys.stdout.write(json.dumps({"id": job["id"], **reply}) + "\\n"), sys.stdout.flush())
    if job["job"] == "echo":
        say(event={"half": True})
        say(result={"text": job["text"], "pid": os.getpid(), "device": job["device"]})
    elif job["job"] == "wait":
        for _ in range(2):
            say(event={"waiting": "for another judge"})
        say(result={})
    elif job["job"] == "fail":
        say(error={"error": "ToolMissing", "what": "no g++"})
    elif job["job"] == "nonsense":
        sys.stdout.write("hello\\n"); sys.stdout.flush()
    elif job["job"] == "die":
        os._exit(9)
    elif job["job"] == "hang":
        import time
        time.sleep(1000)
    elif job["job"] == "be killed":
        os.kill(os.getpid(), 9)
    elif job["job"] == "crash":
        os.kill(os.getpid(), 11)
    elif job["job"] == "lose the device":
        lost = open(marker, "a+"); lost.write(f"{os.getpid()} "); lost.seek(0)
        if len(lost.read().split()) <= job["times"]:
            say(error={"error": "DeviceLost", "what": "The device is gone.", "got": "Xid 79"})
        else:
            say(result={"pid": os.getpid()})
        lost.close()
    elif job["job"] == "stand by":
        with open(marker + ".by", "a") as file:
            file.write(f"{os.getpid()} ")
    elif job["job"] == "lose beside":
        def lose(say=say):
            while not os.path.exists(marker + ".by") or str(os.getpid()) not in open(marker + ".by").read().split():
                time.sleep(0.01)
            say(error={"error": "DeviceLost", "what": "The device is gone.", "got": "Xid 79"})
        threading.Thread(target=lose, daemon=True).start()
    elif job["job"] == "die once":
        if not os.path.exists(marker):
            open(marker, "w").close()
            os._exit(9)
        say(result={"survived": True, "outcome": {"is": "Timed", "conditions": ["quiet"]}})
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[LocalWorker]:
    """A worker over a scripted judge."""
    script = tmp_path / "judge.py"
    script.write_text(JUDGE)
    command = (sys.executable, str(script))
    with LocalWorker("cpu", tmp_path / "state", tmp_path / "cache", command=command) as made:
        yield made


def test_result_and_events_come_back(worker: LocalWorker) -> None:
    """Events go to the listener, the result to the caller, and the device is filled in."""
    events: list[dict[str, object]] = []
    result = worker.run({"job": "echo", "text": "a"}, events.append)
    assert ("a", "cpu") == (result["text"], result["device"])
    assert [{"half": True}] == events


def test_many_jobs_share_one_judge(worker: LocalWorker) -> None:
    """Every future gets its own answer, all from one process."""
    futures = [worker.submit({"job": "echo", "text": str(n)}) for n in range(20)]
    results = [future.result(30) for future in futures]
    assert [str(n) for n in range(20)] == [result["text"] for result in results]
    assert 1 == len({result["pid"] for result in results})


def test_errors_keep_their_class(worker: LocalWorker) -> None:
    """What the judge answers as an error is raised as one."""
    with pytest.raises(ToolMissing, match="no g"):
        worker.run({"job": "fail"})


def test_a_reference_that_ends_the_process_is_named_for_it(worker: LocalWorker) -> None:
    """A judge exits by nothing but what it runs: no defect of ours, nor of the machine. Killed, it may be either."""
    with pytest.raises(ReferenceFails, match="reference of x ends the process(?s:.*)exit status 9"):
        worker.run({"job": "die", "task": {"name": "x"}})
    with pytest.raises(JudgeFailed, match="twice"):
        worker.run({"job": "be killed", "task": {"name": "x"}})


def test_a_judge_that_dies_is_restarted_and_the_job_repeated(worker: LocalWorker) -> None:
    """One death costs nothing but time, and is told: to the listener, and beside what was timed after it."""
    events: list[dict[str, object]] = []
    result = worker.run({"job": "die once"}, events.append)
    assert result["survived"]
    assert [{"restarted": "exit status 9"}] == events
    assert ["quiet", "judged by a second judge, the first ended: exit status 9"] == result["outcome"]["conditions"]
    assert "restarted" not in worker.run({"job": "die once"})


def test_a_fault_that_may_pass_is_tried_again_in_a_fresh_judge(worker: LocalWorker, tmp_path: Path) -> None:
    """A context that is beyond use cannot be mended where it is; twice, each time in another process, is reported."""
    first = worker.run({"job": "echo", "text": ""})["pid"]
    assert first != worker.run({"job": "lose the device", "times": 1})["pid"]
    (tmp_path / "judge.py.died").unlink()
    with pytest.raises(DeviceLost, match="Xid 79; the same again in a fresh process"):
        worker.run({"job": "lose the device", "times": 2})
    met = (tmp_path / "judge.py.died").read_text().split()
    assert 2 == len(met) == len(set(met))
    assert worker.run({"job": "lose the device", "times": 2})["pid"] not in map(int, met)


def test_a_job_beside_one_that_met_a_fault_reports_that_fault(worker: LocalWorker) -> None:
    """The judge is ended for it both times: a full disk read as a judge that the system had killed for its memory."""
    beside = worker.submit({"job": "stand by"})
    with pytest.raises(DeviceLost):
        worker.run({"job": "lose beside"})
    with pytest.raises(DeviceLost, match="Xid 79"):
        beside.result(timeout=60)


@pytest.mark.parametrize("job", ["die", "nonsense"])
def test_a_judge_that_fails_twice_is_no_verdict(worker: LocalWorker, job: str) -> None:
    """Two deaths, or nonsense twice, are JudgeFailed; the next job gets a fresh judge."""
    with pytest.raises(JudgeFailed, match="twice"):
        worker.run({"job": job})
    assert "b" == worker.run({"job": "echo", "text": "b"})["text"]


@pytest.mark.parametrize(
    ("job", "words", "advice"),
    [
        ("die", "exit status 9", "reference"),
        ("crash", "killed by SIGSEGV", "reference"),
        ("be killed", "killed by SIGKILL", "memory"),
    ],
)
def test_a_judge_that_died_says_how(worker: LocalWorker, job: str, words: str, advice: str) -> None:
    """A reference that crashes takes the judge along and leaves no log: the signal is all there is to tell."""
    with pytest.raises(JudgeFailed) as caught:
        worker.run({"job": job})
    assert (words, True) == (caught.value.got, advice in caught.value.what_next)


def test_a_killed_judge_is_replaced(worker: LocalWorker) -> None:
    """kill -9 between jobs."""
    first = worker.run({"job": "echo", "text": ""})["pid"]
    assert worker._judge is not None
    worker._judge.child.kill()
    assert first != worker.run({"job": "echo", "text": ""})["pid"]


def test_abandoned_jobs_end_at_once_and_the_next_one_is_served(worker: LocalWorker) -> None:
    """An interrupt does not wait for what the judge is computing; the judge is not tried twice for it either."""
    assert worker.run({"job": "echo", "text": ""})
    running = worker.submit({"job": "hang"})
    while not running.running():
        pass
    worker.abandon()
    with pytest.raises(JudgeFailed, match="given up"):
        running.result(timeout=30)
    assert "b" == worker.run({"job": "echo", "text": "b"})["text"]
    assert "c" == worker.submit({"job": "echo", "text": "c"}).result(timeout=30)["text"]


def test_an_interrupted_worker_passes_the_interrupt_on(worker: LocalWorker) -> None:
    """To whoever waits for a job in another thread, and to whoever asks for one later."""
    assert worker.run({"job": "echo", "text": ""})
    running = worker.submit({"job": "hang"})
    while not running.running():
        pass
    worker.interrupt()
    with pytest.raises(KeyboardInterrupt):
        running.result(timeout=30)
    with pytest.raises(KeyboardInterrupt):
        worker.run({"job": "echo", "text": "b"})


def test_a_closed_worker_says_so(tmp_path: Path) -> None:
    """After close, jobs fail at once; closing twice is harmless."""
    worker = LocalWorker("cpu", tmp_path, tmp_path)
    worker.close()
    worker.close()
    with pytest.raises(JudgeFailed, match="closed"):
        worker.run({"job": "echo"})


def test_that_a_job_waits_for_the_device_is_heard_once_by_whoever_runs_the_verb(
    worker: LocalWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever job it is, and apart from the job's own events; judges take turns all the time."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    services = Services("cpu", worker=worker, host=FakeHost({}))
    heard: list[str] = []
    own: list[dict[str, object]] = []
    services.hear(heard.append)
    for _ in range(2):
        worker.run({"job": "wait"}, own.append)
    assert (["for another judge"], []) == (heard, own)
    services.hear(silent)
    worker.run({"job": "wait"})
    assert 1 == len(heard)
