# SPDX-License-Identifier: Apache-2.0
"""Odd windows: every variant's turn comes, in places nobody knows, and a wrong answer there ends the race."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge.bench import Point
from kernelwright.judge.odd_calls import OddCalls
from kernelwright.judge.spot_checks import Mismatch
from kernelwright.judge.stages import Judgement
from kernelwright.judge.variants import AS_GIVEN
from kernelwright.judge.verify import Checker

SETS = 12


def odd(
    forward: str = "torch.relu(x) * 2.0", inputs: str = "[torch.rand(8, 16)]", windows: int = 2, seed: int = 3
) -> OddCalls:
    """The odd windows of a small task."""
    made = instance(forward, inputs)
    point = Point(made.case, made, Checker(made, seed=1), 5, {})
    return OddCalls(point, random.Random(seed), windows)


def answered(calls: OddCalls, answer: Any, sets: int = SETS) -> Any:
    """Run all windows with ``answer`` as the program; what its suspect recorded."""
    suspect: Any = SimpleNamespace(checks=[])
    for _ in range(calls.windows):
        values = calls.values(sets, lambda: calls.point.instance.draw(calls.point.as_given, 9))
        outputs = [[answer(*leaves)] for leaves in values]
        buffers: Any = SimpleNamespace(answers=outputs.__getitem__, inputs=values)
        calls.keep(buffers, None)
    calls.conclude(suspect)
    return suspect


def test_every_change_of_value_has_its_turn() -> None:
    """Over the windows of one race, where there are calls enough; layouts are left to the checks before it."""
    calls = odd()
    assert 2 == len(calls.rounds(10, SETS))
    names = {check.name.partition(": ")[2] for check in answered(calls, lambda x: torch.relu(x) * 2.0).checks}
    offered = [v for v in calls.point.offered if v.name != AS_GIVEN and v.layout == "contiguous"]
    assert {v.name for v in offered if not v.fresh_weights} <= names
    assert {"negated", "outliers"} <= names


def test_what_only_the_tasks_own_values_forgive_is_refused() -> None:
    """Right on numbers from 0 to 1, wrong on negative ones."""
    calls = odd()
    calls.rounds(10, SETS)
    with pytest.raises(Mismatch):
        answered(calls, lambda x: x * 2.0)


def test_there_are_none_where_nothing_can_be_varied() -> None:
    """Nobody asked for them, or the inputs are integers."""
    assert frozenset() == odd(windows=0).rounds(10, SETS)
    assert frozenset() == odd("x + 1", "[torch.randint(0, 9, (8, 16))]").rounds(10, SETS)


def test_a_window_of_one_call_holds_one_of_them() -> None:
    """Calls of several milliseconds are timed one to a window. Of single changes two of ten would have their turn, and
    what any of the others shows would pass; so that one call has all of them."""
    calls = odd()
    calls.rounds(10, 1)
    assert {"strewn"} == {variant.change for variant in calls._deck}
    drawn: list[int] = []
    values = calls.values(1, lambda: drawn.append(1) or [])
    assert (1, 0) == (len(values), len(drawn))


def test_what_one_change_alone_shows_is_refused_in_windows_of_one_call() -> None:
    """A sum of exponentials without its maximum overflows for the largest values only. Every third odd call has a few
    of the changes, by lot: of forty races no more than a few let it pass, where of single changes most did."""
    refused = 0
    for seed in range(40):
        calls = odd("torch.logsumexp(x, -1)", "[torch.randn(64, 16)]", seed=seed)
        calls.rounds(10, 1)
        try:
            answered(calls, lambda x: x.exp().sum(-1).log(), sets=1)
        except Mismatch:
            refused += 1
    assert refused >= 34


def test_on_a_dear_case_one_process_of_two_has_them_by_lot() -> None:
    """Else a program that knew which could leave out in the other what the task's own values never need."""
    chosen = []
    for seed in range(40):
        judgement: Any = SimpleNamespace(level="precise", seed=seed, points=[SimpleNamespace(dear=True)])
        windows = [Judgement._odd_windows(judgement, number) for number in range(2)]
        assert [0, 1] == sorted(windows)
        chosen.append(windows.index(1))
        judgement.points[0].dear = False
        assert 2 == Judgement._odd_windows(judgement, 0) == Judgement._odd_windows(judgement, 1)
    assert {0, 1} == set(chosen)
