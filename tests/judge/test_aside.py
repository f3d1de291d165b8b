# SPDX-License-Identifier: Apache-2.0
"""Half of the other cases in a fork of the judge: the same checks, the same verdicts, whatever becomes of the fork."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_tasks import task

from kernelwright.candidate import Candidate
from kernelwright.judge import aside, lanes
from kernelwright.judge.aside import Found
from kernelwright.judge.bench import Bench
from kernelwright.judge.by_chance import MOST, ByChance
from kernelwright.judge.checks import Wrong
from kernelwright.judge.child import Zygote
from kernelwright.judge.correctness import Correctness
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.programs import Programs
from kernelwright.sandbox.forked import Fork
from kernelwright.sandbox.lease import Lease, try_lock
from kernelwright.task import Case, Contract
from kernelwright.trial import CaseResult

RELAYED = (Wrong, ChildFailure)
PROGRAM = (
    "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {}\n        return x * 2\n"
)
CASES = tuple(Case(name=f"rows{rows}", axes=(("rows", rows),), timed=rows == 64) for rows in (64, 2, 3, 5, 9))
Make = Callable[..., Correctness]


@pytest.fixture
def checks(zygote: Zygote, tmp_path: Path) -> Make:
    """checks(line, how): those of a program with that line before it answers, on five sizes. ``how`` forks."""
    plain = task("x * 2", "[torch.randn(rows, 8)]", cases=CASES)
    text = plain.reference.replace("def get_inputs():", "def get_inputs(rows=64):")
    bench = Bench(dataclasses.replace(plain, reference=text), "cpu")
    tmp_path.chmod(0o755)

    def make(line: str, how: Callable[[Any], Any] | None = None) -> Correctness:
        (tmp_path / "new.py").write_text(PROGRAM.format(line))
        programs = Programs(1, tmp_path / "cache")
        programs._zygotes = {False: zygote}

        def begin(work: Any) -> Fork[Found]:
            return programs.forked(lambda: work(contextlib.nullcontext), RELAYED)

        one = Correctness(
            bench=bench,
            entry="new.py::ModelNew",
            start=lambda: programs.fork("cpu", tmp_path, 20.0, None),
            shared=contextlib.nullcontext,
            seed=5,
            aside=begin if how is None else how,
        )
        one.points = one.bench.points(5)
        return one

    return make


def names(one: Correctness) -> set[str]:
    """Of all results."""
    assert all(result.passed for result in one.results)
    return {result.name for result in one.results}


def test_both_halves_are_checked_and_what_was_found_out_is_kept(checks: Make) -> None:
    beside, threads = checks("pass"), torch.get_num_threads()
    covered = beside._other_cases()
    assert beside.beside is None and torch.get_num_threads() == threads
    assert {name.split(":")[0] for name in names(beside)} >= {"rows2", "rows3", "rows5", "rows9"}
    assert all(point.known and point.checker.oracle for point in beside.points[1:])
    alone = checks("pass", lambda work: None)
    assert alone._other_cases() == covered
    assert names(beside) == names(alone) and len(beside.results) == len(alone.results)


def test_the_fork_has_no_programs_of_the_judge(checks: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager is asked what looks at a state cost, on the smallest case. Asked from the fork, it ran for 271 ms in which
    the judge had it stopped, and every candidate was refused for that."""

    def each(self: Correctness, points: Any, ends: Any) -> set[Any]:
        return {(point.case.name, len(self.bench.entrants)) for point in points}

    monkeypatch.setattr(Correctness, "_each_by_itself", each)
    one = checks("pass")
    one.bench.entrants = {"eager": object()}  # type: ignore[dict-item]
    covered = one._other_cases()
    smallest = min(one.points[1:], key=lambda point: point.instance.work)
    assert {0, 1} == {count for _, count in covered} and (smallest.case.name, 1) in covered
    assert {point.case.name for point in one.points[1:]} == {name for name, _ in covered}
    assert one.bench.entrants
    one.bench.entrants = {}


