# SPDX-License-Identifier: Apache-2.0
"""Calls handed over one by one: who has the others' inputs, and which gains are left. On host memory, without a GPU."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kernelwright.judge import handover, measure, one_by_one, race, singly
from kernelwright.judge.buffers import Buffers, CallPlan, TensorSpec
from kernelwright.judge.handover import Layout, answers, sums
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.program import Program
from kernelwright.judge.veil import Words

ON_HOST = """
import sys
import torch
from kernelwright.judge import handover
runner = sys.modules["kernelwright.judge.runner"]
class Host(handover.Handover):
    def __init__(self, arena, device):
        self._arena = arena
    def _prepare(self):
        self._flags = self._arena.tensor[:128].view(torch.int32).numpy()
    def before(self, index):
        while self._flags[handover.RELEASED // 4] <= index:
            pass
        for words, key in self._hidden:
            words[index].bitwise_xor_(key[index])
    def after(self, index):
        for words, place in self._added:
            torch.sum(words[index], dim=0, dtype=torch.int64, out=place[index])
        self._flags[handover.ANSWERED // 4] = index + 1
runner.Handover = Host
"""
"""The stream is the program's own thread."""
AHEAD = (
    ON_HOST
    + """
def window(self, body):
    made = [self.module(*self.calls[index][0]) for index in range(len(self.calls))]
    self.module = lambda x, left=iter(made): next(left)
    usual(self, body)
usual, runner.Runner.window = runner.Runner.window, window
"""
)
"""All calls are computed when the first one may begin."""
PEEKS = """
def before(self, index):
    import time
    while self._flags[handover.RELEASED // 4] <= index:
        if any(bool(key[index].any()) for _, key in self._hidden):
            time.sleep(0.05)
            if self._flags[handover.RELEASED // 4] <= index:
                raise ValueError('the keys are there already')
    usual_before(self, index)
usual_before, Host.before = Host.before, before
"""
SAYS_SO = (
    ON_HOST
    + """
def after(self, index):
    if index == self._calls - 1:
        for words, place in self._added:
            torch.sum(words[: self._calls], dim=1, dtype=torch.int64, out=place)
    self._flags[handover.ANSWERED // 4] = index + 1
Host.after = after
"""
)
"""What an answer adds up to is told when the last one is there, which is too late."""


def _fill(racer: Any, values: list[list[torch.Tensor]]) -> None:
    for call, leaves in enumerate(values):
        race.fill(racer.buffers, call, leaves)


def _racer(made: Program, buffers: Buffers) -> tuple[Any, Any]:
    racer = SimpleNamespace(name="candidate", program=made, buffers=buffers)
    racers = [SimpleNamespace(), racer]
    contest = SimpleNamespace(load=lambda racer: None, fill=_fill, walk=lambda: None, grad=False, racers=racers)
    return contest, racer


@pytest.mark.parametrize(("head", "right"), [(ON_HOST, True), (AHEAD, False)])
def test_who_computes_calls_ahead_has_not_their_inputs(
    program: Callable[..., Program], plan: Callable[..., CallPlan], head: str, right: bool
) -> None:
    made = program("return x * 2.0", head=head)
    buffers = made.bind(plan((1 << 12,), sets=6))
    values = [[torch.randn(1 << 12)] for _ in range(6)]
    for _ in range(2):  # the memory is handed over once
        periods = one_by_one._series(*_racer(made, buffers), values, 50.0)
        assert len(periods) == 6 and min(periods) > 0
        seen = [torch.equal(buffers.outputs[call][0], leaves[0] * 2.0) for call, leaves in enumerate(values)]
        assert seen == [right] * 6
        if not right:
            break


def test_keys_are_not_there_before_a_call_is_handed_over(
    program: Callable[..., Program], plan: Callable[..., CallPlan]
) -> None:
    """Who read them while calls rest computed them then, for 6 times eager's speed where the same code had 1.0."""
    made = program("return x * 2.0", head=ON_HOST + PEEKS)
    buffers = made.bind(plan((1 << 12,), sets=3))
    values = [[torch.randn(1 << 12)] for _ in range(3)]
    assert 3 == len(one_by_one._series(*_racer(made, buffers), values, 2e5))


def test_an_answer_is_there_when_it_is_said_to_be(
    program: Callable[..., Program], plan: Callable[..., CallPlan]
) -> None:
    made = program("return x * 2.0", head=SAYS_SO)
    buffers = made.bind(plan((1 << 12,), sets=4))
    with pytest.raises(ChildFailure, match="before its answer was there"):
        one_by_one._series(*_racer(made, buffers), [[torch.randn(1 << 12)] for _ in range(4)], 0.0)


def test_who_cannot_be_handed_its_calls_though_eager_can_is_refused(
    program: Callable[..., Program], plan: Callable[..., CallPlan]
) -> None:
    """Eager itself is taken for the machine's fault, and nothing is known, as is said."""
    unable = ON_HOST + "def arm(self, *_, **__):\n    raise RuntimeError('no driver')\nHost.arm = arm\n"
    made = program("return x * 2.0", head=unable)
    buffers = made.bind(plan((64,), sets=2))
    contest, racer = _racer(made, buffers)
    values = [[torch.randn(64)] for _ in range(2)]
    contest.racers[0] = racer
    with pytest.raises(one_by_one.NotHanded, match="no driver"):
        one_by_one._series(contest, racer, values, 0.0)
    contest.racers[0] = None
    with pytest.raises(ChildFailure, match="one by one"):
        one_by_one._series(contest, racer, values, 0.0)


def test_a_call_that_raises_ends_the_series_with_its_words(
    program: Callable[..., Program], plan: Callable[..., CallPlan]
) -> None:
    made = program("raise ValueError('not today')", head=ON_HOST)
    buffers = made.bind(plan((64,), sets=4))
    with pytest.raises(ChildFailure, match="not today"):
        one_by_one._series(*_racer(made, buffers), [[torch.randn(64)] for _ in range(4)], 0.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_the_sums_tell_one_changed_element(plan: Callable[..., CallPlan], dtype: str) -> None:
    spec = TensorSpec.contiguous((33, 7), dtype)
    skeleton = plan((1,)).results
    made = Buffers.create(
        CallPlan(arguments=plan((1,)).arguments, inputs=(spec,), results=skeleton, outputs=(spec,), sets=3), "cpu"
    )
    for outputs in made.outputs:
        outputs[0].copy_(torch.arange(231).reshape(33, 7) % 2)
    before = sums(made, 3)
    made.outputs[1][0][30, 2] = 1 - int(made.outputs[1][0][30, 2])
    assert (sums(made, 3) != before).tolist() == [[False], [True], [False]]


def test_sums_and_keys_lie_apart(plan: Callable[..., CallPlan]) -> None:
    made = Buffers.create(plan((5000,), sets=5), "cpu")
    words = Words(made, (), 77)
    layout = Layout(words, 4, len(answers(made)))
    memory = torch.zeros(layout.size, dtype=torch.uint8)
    layout.sums(memory).fill_(-1)
    for key in layout.keys(memory):
        assert int(key.count_nonzero()) == 0 and key.shape == (4, next(iter(words)).shape[1])
        key.fill_(-1)
    assert int((memory == 255).sum()) == 8 * 4 + sum(key.nbytes for key in layout.keys(memory))
    assert int(memory[:128].count_nonzero()) == 0


def _gained(
    monkeypatch: pytest.MonkeyPatch, series: Callable[..., list[float]], unseen: Sequence[Callable[[], Any]] = ()
) -> list[float]:
    """What two programs whose series take so long gain, of 60 us that are claimed."""
    monkeypatch.setattr(one_by_one, "_series", series)
    monkeypatch.setattr(race, "blamed", lambda name, last: contextlib.nullcontext())
    checks = SimpleNamespace(of_baselines=True, random_outputs=False, look=lambda *_: None, conclude=lambda: None)
    contest: Any = SimpleNamespace(
        racers=[SimpleNamespace(name="eager"), SimpleNamespace(name="candidate")], plan=SimpleNamespace(sets=90),
        draw=lambda: [], dice=random.Random(1), checks=checks, state=None, unseen=unseen,
    )  # fmt: skip
    return one_by_one._gains(contest, 60.0)


@pytest.mark.parametrize(("own", "expected"), [(55.0, 60.0), (4.0, 4.0)], ids=["as much", "hardly any"])
@pytest.mark.parametrize("count", [16, 96])
def test_a_gain_that_draws_of_the_tasks_own_have_not_is_none(
    monkeypatch: pytest.MonkeyPatch, own: float, expected: float, count: int
) -> None:
    """60 us on what is put together of a few draws: of a program that keeps what it knows of these. The first series
    of eager's on others is disturbed."""
    drawn: list[int] = []

    def series(contest: Any, racer: Any, values: list, rest_us: float | None) -> list[float]:
        gain = own if ["own"] in values else 60.0
        late = 70.0 * (racer.name == "candidate" and ["own"] in values and len(drawn) == len(values))
        return [200.0 + late - gain * (racer.name == "candidate") + i % 3 for i in range(len(values))]

    made = [lambda: drawn.append(0) or ["own"]] * count  # type: ignore[func-returns-value]
    assert [expected] * 2 == pytest.approx(_gained(monkeypatch, series, made))
    assert len(drawn) == (16 if count == 16 else 48 if own > 50 else 96)


@pytest.mark.parametrize(
    ("rested", "waiting", "expected", "kinds"),
    [(60.0, 0.0, 60.0, [24, 12]), (5.0, 58.0, 58.0, [24, 12, 24]), (2.0, -3.0, 2.0, [24, 12, 24])],
    ids=["the device's", "the host's", "neither"],
)
def test_a_gain_is_looked_for_on_the_device_and_then_with_the_host(
    monkeypatch: pytest.MonkeyPatch, rested: float, waiting: float, expected: float, kinds: list[int]
) -> None:
    """Of 60 us that windows of many calls gained; where calls that rest have them nobody looks any further. The judge
    rests 1.5 times as long as a call takes that waits, as the first do, which do not count."""
    asked: list[tuple[float | None, int]] = []

    def series(contest: Any, racer: Any, values: list, rest_us: float | None) -> list[float]:
        asked.append((rest_us, len(values)))
        gain = rested if rest_us else waiting
        return [200.0 - gain * (racer.name == "candidate") + i % 3 for i in range(len(values))]

    gains = _gained(monkeypatch, series)
    assert [expected] * 2 == pytest.approx(gains)
    rest = pytest.approx(1.5 * (201.0 - min(waiting, 0.0)))
    assert [each for each, _ in itertools.groupby(asked)] == [(None if n == 24 else rest, n) for n in kinds]
    lane = measure.Lane("eager", SimpleNamespace(), on_device=True)  # type: ignore[arg-type]
    vanished, doubted = one_by_one.vanished_us(0, [gains], [100.0], [40.0], lane)
    assert doubted == vanished == (pytest.approx(58.0) if expected == 2.0 else 0.0)


def test_a_call_that_waits_is_not_begun_before_it_is_handed_over() -> None:
    """By its host, that is; the other kind is enqueued at once."""
    released, begun = np.zeros(1, np.int32), list[int]()
    calls: Any = handover.Handover.__new__(handover.Handover)
    calls.before, calls._released = lambda index: begun.append(int(released[0])), released
    other = threading.Thread(target=lambda: calls.begin(2))
    other.start()
    for number in (1, 2):
        released[0] = number
        other.join(0.05)
        assert not begun
    released[0] = 3
    other.join()
    calls._released = None
    calls.begin(7)
    assert begun == [3, 3]


def test_series_that_somebody_made_longer_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager's were, by as much as is claimed, but for one in three: two of four series say that nothing is gained."""
    numbers = {"eager": itertools.count(), "candidate": itertools.count()}

    def series(contest: Any, racer: Any, values: list, rest_us: float | None) -> list[float]:
        slow = racer.name == "eager" and next(numbers["eager"]) % 3 > 0
        return [200.0 + 60.0 * slow + i % 3 for i in range(len(values))]

    assert _gained(monkeypatch, series) == [0.0, 0.0]


def test_a_gain_is_not_believed_while_eagers_series_are_all_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first four are; the candidate's are not. Four of eager's have to be alike before they say anything."""
    turn = itertools.count()

    def series(contest: Any, racer: Any, values: list, rest_us: float | None) -> list[float]:
        others = [200.0, 900.0, 500.0, 280.0, 350.0, 800.0, *[200.0] * 99]
        slow = racer.name == "eager" and not rest_us
        return [(others[next(turn)] if slow else 200.0) + (rest_us or 0.0)] * len(values)

    assert _gained(monkeypatch, series) == [0.0, 0.0]


def test_series_that_differ_as_much_either_way_say_that_nothing_is_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is half as fast in some of them, now of one program and now of the other, and 60 of 150 us are claimed:
    what those that took least differ by would be 50 where only one of the two had a fast one."""
    turn, slow = (
        {name: itertools.count() for name in ("eager", "candidate")},
        {"eager": "0110110101011", "candidate": "1" * 13},
    )

    def series(contest: Any, racer: Any, values: list, rest_us: float | None) -> list[float]:
        mode = 0 if rest_us else int(slow[racer.name][next(turn[racer.name])])
        return [100.0 + 50.0 * mode + (rest_us or 0.0)] * len(values)

    gains = _gained(monkeypatch, series)
    assert gains[0] <= 0.0 and gains[1] == 0.0


def test_a_few_long_series_say_what_their_calls_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each takes all the time there is."""
    monkeypatch.setattr(one_by_one, "SECONDS", 0.0)
    asked: list[float | None] = []

    def series(contest: Any, racer: Any, values: list, rest_us: float | None) -> list[float]:
        asked.append(rest_us)
        return [9000.0 - 60.0 * (racer.name == "candidate")] * len(values)

    assert _gained(monkeypatch, series) == [60.0, 60.0]
    assert len(asked) == 4  # the first of each is not warm


def test_differences_of_one_time_say_what_is_gained_where_no_series_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is as fast as it likes, for both."""
    turn, speed = itertools.count(), [1.0, 1.9, 2.6, 3.3, 1.5, 4.0, 5.1, 6.5, 9.0] * 9

    def series(contest: Any, racer: Any, values: list, rest_us: float | None) -> list[float]:
        at = next(turn) // 2
        return [(100.0 - 45.0 * (racer.name == "candidate")) * speed[at]] * len(values)

    gains = _gained(monkeypatch, series)
    assert 2 + 2 * 8 == next(turn) and 45.0 < gains[0] < gains[1]


@pytest.mark.parametrize(("eager", "mine", "left"), [
    ([120.4, 119.6, 125.2, 132.6], [114.8, 124.2, 112.7, 121.8], [-4.6, 7.7]),  # windows as one, beside six judges
    ([117.4, 118.1, 117.5, 117.7], [108.9, 108.2, 108.5, 108.6], [8.5, 9.05]),
    ([99.0] * 9, [90.0, 91.0, 89.0, 92.0, 89.0, 90.0, 60.0, 95.0, 89.0], [7.0, 9.0]),
])  # fmt: skip
def test_what_differs_at_one_time_is_gained(eager: list[float], mine: list[float], left: list[float]) -> None:
    """No more than the two that took least differ by."""
    assert one_by_one._said(eager, mine) == pytest.approx(left)


def test_what_is_not_clear_is_open() -> None:
    """Some of the calls say that it gains 60 us and some that it gains nothing: no lower end of a ratio has it."""
    lane = measure.Lane("eager", SimpleNamespace(), on_device=True)  # type: ignore[arg-type]
    assert (0.0, 60.0) == one_by_one.vanished_us(0, [[0.0, 60.0]], [100.0], [40.0], lane)
    assert (0.0, 45.0) == one_by_one.vanished_us(0, [[15.0, 60.0], [-9.0, 20.0]], [100.0], [40.0], lane)
    assert (48.0, 60.0) == one_by_one.vanished_us(0, [[-9.0, 12.0]], [100.0], [40.0], lane)
    assert (0.0, 0.0) == one_by_one.vanished_us(0, [[-1.0, 60.0], [31.0, 32.0]], [100.0], [40.0], lane)
    assert (0.0, 0.0) == one_by_one.vanished_us(0, [[]], [100.0], [40.0], lane)
    lane.on_device = False
    mine = one_by_one.vanished_us(1, [[60.0] * 9, [2.0] * 9], [100.0], [40.0], lane)
    assert singly.vanished_us([2.0] * 9, [100.0], [40.0]) == mine == (58.0, 58.0)


def test_what_one_process_gained_counts_for_the_other_and_what_none_did_for_neither() -> None:
    lane = measure.Lane("eager", SimpleNamespace(), on_device=True)  # type: ignore[arg-type]
    for number in range(2):
        assert (0.0, 0.0) == one_by_one.vanished_us(number, [[55.0, 55.0], [1.0, 1.0]], [100.0], [40.0], lane)
        assert (58.0, 59.0) == one_by_one.vanished_us(number, [[1.0, 2.0], [0.5, 0.5]], [100.0], [40.0], lane)
        assert (59.0, 59.0) == one_by_one.vanished_us(number, [[], [1.0, 1.0]], [100.0], [40.0], lane)
        half = one_by_one.vanished_us(number, [[-3.0, 20.0]], [100.0], [40.0], lane)
        assert half == pytest.approx((30.0, 60.0))


def test_a_second_process_is_asked_where_the_first_one_left_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(singly, "claim_us", lambda lanes, plan: 60.0)
    monkeypatch.setattr(one_by_one, "_gains", lambda contest, claim_us: [claim_us])
    here = SimpleNamespace(lane=None, program=SimpleNamespace(pid=os.getpid()))
    contest: Any = SimpleNamespace(racers=[here], plan=None, device=torch.device("cuda:0"))
    said: list[str] = []
    for known, asked in (([], True), ([[]], True), ([[2.0, 3.0]], True), ([[50.0, 52.0]], False)):
        assert ([60.0] if asked else []) == one_by_one.gains_us(contest, known, said.append)
    assert said == []

    def unable(contest: Any, claim_us: float) -> list[float]:
        raise one_by_one.NotHanded("no driver")

    monkeypatch.setattr(one_by_one, "_gains", unable)
    assert [] == one_by_one.gains_us(contest, [], said.append)
    assert said == ["whether calls one by one are faster too was not looked at: no driver"]


def test_eager_and_a_candidate_are_asked_in_both_ways_and_compared(
    program: Callable[..., Program], plan: Callable[..., CallPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes, of which neither gains a second."""
    monkeypatch.setattr(one_by_one, "SECONDS", 60.0)  # beside other load few series come in one second
    racers = []
    for name in ("eager", "candidate"):
        made = program("return x * 2.0", head=ON_HOST)
        racers.append(SimpleNamespace(name=name, program=made, buffers=made.bind(plan((64,), sets=6))))
    looked: list[bool] = []

    def look(values: list, state: object) -> None:
        for racer in racers:
            looked.extend(torch.equal(racer.buffers.outputs[i][0], given[0] * 2.0) for i, given in enumerate(values))

    checks = SimpleNamespace(of_baselines=True, random_outputs=False, look=look, conclude=lambda: None)
    contest: Any = SimpleNamespace(
        racers=racers, fill=_fill, plan=SimpleNamespace(sets=6), draw=lambda: [torch.randn(64)], dice=random.Random(1),
        grad=False, checks=checks, state=None, load=lambda racer: None, walk=lambda: None,
    )  # fmt: skip
    gains = one_by_one._gains(contest, 1e6)
    assert len(gains) == 2 and all(looked) and len(looked) >= 2 * 4 * 2 * 6
