# SPDX-License-Identifier: Apache-2.0
"""cli_demo.py: every task of a folder in one table, some at a time, with doubles in place of the judges."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from test_cli import TASK, Bench, made

import kernelwright
from kernelwright import cli_demo
from kernelwright.errors import BudgetTooSmall
from kernelwright.optimize import services
from kernelwright.testing import FakeWorker

bench = pytest.fixture(made, name="bench")


def test_demo_makes_a_row_for_every_task_also_for_one_that_fails(bench: Bench) -> None:
    """One broken example does not hide the others."""
    (bench.folder / "broken.py").write_text("def f(:\n")
    result = bench.run("demo", bench.folder, "--json", "--budget", "5s")
    rows = {row["task"]: row["result"] for row in json.loads(result.stdout)}
    assert "faster" == rows["add"]
    assert "TaskDoesNotImport" in rows["broken"]


@pytest.mark.parametrize(("asked", "tried"), [((), ["5s", "2m"]), (("--budget", "5s"), ["5s"])])
def test_demo_takes_the_time_that_a_proof_needs_unless_somebody_says(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: tuple[str, ...], tried: list[str]
) -> None:
    """A slow machine shows every example, in the folder that it was to be in."""
    budgets: list[str] = []
    optimize = kernelwright.optimize

    def slow(*args: Any, budget: str, out: Path, **more: Any) -> kernelwright.Result:
        assert not out.exists()
        budgets.append(budget)
        if budget == "5s":
            out.mkdir()
            raise BudgetTooSmall("The budget cannot hold a proof.", got="0 s", expected="2 min")
        return optimize(*args, budget="5s", out=out, **more)

    monkeypatch.setattr(kernelwright, "optimize", slow)
    rows = json.loads(bench.run("demo", bench.folder, "--json", "--out", tmp_path, *asked).stdout)
    assert tried == budgets
    assert [("faster" if len(tried) == 2 else "failed")] == [row["status"] for row in rows]


def test_a_demo_of_a_budget_that_is_no_time_is_refused_at_once(bench: Bench) -> None:
    """Not in each of its rows."""
    assert 2 == bench.run("demo", bench.folder, "--json", "--budget", "never").exit_code


@pytest.mark.parametrize(
    ("cores", "gib", "lanes"), [(1, 24, 1), (2, 24, 1), (8, 24, 2), (8, 8, 1), (8, 2, 1), (16, 128, 3)]
)
def test_a_demo_has_a_lane_for_every_four_cores_with_memory(
    cores: int, gib: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least one, at most three."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=gib << 30))
    assert lanes == cli_demo.usual()


@pytest.mark.parametrize("lanes", [1, 3])
def test_demo_takes_each_task_once_whatever_the_lanes(bench: Bench, lanes: int) -> None:
    """The rows come in the order of the tasks."""
    for number in range(5):
        (bench.folder / f"more{number}.py").write_text(TASK)
    result = bench.run("demo", bench.folder, "--json", "--lanes", lanes)
    assert 0 == result.exit_code
    rows = [(row["task"], row["status"]) for row in json.loads(result.stdout)]
    assert [("add", "faster"), *((f"more{number}", "faster") for number in range(5))] == rows


def test_tasks_that_need_the_whole_device_come_last_in_a_demo_and_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three races of 1 GiB a call on one GPU had room for a window of one call each, and read half the speed."""
    going: list[str] = []
    beside: dict[str, int] = {}

    class Shared(FakeWorker):
        def run(self, job: dict[str, Any], on_event: Any = None) -> dict[str, Any]:
            name = job["task"]["name"] if "task" in job else ""
            if job["job"] == "judge":
                going.append(name)
                time.sleep(0.05)
                beside[name] = max(beside.get(name, 0), len(set(going)))
                answer = super().run(job, on_event)
                going.remove(name)
                return answer
            told = {"race_share": 0.5 if "large" in name else 0.3} if job["job"] == "describe" else {}
            return super().run(job, on_event) | told

    monkeypatch.setattr(services, "LocalWorker", lambda *a, **k: Shared(lambda c: 25.0))
    for name in ("large1", "large2", "small1", "small2", "small3"):
        (bench.folder / f"{name}.py").write_text(TASK)
    bench.task.unlink()
    result = bench.run("demo", bench.folder, "--device", "cuda:0", "--lanes", "3")
    assert 0 == result.exit_code, result.output
    begun = [line.split()[1] for line in result.output.splitlines() if line.startswith("[")]
    assert {"large1", "large2"} == set(begun[3:])
    assert {"large1": 1, "large2": 1} == {name: beside[name] for name in ("large1", "large2")}
    assert 5 == result.output.count("faster")