@pytest.mark.parametrize("rows", [2, 3, 5, 9])
def test_a_size_that_is_answered_wrongly_is_found_in_either(checks: Make, rows: int) -> None:
    """Rows of one size alone."""
    with pytest.raises(Wrong) as caught:
        checks(f"if len(x) == {rows}: return x * 3")._other_cases()
    assert caught.value.outcome.stage == "verify" and f"rows{rows}" in caught.value.outcome.reason


def test_a_fork_that_dies_leaves_its_half_to_the_judge(checks: Make) -> None:
    alone = checks("pass", lambda work: None)
    died = checks("pass", lambda work: Fork(lambda: os._exit(1), RELAYED))
    assert died._other_cases() == alone._other_cases() and names(died) == names(alone)
    with pytest.raises(Wrong):
        checks("if len(x) == 5: return x * 3", lambda work: Fork(lambda: os._exit(1), RELAYED))._other_cases()


def test_what_passes_by_chance_is_counted_over_both(checks: Make) -> None:
    """As many as one proof may have, and not as many in each half."""
    one = checks("pass")
    near = CaseResult(name="near", required=True, passed=True, detail="by little", error_ratio=2.2, calls=1)
    there = ByChance(1.0, seen=MOST, worst=2.2)
    found = Found(set(), [near], [], there, aside.known(one.points))
    aside.adopted(one.points, found, ByChance(1.0))
    with pytest.raises(Wrong, match="verify"):
        aside.adopted(one.points, found, ByChance(1.0, seen=1, worst=2.1))


def test_it_computes_in_one_thread(zygote: Zygote, tmp_path: Path) -> None:
    lanes.each(len, ["ab"] * 40)
    programs = Programs(2, tmp_path)
    programs._zygotes = {False: zygote}
    found = programs.forked(lambda: (torch.get_num_threads(), lanes.hands(), lanes.each(len, ["ab"] * 40)), RELAYED)
    assert found.result() == (1, 1, [2] * 40)


def test_a_share_of_the_judge_ends_while_the_fork_lives(tmp_path: Path) -> None:
    """Who wants the device alone waits for the fork's own shares, and not until it ends."""
    lease, (ready, begin), (told, tell) = Lease("cpu", tmp_path), os.pipe(), os.pipe()

    def work() -> bool:
        other = lease.forked()
        os.write(tell, b"x")
        os.read(ready, 1)
        with other.shared():
            return True

    with lease.shared():
        fork = Fork(work, RELAYED)
    os.read(told, 1)
    handle = os.open(lease.path, os.O_RDONLY)
    assert try_lock(handle, fcntl.LOCK_EX)
    os.close(handle)
    os.write(begin, b"x")
    assert fork.result() is True
    for end in (ready, begin, told, tell):
        os.close(end)


def test_random_results_and_few_cases_stay_together(checks: Make) -> None:
    points = checks("pass").points
    assert aside.pays(points[1:], Contract()) and not aside.pays(points[1:], Contract(random=True))
    assert not aside.pays(points[1:2], Contract())


def test_where_no_core_idles_nothing_is_forked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nor on a device, nor for who compiles himself."""
    begun: list[bool] = []
    monkeypatch.setattr(Programs, "forked", lambda self, work, relayed: begun.append(True))
    programs, lease = Programs(2, tmp_path), Lease("cpu", tmp_path)
    sources = (("x.py", "import torch\nclass X(torch.nn.Module): pass\n"),)
    plain = Candidate(task="t", language="torch", entry="x.py::X", sources=sources, proposer="test")
    jit = Candidate(task="t", language="triton", entry="x.py::X", sources=sources, proposer="test")
    for idle, candidate, device in ((0.3, plain, "cpu"), (1.0, jit, "cpu"), (1.0, plain, "cuda:0")):
        monkeypatch.setattr(aside.load, "idle_share", lambda idle=idle: idle)
        assert aside.begun(programs, candidate, device, lease, lambda shared: pytest.fail("begun")) is None
    assert not begun
    monkeypatch.setattr(aside.load, "idle_share", lambda: 1.0)
    aside.begun(programs, plain, "cpu", lease, lambda shared: pytest.fail("begun"))
    assert begun == [True]
