# SPDX-License-Identifier: Apache-2.0
"""Warm calls, measured when asked: what one takes after others, of every program in the race."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.judge import checks, race
from kernelwright.judge.also import warm
from kernelwright.judge.leash import ChildFailure
from kernelwright.task import Contract, Task
from kernelwright.trial import Outcome, Timed
from kernelwright.workers import LocalWorker


class Fake:
    """A program whose windows take 500 us, the first of each round 90 us more, and every call ``each_us``."""

    def __init__(self, each_us: float, answer: float = 2.0) -> None:
        self.each_us, self.answer, self.orders = each_us, answer, []  # type: ignore[var-annotated]
        plan = SimpleNamespace(outputs=[SimpleNamespace(nbytes=lambda: 4 << 20)])
        self.buffers: Any = SimpleNamespace(inputs=[[torch.zeros(4)]], outputs=[[torch.zeros(4)]], plan=plan)
        self.buffers.answers = lambda index: self.buffers.outputs[index]

    def window(self, order: list[int], *, grad: bool) -> Any:
        """One window."""
        first = 90.0 if len(self.orders) % 2 == 0 else 0.0  # after inputs were written
        self.orders.append(order)
        self.buffers.outputs[0][0].copy_(self.buffers.inputs[0][0] * self.answer)
        return SimpleNamespace(call_us=500.0 + first + len(order) * self.each_us)


def contest(device: str = "cpu", **fakes: Fake) -> Any:
    """A race of these programs; eager's calls took 100 us in it."""

    def check(leaves: Any, state: Any, outputs: Any, inputs: Any) -> Any:
        right = torch.equal(outputs[0], leaves[0] * 2.0)
        return SimpleNamespace(passed=right, name="main", detail="" if right else "wrong")

    racers = [
        SimpleNamespace(
            name=name,
            program=fake,
            buffers=fake.buffers,
            suspect=SimpleNamespace(check=check),
            lane=SimpleNamespace(calls_us=[400.0], overhead_us=lambda calls: 500.0),
        )
        for name, fake in fakes.items()
    ]
    return SimpleNamespace(
        racers=racers,
        plan=SimpleNamespace(sets=4),
        device=torch.device(device),
        dice=random.Random(3),
        grad=False,
        state=None,
        draw=lambda: [torch.randn(4)],
        load=lambda racer: None,
        fill=lambda racer, values: racer.buffers.inputs[0][0].copy_(values[0][0]),
    )


def test_a_warm_call_is_what_it_takes_after_others() -> None:
    """Neither the window's own cost nor a dear first call is in it; the speedup is over the fastest of the others."""
    eager, compiled, mine = Fake(60.0), Fake(20.0), Fake(10.0)
    found = dict(warm.taken(contest(eager=eager, compile=compiled, candidate=mine)))
    medians = tuple(found[f"warm.{name}.median_us"] for name in ("eager", "compile", "candidate"))
    assert ("60", "20", "10") == medians
    assert {"2"} == {found[f"warm.candidate.speedup{end}"] for end in ("", "_low", "_high")}
    assert {(0,) * 16} == {tuple(order) for order in eager.orders}  # results of 4 MiB, on one set
    on_device = Fake(60.0)
    warm.taken(contest("cuda", eager=on_device, candidate=Fake(10.0)))
    assert {(0,) * 4} == {tuple(order) for order in on_device.orders}  # no more than the sets of the race


def test_slow_calls_have_no_warm_ones() -> None:
    """Seven rounds of calls that take 0.9 s each took half as long as the proof."""
    slow = contest(eager=Fake(60.0), candidate=Fake(10.0))
    slow.racers[0].lane.calls_us = [4 * 40_000.0]
    assert [] == warm.taken(slow)


def test_a_wrong_last_answer_and_a_dead_baseline_are_told() -> None:
    """A number for a program that is wrong there would be worth nothing."""
    with pytest.raises(checks.Wrong, match="wrong"):
        warm.taken(contest(eager=Fake(60.0), candidate=Fake(10.0, answer=2.5)))
    dead = Fake(20.0)
    dead.window = _dies  # type: ignore[method-assign]
    with pytest.raises(race.Lost, match="compile"):
        warm.taken(contest(eager=Fake(60.0), compile=dead, candidate=Fake(10.0)))


def _dies(order: list[int], *, grad: bool) -> Any:
    raise ChildFailure("time", "killed by SIGSEGV")


TASK = Task(
    name="counts",
    form="kernelbench",
    reference="""
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(32, 8)]
def get_init_inputs():
    return []
""",
    contract=Contract(scales=(1.0,), layouts=("contiguous",), training=True),
)


def test_a_proof_has_them_where_they_are_asked_for(tmp_path: Any) -> None:
    """Of a module that keeps statistics of what it saw, too: many calls move them."""
    source = TASK.reference.split("def get_inputs")[0].replace("class Model", "class ModelNew")
    candidate = Candidate(
        task=TASK.digest(), language="torch", entry="new.py::ModelNew", sources=(("new.py", source),), proposer="test"
    )
    job: dict[str, Any] = {"job": "judge", "task": wire.to_data(TASK), "candidate": wire.to_data(candidate)}
    with LocalWorker("cpu", tmp_path / "state", tmp_path / "cache") as worker:
        reply = worker.run({**job, "level": "precise", "baselines": ["eager"], "also": ["warm"]})
    outcome = wire.from_data(Outcome, reply["outcome"])  # type: ignore[arg-type,var-annotated]  # a union is no class
    assert isinstance(outcome, Timed), outcome
    assert {"warm.eager.median_us", "warm.candidate.median_us"} <= dict(outcome.profile).keys()