def test_a_demo_is_interrupted_in_all_its_lanes(tmp_path: Path) -> None:
    """A real process, a real signal: two lanes wait for their judges; what was found stays, and no third task begins.

    That a lane hears of it is the worker's doing: whoever waits for a job gets the interrupt.
    """
    code = f"""
import sys, threading
import kernelwright
from kernelwright import cli_demo
from kernelwright.errors import BudgetTooSmall
from kernelwright.optimize import services
from kernelwright.testing import FakeHost, FakeWorker
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_cli import ONE
class Waiting(FakeWorker):
    def __init__(self):
        super().__init__(lambda c: 25.0, after=self.wait)
        self.told = threading.Event()
    def wait(self, count):
        print("judging", flush=True)
        self.told.wait(60)
        raise KeyboardInterrupt
    def interrupt(self):
        self.told.set()
services.LocalWorker = lambda *a, **k: Waiting()
services.ProposerHost = lambda *a, **k: FakeHost({{"templates": [ONE]}})
from kernelwright.cli import app
app(["demo", {str(tmp_path / "tasks")!r}, "--out", {str(tmp_path / "out")!r}, "--lanes", "2"])
"""
    (tmp_path / "tasks").mkdir()
    for name in ("one", "three", "two"):
        (tmp_path / "tasks" / f"{name}.py").write_text(TASK)
    env = {**os.environ, "KERNELWRIGHT_HOME": str(tmp_path / "home")}
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
    assert child.stdout is not None
    waiting = 0
    while waiting < 2:
        waiting += child.stdout.readline().count("judging")  # both may stand in one line
        assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    rest = child.stdout.read()
    assert 130 == child.wait(30), rest
    assert ["interrupted", "interrupted"] == [line.split()[1] for line in rest.splitlines() if "interrupted" in line]
    for name in ("one", "three"):
        assert "interrupted" == json.loads((tmp_path / "out" / name / "run.json").read_text())["status"]
    assert not (tmp_path / "out" / "two").exists()


def test_an_interrupt_before_the_last_lane_has_begun_ends_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came between two lanes and was heard by none: each judged on until its own judge gave up, and went on."""
    told, judging = threading.Event(), threading.Event()

    class Waiting(FakeWorker):
        def __init__(self) -> None:
            super().__init__(lambda c: 25.0, after=self.wait)

        def wait(self, count: int) -> None:
            judging.set()
            if not told.wait(60):
                raise AssertionError("nobody said that it is over")
            raise KeyboardInterrupt

        def interrupt(self) -> None:
            told.set()

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *arguments: Any, **more: Any) -> Any:
            if judging.is_set():
                raise KeyboardInterrupt
            future = super().submit(*arguments, **more)
            judging.wait(60)
            return future

    monkeypatch.setattr(services, "LocalWorker", lambda *a, **k: Waiting())
    monkeypatch.setattr(cli_demo, "ThreadPoolExecutor", Interrupted)
    (bench.folder / "more.py").write_text(TASK)
    result = bench.run("demo", bench.folder, "--lanes", "2")
    assert 130 == result.exit_code, result.output
    assert told.is_set()
    assert 1 == result.output.count(" interrupted"), result.output
