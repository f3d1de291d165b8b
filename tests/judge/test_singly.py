# SPDX-License-Identifier: Apache-2.0
"""Gains that only windows of many calls show."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.judge import load, race, singly
from kernelwright.judge.buffers import CallPlan
from kernelwright.judge.program import Program
from kernelwright.judge.spot_checks import Mismatch, SpotChecks, Suspect
from kernelwright.trial import CaseResult


def test_a_gain_that_single_calls_have_too_counts() -> None:
    """4 us a call gained many at a time, and 3 alone: nothing is put back on."""
    assert (0.0, 0.0) == singly.vanished_us([3.0, 2.5, 3.5] * 3, [10.0, 11.0, 9.0], [6.0, 6.5, 5.5])


def test_a_gain_that_is_gone_alone_is_put_back_on() -> None:
    """200 us a call gained many at a time and 2 alone: 198 are the window's; a loss alone counts as none gained."""
    assert (198.0, 199.0) == singly.vanished_us([2.0, 1.0, 50.0] * 3, [240.0], [40.0])
    assert (200.0, 200.0) == singly.vanished_us([-30.0], [240.0], [40.0])


def test_of_a_gain_that_is_half_gone_a_part_counts() -> None:
    """All of 80 us where single calls have 40; what they have where that is 20 or less; in between it falls. On draws
    of a task's own what is there counts as it is."""
    kept = {one: 80.0 - singly.vanished_us([one], [100.0], [20.0])[0] for one in (40.0, 39.0, 30.0, 20.0, 8.0)}
    assert kept == pytest.approx({40.0: 80.0, 39.0: 77.0, 30.0: 50.0, 20.0: 20.0, 8.0: 8.0})
    assert singly.vanished_us(singly.OwnGains([60.0]), [100.0], [20.0])[0] == pytest.approx(20.0)


def test_a_gain_that_single_calls_leave_open_counts_in_the_worst_reading() -> None:
    """Of 8 us many at a time single calls have 5, but by their scatter it may be 1: the median stands, its low end
    has 7 us on it. Three numbers say nothing about their scatter."""
    single = [-40.0, 1.0, 1.0, 1.0, 5.0, 5.0, 9.0, 30.0, 60.0]
    assert (0.0, 7.0) == singly.vanished_us(single, [10.0], [2.0])
    assert (0.0, 8.0) == singly.vanished_us([5.0, 5.0, 5.0], [10.0], [2.0])


def test_in_a_crowd_a_gain_of_microseconds_stays_open() -> None:
    """And one of a tenth of a millisecond does not."""
    small, large = [7.0, 8.0, 9.0] * 5, [180.0, 190.0, 200.0] * 5
    assert (0.0, 0.0) == singly.vanished_us(small, [10.0], [2.0])
    assert (0.0, 8.0) == singly.vanished_us(small, [10.0], [2.0], crowded=True)
    assert (0.0, 0.0) == singly.vanished_us(large, [400.0], [200.0], crowded=True)
    assert "are open" in singly.words(0.0, 8.0)[0] and singly.words(0.0, 0.0) == []


def test_slower_programs_and_those_never_asked_pay_nothing() -> None:
    """There is no gain to look for."""
    assert (0.0, 0.0) == singly.vanished_us([-5.0], [10.0], [20.0])
    assert (0.0, 0.0) == singly.vanished_us([], [10.0], [5.0])
    assert singly.claimed([10.0], [5.0])
    assert not singly.claimed([10.0], [9.8])


def test_a_thread_that_runs_through_the_rests_is_restless() -> None:
    """Four calls of 20 us and as many rests: 80 us of work, some waiting without sleep, and all of it."""
    calls, rest = [20.0] * 4, 4 * singly.GAP_US
    assert not singly.restless({"1": 500.0}, {"1": 580.0, "2": 90.0}, calls)
    assert not singly.restless({"1": 500.0}, {"1": 580.0, "2": 80.0 + 0.3 * rest}, calls)
    assert singly.restless({"1": 500.0}, {"1": 580.0 + 0.9 * rest}, calls)
    assert singly.restless({"1": 500.0}, {"1": 580.0, "7": 0.9 * rest}, calls)


def test_work_of_the_first_thread_between_calls_is_counted() -> None:
    """Four calls of 20 us: what it ran beyond them, and nothing where it waited in them."""
    calls = [20.0] * 4
    assert singly.between_us("1", {"1": 500.0}, {"1": 560.0, "2": 900.0}, calls) == 0.0
    assert singly.between_us("1", {"1": 500.0}, {"1": 980.0}, calls) == 100.0
    assert singly.between_us("1", {}, {}, calls) == 0.0


