# SPDX-License-Identifier: Apache-2.0
"""Counts and sizes at which the source of a reference takes another way."""

from __future__ import annotations

import random
import sys
import types
from collections import Counter

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import named, thresholds, weighed
from kernelwright.judge.conditions import read
from kernelwright.judge.inputs import Variant
from kernelwright.judge.thresholds import AT, BESIDE, Way

STEPS = "[torch.randn(8, 4), torch.randint(0, 100000, (1,))]"
COUNTS = "self.register_buffer('q', torch.zeros((), dtype=torch.int64))"
LISTED = "self.at = tuple(10000 * n - 1 for n in range(1, 4))"
LIVE = """
import types
EVERY = sum(map(int, ["4000", "6000"]))
SPACE = types.SimpleNamespace(every=EVERY)
"""
SIZES = "[torch.randn(8, 4)]"


@pytest.mark.parametrize(
    ("text", "numbers", "turns"),
    [
        ("if n % 500 == 499: y = 0", {500, 499}, True),
        ("self.every = 10 ** 4\nif int(n) % self.every: y = 0", {10_000}, False),
        ("def f(n, most=3e7):\n    return 0 if float(n) > most else 1", {3e7}, True),
        ("while e > 1e-6: e = e / 2\nif e > 3: y = 0", {1e-6, 3}, False),
        ("y = n // (2 * 1000)", {2000}, False),
        ("y = n + 7", set(), False),
        ("if n in (10, 20): y = 0", {10, 20}, True),
        ("self.at = [3 * 10, 50]\nif int(n) in self.at: y = 0", {30, 50}, True),
        ("at = {70: 0.1, 90: 0.01}\ny = at[n] if n in at else 1", {70, 90}, True),
        ("self.at = sorted([90, 70])\ny = 0.1 ** bisect.bisect_right(self.at, int(n))", {70, 90}, False),
        ("at = (40, 60)\ny = at.count(n) + divmod(n, 500)[0] + f(800)", {40, 60, 500}, False),
        ("if (", set(), False),
        ("EVERY: int = 300\nif n % EVERY == 0: y = 0", {300, 0}, True),
        ("WARM, (EVERY, _) = 100, [300, 7]\nif n < WARM or n % EVERY == 1: y = 0", {100, 300, 1}, True),
        ("cfg = {'every': 300, 'warm': 50}\ny = n % cfg['every']", {300}, False),
        ("cfg = {'every': 300}\ny = n % cfg.get('every', 70)", {300}, False),
        ("EVERY = int(3e2)\ny = n % min(EVERY, 10 ** 9 ** 9)", set(), False),
        ("EVERY = int(3e2)\ny = n % (2 * EVERY + round(0.6))", {601}, False),
        ("for at in (20, 30):\n    y = n == at", {20, 30}, False),
        ("def due(n, every): return n % every\ny = due(q, 300) + due(q, every=400)", {300, 400}, False),
        ("n = n + m\nm = n * m\ny = n > m", set(), False),
    ],
)
def test_numbers_of_comparisons_and_rests_are_read(text: str, numbers: set[float], turns: bool) -> None:
    """Also by the name they were given before; what a loop ends by makes no turn."""
    found = read(text)
    assert found.numbers() == numbers and found.turns is turns


def test_counts_turn_where_one_more_or_less_takes_another_way() -> None:
    """Most often at those that have a way of their own; past the end none is tried."""
    found = Counter(thresholds.at_turns([1000], 5000, lambda count: Way((count % 1000 == 999,), ())))
    assert found == {998: 1, 999: 3, 1000: 1, 2998: 1, 2999: 3, 3000: 1}
    assert set(thresholds.at_turns([1000], 5000, lambda count: Way((), (count < 1000,)))) == {999, 1000}
    assert set(thresholds.at_turns([1000], 2000, lambda count: Way((count % 1000 == 999,), ()))) == {998, 999, 1000}
    assert thresholds.at_turns([1000], 5000, lambda count: Way((), (count,))) == []
    assert thresholds.at_turns([1000], 5000, lambda count: None) == []


@pytest.mark.parametrize(
    "condition",
    [
        "int(self.q) % 10000 == 9999",
        "self.q % self.every == 9999",
        "float(self.q) % 1e4 == 9999",
        "int(self.q) in self.at",
        "int(self.q) in {19999, 29999}",
        "int(self.q) % EVERY == EVERY - 1",
        "self.q % SPACE.every == SPACE.every - 1",
        "self.q % self.cfg['every'] == 9999",
    ],
)
def test_a_counter_stands_where_the_source_turns_in_many_states(condition: str) -> None:
    """By a constant, by an attribute that the constructor was handed, by what lives in the module that ran."""
    init = f"{COUNTS}\nself.every = 10000\nself.cfg = dict([('every', 10000)])\n{LISTED}"
    made = instance(f"x * 0 if {condition} else x", SIZES, init=init, head=LIVE)
    drawn = [made.draw_state(seed) for seed in range(60)]
    counts = [int(dict(weighed.placed(made, state, seed))["q"]) for seed, state in enumerate(drawn)]
    assert sum(count % 10000 == 9999 for count in counts) >= 12
    assert len({count for count in counts if count % 10000 not in (9998, 9999, 0)}) > 12, "others come as well"
    after = [dict(state)["q"] for state in thresholds.each(made, made.first_state, random.Random(3))]
    assert len(after) == 2 and all(int(count) % 10000 in (9998, 9999, 0) for count in after)


