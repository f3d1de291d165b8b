# SPDX-License-Identifier: Apache-2.0
"""A judge killed at any moment leaves no verdict, never a partial one: not on its output, not in a ledger."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import JudgeFailed
from kernelwright.ledger import open_ledger
from kernelwright.optimize.judging import Identity, Judging
from kernelwright.task import Contract, Task
from kernelwright.trial import Rejected, Timed
from kernelwright.workers import LocalWorker

TASK = Task(
    name="doubled",
    form="kernelbench",
    reference="""
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
def get_inputs():
    return [torch.randn(32, 64)]
def get_init_inputs():
    return []
""",
    contract=Contract(scales=(1.0,), layouts=("contiguous",)),
)
TIMES = 20
LONGEST_S = 6.0
"""A judge needs about three seconds to start and one for a verdict: kills fall on all of it, and some after it."""


def candidate(number: int) -> Candidate:
    """One of many that differ in a comment; every third is wrong."""
    factor = 3 if number % 3 == 0 else 2
    text = (
        f"# {number}\nimport torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        f"        return torch.relu(x) * {factor}\n"
    )
    return Candidate(
        task=TASK.digest(), language="torch", entry="new.py::ModelNew", sources=(("new.py", text),), proposer="test"
    )


@pytest.mark.slow
def test_a_judge_killed_twice_under_a_job_leaves_nothing_in_the_ledger(tmp_path: Path) -> None:
    """Whenever the kills fall: what is in the ledger was answered whole, and what was not answered is not in it."""
    dice, answered, failed = random.Random(11), set(), 0
    identity = Identity(machine="m", versions=())
    with contextlib.closing(open_ledger(tmp_path / "ledger.sqlite")) as ledger:
        for number in range(TIMES):
            with LocalWorker("cpu", tmp_path / "state", tmp_path / "cache") as worker:
                judging = Judging(TASK, "cpu", worker, ledger, 0, identity)
                killer = threading.Thread(target=kill_every_judge, args=(worker, dice.uniform(0.0, LONGEST_S)))
                killer.start()
                try:
                    outcome, _ = judging.outcome(candidate(number), "coarse", "s")
                    assert isinstance(outcome, Rejected if number % 3 == 0 else Timed)
                    answered.add(candidate(number).digest())
                except JudgeFailed:
                    failed += 1
                killer.join()
    with contextlib.closing(open_ledger(tmp_path / "ledger.sqlite")) as ledger:
        for number in range(TIMES):
            known = ledger.known(candidate(number).digest(), "coarse", "m")
            assert (known is not None) == (candidate(number).digest() in answered)
            if known is not None:
                outcome = ledger.trial(known).outcome
                assert isinstance(outcome, Rejected if number % 3 == 0 else Timed)
    check = sqlite3.connect(tmp_path / "ledger.sqlite").execute("PRAGMA integrity_check").fetchone()
    assert ("ok",) == check
    assert failed > 0, "no kill fell on a job: the test shows nothing"


def kill_every_judge(worker: LocalWorker, after: float) -> None:
    """SIGKILL the worker's judge ``after`` seconds from now, and the one started in its place as late in its life."""
    killed = set()
    for _ in range(2):
        time.sleep(after)
        judge = worker._judge
        if judge is None or not judge.alive or judge.child.pid in killed:
            return
        killed.add(judge.child.pid)
        os.kill(judge.child.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_single_judge_killed_says_nothing_or_everything(tmp_path: Path) -> None:
    """Its output is empty or one whole object; killed, it does not exit as if it had judged; its programs die too."""
    job = {"task": wire.to_data(TASK), "candidate": wire.to_data(candidate(1)), "level": "coarse"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", "kernelwright.judge", str(tmp_path / "job.json"), "--cache", str(tmp_path / "c")]
    dice, silent = random.Random(7), 0
    for _ in range(6):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            said, _ = process.communicate(timeout=dice.uniform(0.1, LONGEST_S))
        except subprocess.TimeoutExpired:
            below = descendants(process.pid)
            process.kill()
            said, _ = process.communicate()
            assert -signal.SIGKILL == process.returncode
            deadline = time.monotonic() + 10.0
            while any(Path(f"/proc/{pid}").exists() for pid in below):
                assert time.monotonic() < deadline, "a program outlived its judge"
                time.sleep(0.05)
        silent += not said
        assert not said or "outcome" in json.loads(said)
    assert silent > 0


def descendants(pid: int) -> list[int]:
    """Processes below one, as far as the kernel lists them."""
    found, waiting = [], [pid]
    while waiting:
        for file in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                below = [int(child) for child in file.read_text().split()]
            except OSError:
                continue
            found += below
            waiting += below
    return found
