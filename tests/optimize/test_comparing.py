# SPDX-License-Identifier: Apache-2.0
"""Recipes compared at one budget against a scripted server and a made-up judge: equal limits, resumed, added up."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_modelled import ANSWERS, HOST, TASK, asked, program, verdict

from kernelwright import cli_compare
from kernelwright.errors import BadCommand, ModelError, ReferenceFails
from kernelwright.llm import speaker
from kernelwright.model_server import ScriptedServer
from kernelwright.optimize import Options, Services, comparing, learning
from kernelwright.optimize.comparing import compare_recipes
from kernelwright.optimize.guide import Guide
from kernelwright.task import Task
from kernelwright.testing import FakeHost, FakeWorker

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")

OTHER = Task(name="other", form="kernelbench", reference=TASK.reference + "# another\n")
NAMES = ("fsr", "contrast", "autokernel")


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Caches of the test's own, no waiting between attempts."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(speaker, "FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(speaker, "LONGEST_WAIT_S", 0.0)
    yield tmp_path


def compared(out: Path, guide: Guide, *, tasks: tuple[Task, ...] = (TASK, OTHER), worker: FakeWorker | None = None,
             names: tuple[str, ...] = NAMES, seconds: float = 60.0, seeds: int = 1):  # fmt: skip
    """One comparison against doubles."""
    services = Services("cpu", worker=worker or FakeWorker(verdict), host=FakeHost(HOST))
    options = Options(proposers=("none",), budget_seconds=seconds)
    return compare_recipes(tasks, guide, options, out, names=names, services=services, seeds=seeds)


def test_every_recipe_gets_the_same_limit_on_every_task(tmp_path: Path) -> None:
    """Six runs of five candidates each; rows and sums say what each took, and the faster recipe comes first."""
    with ScriptedServer(["ok"], ANSWERS) as server:
        found = compared(tmp_path / "out", asked(server, max_candidates=5, parallel=1))
        assert server.requests == sum(row["requests"] for row in found["rows"])
    assert [5] * 6 == [row["candidates"] for row in found["rows"]]
    assert [("double", name) for name in NAMES] == [(row["task"], row["recipe"]) for row in found["rows"]][:3]
    assert all("candidates" == row["ended"] and 5 == sum(row["died"].values()) for row in found["rows"])
    for one in found["recipes"]:
        mine = [row for row in found["rows"] if row["recipe"] == one["recipe"]]
        speedups = [row["speedup"] or 1.0 for row in mine]
        assert one["mean"] == pytest.approx(math.sqrt(speedups[0] * speedups[1]))
        assert (2, 10, sum(row["tokens"] for row in mine)) == (one["runs"], one["candidates"], one["tokens"])
        assert one["usd"] is None, "the price is not known, so neither is its sum"
    means = [one["mean"] for one in found["recipes"]]
    assert sorted(means, reverse=True) == means
    lines = cli_compare._comparison(found)
    assert sum("unknown" in line for line in lines) == 6 + 3


def test_the_same_call_again_sends_nothing_and_says_the_same(tmp_path: Path) -> None:
    """What is finished is read from its folder; a recipe that is added runs."""
    with ScriptedServer(["ok"], ANSWERS) as server:
        guide = asked(server, max_candidates=4, parallel=1)
        first = compared(tmp_path / "out", guide)
        sent = server.requests
        assert first == compared(tmp_path / "out", guide)
        assert sent == server.requests
        more = compared(tmp_path / "out", guide, names=(*NAMES, "forge"))
        assert (8, True) == (len(more["rows"]), server.requests > sent)


def test_an_interrupted_comparison_goes_on_where_it_was(tmp_path: Path) -> None:
    """Ctrl-C in the second run: it is resumed and the others follow; no answered request is sent twice."""

    def interrupt(count: int) -> None:
        if count == 6:
            raise KeyboardInterrupt

    with ScriptedServer(["ok"], [program(60 - n) for n in range(40)]) as server:
        guide = asked(server, max_candidates=4, parallel=1)
        first = compared(tmp_path / "out", guide, tasks=(TASK,), worker=FakeWorker(verdict, after=interrupt))
        assert first["interrupted"]
        assert ["interrupted", "not run"] == sorted({row["status"] for row in first["rows"]} - {"faster", "not-faster"})
        second = compared(tmp_path / "out", guide, tasks=(TASK,))
        assert (False, [4, 4, 4]) == (second["interrupted"], [row["candidates"] for row in second["rows"]])
        assert server.requests == sum(row["requests"] for row in second["rows"])
        assert 2 == max(row["sessions"] for row in second["rows"])


def test_other_limits_are_no_comparison(tmp_path: Path) -> None:
    """The error names what differs; nothing is sent."""
    with ScriptedServer(["ok"], ANSWERS) as server:
        compared(tmp_path / "out", asked(server, max_candidates=2), tasks=(TASK,))
        sent = server.requests
        with pytest.raises(BadCommand, match="max_candidates 2 then, 3 now"):
            compared(tmp_path / "out", asked(server, max_candidates=3), tasks=(TASK,))
        assert sent == server.requests


def test_all_runs_are_shown_what_was_known_when_the_comparison_began(tmp_path: Path) -> None:
    """What the first run measured is no help to the second: every knowledge file is the first one's copy."""
    with ScriptedServer(["ok"], ANSWERS) as server:
        compared(tmp_path / "out", asked(server, max_candidates=4), tasks=(TASK,))
    files = [tmp_path / "out" / "knowledge.sqlite", *(tmp_path / "out").glob("*/*/knowledge.sqlite")]
    counts = set()
    for path in files:
        with learning.store(path) as known:
            counts.add(len(list(known)))
    assert (4, 1) == (len(files), len(counts))