def test_names_live_in_files_beside_the_reference_and_what_raises_has_no_number() -> None:
    """Those of whose classes parts of the model are; a property may raise anything."""
    beside = types.ModuleType("beside_a_task")
    text = "import torch\nEVERY = next(iter([300]))\n"
    text += "class Part(torch.nn.Module):\n    def f(self, n): return n % EVERY\n"
    exec(text, vars(beside))
    sys.modules[beside.__name__] = beside
    try:
        live = named.names(types.ModuleType("a_task"), torch.nn.Sequential(beside.Part()))
    finally:
        del sys.modules[beside.__name__]
    assert read(text).numbers() == set() and read(text).numbers(live) == {300}
    assert read("y = n % owner.every").numbers({"owner": Raising()}) == set()


class Raising:
    @property
    def every(self) -> int:
        raise Exception("no number yet")


def test_a_counter_of_which_nothing_turns_is_drawn_as_ever() -> None:
    """A number that the source has does not matter by itself."""
    made = instance("x + self.q % 10000", SIZES, init=COUNTS)
    state = made.draw_state(5)
    assert all(weighed.placed(made, state, seed) is state for seed in range(8))
    assert thresholds.each(made, state, random.Random(3)) == []


def test_a_count_that_comes_in_stands_there_within_what_is_drawn() -> None:
    """Of 100,000 steps none is one of ten by lot; a reference that reads none has no such draws."""
    made = instance("x * 0 if int(s) % 10000 == 9999 else x * 2", STEPS, args="x, s")
    (variant,) = [v for v in made.offered(1) if v.change == AT]
    assert made.usable(variant, 3)
    steps = [int(made.draw(variant, seed)[1]) for seed in range(24)]
    assert sum(step % 10000 == 9999 for step in steps) >= 8 and max(steps) < 100_000
    plain = instance("x * (s + 1)", STEPS, args="x, s")
    assert not [v for v in plain.offered(1) if v.change in (AT, BESIDE)]
    few = instance("x * 0 if int(s) % 10000 == 9999 else x * 2", STEPS.replace("100000", "50"), args="x, s")
    assert not few.usable(variant, 3), "who reads as many elements must not read past the end"


def test_steps_of_a_schedule_in_a_list_come_exactly() -> None:
    """At which a search to the left and one to the right differ: of 90,000 steps there are three."""
    found = "x * 0.1 ** __import__('bisect').bisect_right(self.at, int(s))"
    made = instance(found, STEPS.replace("100000", "90000"), init="self.at = [30000, 60000, 80000]", args="x, s")
    (variant,) = [v for v in made.offered(1) if v.change == AT]
    steps = [int(made.draw(variant, seed)[1]) for seed in range(24)]
    assert sum(step in (30000, 60000, 80000) for step in steps) >= 6
    assert {step % 10000 for step in steps} == {0, 9999}


def test_floats_are_scaled_to_both_sides_of_what_is_compared() -> None:
    """A norm above which a gradient is dropped, a little above and a little below."""
    made = instance("x * 0 if float(x.norm()) > 3e5 else x * 2", SIZES)
    (variant,) = [v for v in made.offered(1) if v.change == BESIDE]
    assert made.usable(variant, 3)
    norms = [float(made.draw(variant, seed)[0].norm()) / 3e5 for seed in range(16)]
    assert all(0.9 < norm < 1.1 and abs(norm - 1) > 0.01 for norm in norms)
    assert min(norms) < 1 < max(norms)


@pytest.mark.parametrize(("work", "looked"), [(10**7, True), (5 * 10**7, True), (10**9, False)])
def test_larger_cases_are_searched_and_two_draws_lie_on_both_sides(work: int, looked: bool) -> None:
    """Those that are dearer have two draws."""
    made = instance("x * 0 if float(x.norm()) > 3e5 else x * 2", SIZES)
    made.work = work
    assert bool(thresholds.of(made).scales) is looked
    for seed in range(6 if looked else 0):
        sides = {
            float(made.draw(Variant(name="", required=True, change=BESIDE), n)[0].norm()) > 3e5
            for n in (seed, seed + 1)
        }
        assert sides == {False, True}


@pytest.mark.parametrize(
    "formula", ["x * float(x.norm())", "x * 0 if float(x.sum()) > 0 else x", "x if x.shape[0] > 3 else x * 0"]
)
def test_there_is_nothing_to_scale_where_nothing_turns_or_draws_turn_by_themselves(formula: str) -> None:
    """Both ways come by lot there."""
    made = instance(formula, SIZES)
    assert not [v for v in made.offered(1) if v.change == BESIDE and made.usable(v, 3)] or "sum" in formula
    before = [torch.ones(8, 4)]
    assert "sum" in formula or thresholds.changed(made, BESIDE, before, 1) is before
