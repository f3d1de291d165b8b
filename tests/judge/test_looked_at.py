# SPDX-License-Identifier: Apache-2.0
"""judge/session.py: which tasks are looked at again, with how much memory, and how often inputs are drawn for them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plain_tasks import task

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import BudgetTooSmall, DeviceLost, KernelwrightError, NotEnoughMemory, ReferenceFails
from kernelwright.judge import session as sessions
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance
from kernelwright.judge.requests import Refused
from kernelwright.judge.session import Session
from kernelwright.judge.stock import COUNT
from kernelwright.sandbox.lease import Leases

JOB = {"task": wire.to_data(task("x * 2", "[torch.rand(4)]")), "device": "cpu"}


def looked_at(monkeypatch: pytest.MonkeyPatch, *faults: KernelwrightError) -> tuple[Session, list[Any]]:
    """A session whose looks at a reference fail so, one after the other, then succeed; and those looks."""
    looks: list[Any] = []

    class Bench:
        def __init__(self, made: object, device: str, **more: object) -> None:
            looks.append(made)
            if len(looks) <= len(faults):
                raise faults[len(looks) - 1]

    monkeypatch.setattr(sessions, "Bench", Bench)
    made = object.__new__(Session)
    made.device, made._refused, made._benches = "cpu", None, OrderedDict()
    made.state = Path("nowhere")
    made.programs = SimpleNamespace(allow=lambda imports: None)
    made._lease = Leases(contextlib.nullcontext).of
    return made, looks


@pytest.mark.parametrize("fault", [NotEnoughMemory, BudgetTooSmall, DeviceLost])
def test_what_one_job_lacked_is_not_held_against_the_next(
    monkeypatch: pytest.MonkeyPatch, fault: type[KernelwrightError]
) -> None:
    """Memory, time or a device may be there by then. Who asked before it was known is spared a second look."""
    session, looks = looked_at(monkeypatch, fault("missing"))
    before = time.monotonic()
    with pytest.raises(fault):
        session._bench({**JOB, "job": "describe", "left": 1.0})
    with pytest.raises(fault):
        session._bench({**JOB, "job": "admit", "asked": before})
    assert 1 == len(looks)
    assert session._bench({**JOB, "job": "judge", "asked": time.monotonic()}) is not None and 2 == len(looks)


@pytest.mark.parametrize("fault", [torch.OutOfMemoryError("full"), NotEnoughMemory("full")])
def test_a_judgement_without_room_is_made_again(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    """With what was readied for another try, whose verdict counts."""
    session, _ = looked_at(monkeypatch)
    ended, readied = [fault], []

    class Judgement:
        def __init__(self, **given: object) -> None: ...

        def run(self) -> str:
            if ended:
                raise ended.pop()
            return "verdict"

    monkeypatch.setattr(sessions, "Judgement", Judgement)
    monkeypatch.setattr(sessions, "by_own_names", lambda outcome, folder: outcome)
    bench = SimpleNamespace(device=torch.device("cpu"), task=SimpleNamespace(name="any"))
    eager = SimpleNamespace(program=1, ready=lambda: None, required=lambda task: None)
    for name, found in {"_bench": bench, "_bound": (None, ""), "_tested": SimpleNamespace(cases=())}.items():
        monkeypatch.setattr(session, name, lambda *_, found=found: found)
    session.threads, session.cache, session.programs = 1, Path(), SimpleNamespace(waiting={})  # type: ignore[assignment]
    session.entrants = SimpleNamespace(  # type: ignore[assignment]
        of=lambda *_: eager,
        blame_disk=lambda _: None,
        blame_device=lambda *_: None,
        again=lambda bench, failure, first: readied.append(failure),
    )
    candidate: Any = SimpleNamespace(entry="x.py::M", language="cpp", sources=())
    assert session._judge({}, "smoke", candidate, Path()) == "verdict" and readied == [fault]


def test_a_task_that_cannot_pass_is_looked_at_once_until_it_is_described_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its reference will fail the next judgement too."""
    session, looks = looked_at(monkeypatch, ReferenceFails("always"))
    for job in ("admit", "judge", "prepare"):
        with pytest.raises(ReferenceFails):
            session._bench({**JOB, "job": job, "asked": time.monotonic()})
    assert 1 == len(looks)
    assert session._bench({**JOB, "job": "describe"}) is not None and 2 == len(looks)


def test_another_task_is_not_refused_for_it() -> None:
    """Nor the same one on another device."""
    refused = Refused(("a", "cpu"), ReferenceFails("always"), 1.0)
    assert [True, False, False] == [refused.answers(key, {}) for key in (("a", "cpu"), ("b", "cpu"), ("a", "cuda:0"))]


SECOND = """
import torch
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from kernelwright import wire
from kernelwright.judge import pages, room, session
from kernelwright.sandbox.lease import Lease
from kernelwright.task import Task

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:")) >> 10

class Bench:
    def __init__(self, *given, **more):
        print(held - resident())

pages.keep_freed_pages()
room.available_bytes = lambda: {free}
session.Bench = Bench
made = object.__new__(session.Session)
made.device, made._refused, made._benches = "cpu", None, OrderedDict()
made.state = Path("nowhere")
made.programs = SimpleNamespace(allow=lambda imports: None)
made._lease = Lease
first = [torch.ones(1 << 20) for _ in range(64)]
above = torch.ones(4)  # what is small and above keeps the heap from shrinking
first.clear()
held = resident()
task = Task(name="second", form="kernelbench", reference="", cases=())
made._bench(dict(task=wire.to_data(task), device="cpu", job="describe"))
"""


@pytest.mark.parametrize(("free", "given"), [(900 << 20, True), (1 << 34, False)])
def test_what_a_first_task_left_is_given_back_before_a_second_one_is_weighed(free: int, given: bool) -> None:
    """256 MiB of tensors, kept when they were freed, where the second task could be refused for want of them."""
    text = SECOND.format(free=free)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=120)
    assert (int(done.stdout) >= 240) is given


COPY = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * 2
"""


def test_coarse_candidates_share_what_is_dear_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smoke test's and the race's inputs are made of the same draws, for every candidate."""
    threads = torch.get_num_threads()
    session = Session("cpu", tmp_path / "state", tmp_path / "cache")
    made = session._bench({**JOB, "job": "judge"})
    made.draw_seconds = 1.0  # dearer than any level allows
    drawn: list[int] = []
    real = Instance.draw

    def draw(self: Instance, variant: Variant, seed: int) -> list[torch.Tensor]:
        drawn.append(seed)
        return real(self, variant, seed)

    monkeypatch.setattr(Instance, "draw", draw)
    sources = (("new.py", COPY),)
    candidate = Candidate(
        task=made.task.digest(), language="torch", entry="new.py::ModelNew", sources=sources, proposer="test"
    )
    try:
        for seed in (1000, 2000):
            job = {**JOB, "job": "judge", "candidate": wire.to_data(candidate), "level": "coarse", "seed": seed}
            outcome = session.judge(job, lambda event: None)["outcome"]
            assert "speedup" in str(outcome)
    finally:
        session.close()
        torch.set_num_threads(threads)
    # Not the first of each: the bench's own is also what its baselines are warmed with.
    stocks = [seed + number for seed in (made.seed, 1000, 2000) for number in range(1, COUNT)]
    assert stocks[: COUNT - 1] == [seed for seed in drawn if seed in stocks]