def test_a_run_that_time_ended_is_marked(tmp_path: Path) -> None:
    """Fewer candidates than the others, and the table says that it was not their number that ended it."""
    with ScriptedServer(["ok"], ANSWERS) as server:
        guide = asked(server, max_candidates=30, parallel=1)
        slow = FakeWorker(verdict, after=lambda count: time.sleep(0.2))
        found = compared(tmp_path / "out", guide, tasks=(TASK,), names=("fsr",), worker=slow, seconds=2.0)
    (row,) = found["rows"]
    assert ("time", 1) == (row["ended"], found["recipes"][0]["short"])
    assert row["candidates"] < 30


def test_a_recipe_that_this_device_cannot_run_is_left_out_with_the_reason(tmp_path: Path) -> None:
    """C++ on a GPU."""
    guide = Guide(llm=("local:x",), base_url="http://127.0.0.1:9/v1")
    cell = comparing.Cell(task=TASK, recipe="parevo", seed=0, path=tmp_path)
    row = comparing._row(cell, guide, Options(device="cuda:0"), {})
    assert "left out" == row["status"]
    assert "cpp do not run on cuda:0" in row["message"]


def test_a_task_at_fault_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    """One admission for all recipes of the bad task."""
    bad = FakeWorker(verdict, admit=ReferenceFails("It fails.", "x", "y"))
    with ScriptedServer(["ok"], ANSWERS) as server:
        found = compared(tmp_path / "out", asked(server, max_candidates=2), tasks=(TASK,), worker=bad)
        assert 0 == server.requests
    assert (["left out"] * 3, 1) == ([row["status"] for row in found["rows"]], bad.jobs.count("admit"))
    assert "It fails" in found["rows"][0]["message"]


def test_no_model_ends_it_at_once(tmp_path: Path) -> None:
    """Not thirteen times over."""
    guide = Guide(llm=("local:x",), base_url="http://127.0.0.1:9/v1", language="torch", parallel=1)
    worker = FakeWorker(verdict)
    with pytest.raises(ModelError, match="give the same command"):
        compared(tmp_path / "out", guide, worker=worker)
    assert 1 == worker.jobs.count("admit")


def test_the_interval_of_a_mean_needs_three_runs() -> None:
    """Of equal speedups it is a point."""
    assert (None, None) == comparing._interval([0.1, 0.2])
    assert comparing._interval([math.log(2.0)] * 3) == (pytest.approx(2.0), pytest.approx(2.0))
    low, high = comparing._interval([0.0, 0.1, 0.4])
    assert low is not None and high is not None and 1.0 <= low < math.exp(1 / 6) < high <= math.exp(0.4)


def test_the_plan_says_what_all_runs_share(tmp_path: Path) -> None:
    """Limits, models, device, time; no key."""
    with ScriptedServer(["ok"], ANSWERS) as server:
        compared(tmp_path / "out", asked(server, max_candidates=2), tasks=(TASK,), names=("fsr",))
    plan = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert (2, "cpu", 60.0, ["none"]) == tuple(
        plan[name] for name in ("max_candidates", "device", "budget_seconds", "proposers")
    )
