# SPDX-License-Identifier: Apache-2.0
"""Gains on draws of a task's own, where timed ones are put together of a few."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import measure, singly, unseen
from kernelwright.judge.inputs import Variant


class Lanes:
    """Eager's calls take 300 us in windows of twelve, the candidate's 100."""

    def __init__(self, name: str, call_us: float) -> None:
        self.lane = measure.Lane(name, SimpleNamespace())  # type: ignore[arg-type]
        self.lane.calls_us, self.lane.empties_us = [12 * call_us] * 8, [0.0] * 8
        self.lane.strains = [SimpleNamespace(waited_us=0.0, faults=0)] * 8  # type: ignore[list-item]
        self.lane.deliveries_us = self.lane.idles_us = self.lane.selves_us = [0.0] * 8
        self.name = name


def gained(
    monkeypatch: pytest.MonkeyPatch, own_us: float, known: list[float], count: int = 27, mine_us: float = 100.0,
    eager_us: float = 330.0, made_us: float = 130.0,
) -> list[float]:  # fmt: skip
    """What counts where single calls on draws of the task's own take the candidate so long, and eager 330 us as all."""
    drawn: list[bool] = []

    def series(racer: Any, values: Sequence[list], *, grad: bool) -> list[float]:
        drawn.extend(value == ["own"] for value in values)
        mine = racer.name == "candidate"
        times = {"own": (eager_us, own_us), "made": (330.0, made_us)}
        return [times[value[0]][mine] for value in values]

    monkeypatch.setattr(singly, "series", series)
    monkeypatch.setattr(unseen, "blamed", lambda name, last: contextlib.nullcontext())
    checks = SimpleNamespace(of_baselines=True, random_outputs=False, look=lambda *_: None, conclude=lambda: None)
    contest: Any = SimpleNamespace(
        racers=[Lanes("eager", 300.0), Lanes("candidate", mine_us)], plan=SimpleNamespace(sets=12, least=5),
        draw=lambda: ["made"], unseen=[lambda: ["own"]] * count, dice=random.Random(1), checks=checks, state=None,
        grad=False, device=torch.device("cpu"),
    )  # fmt: skip
    found = unseen.gains_us(contest, known)
    assert sum(drawn) == (2 * count if found is not known or own_us else 0)
    return found


def test_a_gain_on_what_nobody_put_together_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 us a call, there and on all other calls: what was known before counts."""
    known = [200.0] * 9
    assert gained(monkeypatch, 130.0, known) is known
    assert gained(monkeypatch, 150.0, known) is known, "nine tenths of it"
    assert gained(monkeypatch, 210.0, known) == [120.0] * 27, "1.7 times as fast, not three times"


@pytest.mark.parametrize("count", [6, 27])
def test_who_knows_what_calls_are_made_of_gains_nothing(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """On draws of the task's own it is slower than eager, or gains a tenth: that counts, of few of them too."""
    assert gained(monkeypatch, 350.0, [200.0] * 9, count) == [-20.0] * count
    assert gained(monkeypatch, 310.0, [], count) == [20.0] * count, "calls timed one to a window"
    assert singly.vanished_us([-20.0] * count, [300.0], [100.0])[0] == 200.0


def test_gains_count_in_proportion_to_what_eager_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager's 330 us, of which 30 hand a call over, are 85 on draws of the task's own: 38 us gained there are 207 of
    what is timed, and 5 are 27."""
    known = [200.0] * 9
    assert gained(monkeypatch, 47.0, known, eager_us=85.0) is known
    assert gained(monkeypatch, 80.0, known, eager_us=85.0) == pytest.approx([5.0 * 300 / 55] * 27)


def test_a_speedup_that_is_less_there_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timed calls are 15 times as fast, calls on the task's own draws 2.5 times: of 300 us 180 are gained, not 280."""
    known, own = [280.0] * 9, 30.0 + 55 / 2.5
    found = gained(monkeypatch, own, known, mine_us=20.0, eager_us=85.0, made_us=50.0)
    assert found == pytest.approx([180.0] * 27) and found is not known
    assert singly.vanished_us(found, [300.0], [20.0])[0] == pytest.approx(100.0)
    assert singly.vanished_us(list(found), [300.0], [20.0])[0] == 0.0, "single calls may have two thirds of it"


def test_what_single_calls_never_had_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows gain 200 us and single calls 10: own draws that gain as little say nothing more."""
    known = [10.0] * 9
    assert gained(monkeypatch, 322.0, known, made_us=320.0) is known


def test_nobody_looks_where_there_is_no_gain_or_all_draws_are_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such calls cost a second."""
    known: list[float] = []
    assert gained(monkeypatch, 0.0, known, mine_us=299.0) is known
    assert gained(monkeypatch, 0.0, known, count=0) is known


@pytest.mark.parametrize(("seconds", "count"), [(1e-6, 0), (0.002, 27), (0.1, 10), (3.0, 6)])
def test_draws_are_as_many_as_a_second_pays_for(seconds: float, count: int) -> None:
    """None where timed ones are real; six at the least."""
    made = instance("x * 2", "[torch.randn(4)]")
    bench: Any = SimpleNamespace(
        draw_seconds=seconds, device=torch.device("cpu"),
        timed=SimpleNamespace(instance=made, as_given=Variant(name="as given", required=True)),
    )  # fmt: skip
    plan: Any = SimpleNamespace(draw_seconds=1e-3)
    draws = unseen.draws(bench, plan, 5)
    assert count == len(draws)
    assert count == len({tuple(draw()[0].tolist()) for draw in draws})
