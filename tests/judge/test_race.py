# SPDX-License-Identifier: Apache-2.0
"""The order of things in a round on a device: what a program has seen before the window that counts."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.judge import measure, race
from kernelwright.judge.timing_plan import TimingPlan


def test_windows_of_one_call_never_see_the_inputs_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program runs one, on other inputs, which are replaced before the timed window begins."""
    numbers, log = itertools.count(), []
    written = lambda buffers, index, leaves, settle: log.append(("fill", buffers, index, leaves, settle))  # noqa: E731
    monkeypatch.setattr(race, "fill", written)
    monkeypatch.setattr(measure, "run_empty", lambda lane, grad: log.append(("empty", lane)))
    monkeypatch.setattr(measure, "run_single", lambda lane, grad: log.append(("single", lane)))
    monkeypatch.setattr(measure, "run_window", lambda lane, order, grad, keep: log.append(("window", lane)))

    def program(name: str) -> Any:
        return SimpleNamespace(
            window=lambda order, grad: None, set_state=lambda state: None, idle=lambda: log.append(("idle", name)),
            veil=SimpleNamespace(drop=lambda: log.append(("hidden", name))),
        )  # fmt: skip

    racers = [SimpleNamespace(name=name, lane=name, buffers=name, program=program(name)) for name in ("eager", "mine")]
    plan: Any = SimpleNamespace(sets=3)
    nothing: Any = SimpleNamespace(look=lambda *_: None, walk=lambda: None)
    called: list[Any] = []
    contest = race.Race(
        racers=racers, plan=plan, draw=lambda: next(numbers), draw_state=None, state=None, dice=random.Random(1),
        grad=False, checks=nothing, look=lambda window: None, left=lambda values, state: called.extend(values),
        threads=torch.get_num_threads(), device=torch.device("cpu"), warm=frozenset(), clocks=nothing, odd=nothing,
    )  # fmt: skip
    contest._cold, contest._singles, contest._steady, contest._held, contest._odd, contest._asked = (
        nothing,
        True,
        nothing,
        -1,
        frozenset(),
        frozenset({0}),
    )
    contest._round(0)
    for name in ("eager", "mine"):
        mine = [entry for entry in log if entry[1] == name]
        kinds = [entry[0] for entry in mine]
        rest = ["idle"] if name == "mine" else []
        assert ["empty", "fill", "single", *["fill"] * 3, "hidden", "window", *rest] == kinds
        before, after = ({entry[3] for entry in part} for part in (mine[1:2], mine[3:6]))
        assert before.isdisjoint(after)
        assert 3 == len(after)
        assert mine[1][4] and mine[5][4], "a device may still be writing when the window begins"
    assert called[:1] == list(before) and set(called[1:]) == after, "state is what every call since loading it left"


@pytest.mark.parametrize(
    ("device", "order"),
    [
        ("cpu", ["alone", "begin", "run", "conclude", "after", "end of alone"]),
        ("cuda:0", ["shared", "begin", "end of shared", "alone", "run", "kept", "after", "end of alone",
                    "shared", "conclude", "end of shared"]),
    ],
)  # fmt: skip
def test_on_a_device_only_what_is_timed_keeps_other_judges_away(
    monkeypatch: pytest.MonkeyPatch, device: str, order: list[str]
) -> None:
    log: list[str] = []

    @contextlib.contextmanager
    def turn(name: str) -> Iterator[None]:
        log.append(name)
        yield
        log.append(f"end of {name}")

    for part in ("begin", "run", "conclude"):
        monkeypatch.setattr(race.Race, part, lambda self, part=part: log.append(part))
    contest: Any = object.__new__(race.Race)
    contest.device = torch.device(device)
    contest.checks = SimpleNamespace(conclude=lambda: log.append("kept"))
    contest.take_turns(lambda: turn("alone"), lambda: turn("shared"), lambda: log.append("after"))
    assert order == log