def test_a_gain_that_is_work_between_calls_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 us a call for 100, and 80 more in the rests, where eager has 10."""
    taken, ran = {1: 100.0, 2: 30.0}, {1: 0.0, 2: 0.0}

    def series(racer: Any, values: list, *, grad: bool) -> list[float]:
        ran[racer.program.pid] += {1: 110.0, 2: 110.0}[racer.program.pid] * len(values)
        return [taken[racer.program.pid]] * len(values)

    monkeypatch.setattr(singly, "series", series)
    monkeypatch.setattr(load, "ran_us", lambda pid: {str(pid): ran[pid]})
    monkeypatch.setattr(race, "blamed", lambda name, last: contextlib.nullcontext())
    monkeypatch.setattr(singly.measure, "clock", itertools.count(0, 10**9).__next__)
    racers = [SimpleNamespace(name=name, program=SimpleNamespace(pid=pid)) for name, pid in (("eager", 1), ("mine", 2))]
    nothing = SimpleNamespace(random_outputs=False, look=lambda *_: None, conclude=lambda: None)
    contest: Any = SimpleNamespace(
        racers=racers, plan=SimpleNamespace(sets=12), dice=random.Random(1), checks=nothing, draw=list, state=None,
        grad=False,
    )  # fmt: skip
    assert set(singly.gains_us(contest, 70.0)) == {0.0}


def test_series_are_clear_where_their_median_surely_lies_on_one_side() -> None:
    """Few, or some on either side of what is asked, are not."""
    assert not singly.clear([], 1.0) and not singly.clear([5.0, 5.0], 1.0)
    assert singly.clear([5.0] * 9, 1.0) and singly.clear([0.0] * 9, 1.0)
    mixed = [0.0, 2.0] * 10
    assert not singly.clear(mixed, 1.0) and singly.clear(mixed, 3.0)
    assert singly.clear([0.0] * 5 + [2.0] * 25, 1.0) and not singly.clear([0.0] * 11 + [2.0] * 14, 1.0)


class Sets:
    """Call sets of one program: two inputs, and the doubles of them or nearly."""

    def __init__(self, wrong: float = 0.0) -> None:
        self.wrong = wrong
        self.inputs = [[torch.zeros(64)] for _ in range(2)]
        self.outputs = [[torch.zeros(64)] for _ in range(2)]

    def answers(self, call: int) -> list[torch.Tensor]:
        """What a call is compared on."""
        return self.outputs[call]


@pytest.mark.parametrize("wrong", [0.0, 3e-8])
def test_single_calls_are_compared_in_full_by_lot(monkeypatch: pytest.MonkeyPatch, wrong: float) -> None:
    """One too little wrong for eager to tell ends the race; a baseline that has no single calls is not compared."""
    compared: list[bool] = []

    def check(leaves: list, state: object, outputs: list, inputs: list) -> CaseResult:
        compared.append(torch.equal(outputs[0], leaves[0].double() * 2))
        return CaseResult(name="main", required=True, passed=compared[-1], detail="", error_ratio=0.0, calls=1)

    def series(racer: Any, values: list, *, grad: bool) -> list[float]:
        for call, leaves in enumerate(values):
            racer.buffers.inputs[call][0].copy_(leaves[0])
            racer.buffers.outputs[call][0].copy_(leaves[0] * 2 * (1 + racer.buffers.wrong))
        return [1.0] * len(values)

    everyone = [Sets(), Sets(wrong=1.0), Sets(wrong)]
    for sets in everyone:
        sets.outputs = [[out.double() for out in outs] for outs in sets.outputs]
        sets.inputs = [[leaf.double() for leaf in leaves] for leaves in sets.inputs]
    suspects = [Suspect(sets, check, sets is everyone[-1]) for sets in everyone]  # type: ignore[arg-type]
    racers = [
        SimpleNamespace(name=name, program=SimpleNamespace(pid=0), buffers=sets, suspect=suspect)
        for name, sets, suspect in zip(("eager", "compile", "candidate"), everyone, suspects, strict=True)
    ]
    checks = SpotChecks(
        suspects=suspects, budget=2, thorough=True, random_outputs=False, mutates=frozenset(),
        dice=random.Random(4), tolerated=[1e-7, 1e-6, 1e-6],
    )  # fmt: skip
    monkeypatch.setattr(singly, "series", series)
    monkeypatch.setattr(load, "ran_us", lambda pid: {})
    monkeypatch.setattr(race, "blamed", lambda name, last: contextlib.nullcontext())
    monkeypatch.setattr(singly.measure, "clock", itertools.count(0, 10**9).__next__)
    contest: Any = SimpleNamespace(
        racers=racers, plan=SimpleNamespace(sets=2), draw=lambda: [torch.randn(64).double()],
        dice=random.Random(6), grad=False, checks=checks, state=None,
    )  # fmt: skip
    if wrong:
        with pytest.raises(Mismatch):
            singly.gains_us(contest, 1.0)
    else:
        assert [0.0] * singly.SERIES[0] == singly.gains_us(contest, 1.0)
        assert [True, True] == compared and [] == suspects[1].checks


LATER = """
import sys, time
runner = sys.modules["kernelwright.judge.runner"]
def window(self, body):
    number, grad, order = runner.wires.parse_go(body)
    send = runner.wires.send
    send(self.channel, runner.wires.mark(runner.wires.DONE, number))
    runner.wires.receive(self.channel)
    send(self.channel, runner.wires.delivered(number, 1.0, []))
    time.sleep(2e-2)
    self.buffers.outputs[order[0]][0].fill_(3.0)
runner.Runner.window = window
"""


@pytest.mark.parametrize("head", ["", LATER])
def test_an_answer_of_a_single_call_is_there_when_it_says_so(
    program: Callable[..., Program], plan: Callable[..., CallPlan], head: str
) -> None:
    """The rest before the next call is as long as most calls: who works in it has no answers. It works for long after
    it said so, for a judge on a busy machine may look late."""
    made = program("return torch.full_like(x, 3.0)", head=head)
    buffers = made.bind(plan((1 << 12,), sets=6))
    racer: Any = SimpleNamespace(program=made, buffers=buffers)
    singly.series(racer, [[torch.zeros(1 << 12)] for _ in range(6)], grad=False)
    there = [bool((buffers.outputs[call][0] == 3.0).all()) for call in range(6)]
    assert all(there) if not head else sum(there) <= 1