class _Odd:
    """Odd turns in every round, of which only the values are known."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def prepare(self, sets: int, draw: Any) -> None:
        self.ready = ["odd"] * sets
        self.log.append(("drawn",))

    def values(self) -> list[Any]:
        return self.ready

    def window(self, program: Any, order: list[int], *, grad: bool) -> Any:
        return program.window(order, grad=grad)

    def look(self, suspect: Any, checks: Any, state: Any) -> None:
        self.log.append(("kept", state))


def test_an_odd_turn_looks_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """New weights before it as before each, two empty windows, and where a timed turn would have stood; the timed one
    follows sometime later in the round, so that its answers are those that are compared."""
    log: list[Any] = []
    numbers = itertools.count()
    monkeypatch.setattr(race, "fill", lambda buffers, index, leaves, settle: None)
    monkeypatch.setattr(measure, "run_empty", lambda lane, grad: log.append((lane, "empty", "empty")))
    monkeypatch.setattr(measure, "run_window", lambda lane, order, grad, keep: log.append((lane, "window")))

    def program(name: str) -> Any:
        def window(order: list[int], grad: bool) -> None:
            log.append((name, "odd window" if order else "empty"))

        return SimpleNamespace(
            window=window, set_state=lambda state: log.append((name, "state", state)), idle=lambda: None,
            veil=SimpleNamespace(drop=lambda: None),
        )  # fmt: skip

    racers = [
        SimpleNamespace(name=n, lane=n, buffers=n, suspect=n, program=program(n)) for n in ("eager", "other", "mine")
    ]
    plan: Any = SimpleNamespace(sets=2)
    nothing: Any = SimpleNamespace(look=lambda *_: None, walk=lambda: None)
    contest = race.Race(
        racers=racers, plan=plan, draw=lambda: 0, draw_state=lambda: next(numbers), state=None, dice=random.Random(1),
        grad=False, checks=nothing, look=lambda window: None, left=None, threads=torch.get_num_threads(),
        device=torch.device("cpu"), warm=frozenset(), clocks=nothing, odd=_Odd(log),
    )  # fmt: skip
    contest._cold, contest._singles, contest._steady, contest._held = nothing, False, nothing, -1
    contest._odd = frozenset(range(1, 60))
    contest._prepare_odd(-1)
    before = []
    for index in range(1, 60):
        log.clear()
        contest._round(index)
        mine = [entry[1:] for entry in log if entry[0] == "mine"]
        states = [entry[1] for entry in mine if entry[0] == "state"]
        kinds = [entry[0] for entry in mine]
        assert ["state", "empty", "empty", "odd window", "state", "empty", "window"] == kinds
        assert len(set(states)) == 2, "weights seen before would tell an odd turn"
        assert ("kept", states[0]) in log
        looked = log.index(("kept", states[0]))
        assert (index < 59) == (("drawn",) == log[looked + 1]), "the next one is drawn in the time of a round's draws"
        before.append(sum(entry[1] == "window" for entry in log[: log.index(("mine", "odd window"))]))
    assert {0, 1, 2} == set(before)


def test_what_the_first_rounds_see_is_drawn_before_the_race_as_far_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of timed windows and odd ones alike, or what comes after an odd turn would take longer, or less long, than what
    comes before a timed one: from the first round on that draws, odd turns do too."""
    for rooms, most, early in ((0, 60, 0), (5, 60, 2), (40, 60, 6), (40, 13, 6), (40, 12, 12), (5, 12, 2)):
        monkeypatch.setattr(race, "ahead_bytes", lambda device, rooms=rooms: rooms * 100)
        log: list[Any] = []
        numbers = itertools.count()
        plan = TimingPlan(
            sets=2, least=6, most=most, seconds=1.0, full_checks=0, draw_seconds=0.0, flush_bytes=0
        )  # fmt: skip
        sizes: Any = SimpleNamespace(plan=SimpleNamespace(inputs=[SimpleNamespace(nbytes=lambda: 50)]))
        mine: Any = SimpleNamespace(name="mine", buffers=sizes, suspect="mine", program=None, lane="mine")
        contest: Any = race.Race(
            racers=[mine], plan=plan, draw=numbers.__next__, draw_state=None, state=None, dice=random.Random(1),
            grad=False, checks=None, look=lambda window: None, left=None, threads=1, device=torch.device("cpu"),
            warm=frozenset(), clocks=None, odd=_Odd(log),
        )  # fmt: skip
        contest._singles, contest._odd = True, frozenset((1, 3, 7))
        contest._prepare_odd(-1)
        contest._draw_ahead()
        assert contest._early == early == len(contest._drawn) and contest.odd.room == rooms * 100
        assert len(log) == 1 + sum(index < early for index in (1, 3)), "one more than the odd turns of these rounds"
        assert [len(other) for _, other in contest._drawn] == [1, 0] * (early // 2)
        assert len({value for part in contest._drawn for value in (*part[0], *part[1])}) == next(numbers)


def test_where_calls_change_the_state_every_window_begins_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one before which it is loaded would be the one after which somebody looks."""
    loads: list[Any] = []
    monkeypatch.setattr(race, "fill", lambda buffers, index, leaves, settle: None)
    monkeypatch.setattr(measure, "run_empty", lambda lane, grad: None)
    monkeypatch.setattr(measure, "run_window", lambda lane, order, grad, keep: None)
    program = SimpleNamespace(
        set_state=loads.append, idle=lambda: None, veil=SimpleNamespace(drop=lambda: None)
    )  # fmt: skip
    racer = SimpleNamespace(name="mine", lane="mine", buffers="mine", program=program)
    nothing: Any = SimpleNamespace(look=lambda *_: None, walk=lambda: None)
    asked: list[Any] = []
    contest = race.Race(
        racers=[racer], plan=SimpleNamespace(sets=1), draw=lambda: 0, draw_state=None, state="first",
        dice=random.Random(1), grad=False, checks=nothing, look=lambda window: None,
        left=lambda values, state: asked.append(state), threads=torch.get_num_threads(), device=torch.device("cpu"),
        warm=frozenset(), clocks=nothing, odd=nothing,
    )  # type: ignore[arg-type]  # fmt: skip
    contest._cold, contest._singles, contest._steady, contest._odd = nothing, False, nothing, frozenset()
    contest._held, contest._asked = 1, frozenset({1, 2})
    monkeypatch.setattr(race.Race, "_hold", lambda *_: None)
    for index in range(3):
        contest._round(index)
    assert (["first"] * 3, ["first"] * 2) == (loads, asked)
