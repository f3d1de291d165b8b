# SPDX-License-Identifier: Apache-2.0
"""Counts and sizes at which the source of a reference takes another way."""

from __future__ import annotations

import random
import sys
import types
from collections import Counter

import plain_tasks
import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import named, thresholds, ways, weighed
from kernelwright.judge.conditions import read
from kernelwright.judge.host_copy import on_host
from kernelwright.judge.inputs import Variant
from kernelwright.judge.reference import Reference
from kernelwright.judge.thresholds import AT, BESIDE
from kernelwright.judge.ways import Way

STEPS = "[torch.randn(8, 4), torch.randint(0, 100000, (1,))]"
COUNTS = "self.register_buffer('q', torch.zeros((), dtype=torch.int64))"
LISTED = "self.at = tuple(10000 * n - 1 for n in range(1, 4))"
MILES = "self.register_buffer('milestones', torch.tensor([9999, 29999, 79999]))"
LIVE = """
import types
EVERY = sum(map(int, ["4000", "6000"]))
SPACE = types.SimpleNamespace(every=EVERY)
class Every:
    def __init__(self, period): self.period = period
    def __call__(self, n): return n % self.period == 9999
"""
TWO = "self.spike = lambda x: float(x.norm()) > 3e5\n"
TWO += "self.a, self.b = nn.Parameter(torch.ones(4)), nn.Parameter(torch.full((4,), 2.0))"
SIZES = "[torch.randn(8, 4)]"
EVERY = "class Every:\n    def __init__(self, p): self.p = p\n    def __call__(self, n): return n % self.p == 7\n"


@pytest.mark.parametrize(
    ("text", "numbers", "turns"),
    [
        ("if n % 500 == 499: y = 0", {500, 499}, True),
        ("self.every = 10 ** 4\nif int(n) % self.every: y = 0", {10_000}, True),
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
        ("at = {70: 0.1, 90: 0.01}\ny = at.get(n, 1) + f.get(7)", {70, 90}, False),
        ("def due(n, every): return n % every\ndue = functools.partial(due, every=300)\ny = due(n)", {300}, False),
        ("EVERY = int(3e2)\ny = n % min(EVERY, 10 ** 9 ** 9)", set(), True),
        ("EVERY = int(3e2)\ny = n % (2 * EVERY + round(0.6))", {601}, False),
        ("for at in (20, 30):\n    y = n == at", {20, 30}, True),
        ("def due(n, every): return n % every\ny = due(q, 300) + due(q, every=400)", {300, 400}, False),
        ("n = n + m\nm = n * m\ny = n > m", set(), True),
        ("match int(n):\n    case 200 | [300, 7]: y = 0", {200, 300, 7}, True),
        ("n %= 20 * 15", {300}, False),
        ("y = x * min(1.0, 3e7 / float(x.norm()))", set(), True),
        ("y = x * min(x.clamp(max=5), 1)", set(), True),
        ("y = x.clamp(max=5)", set(), False),
        ("def every(): return 300\ny = n % every()", {300}, False),
        ("while n < 9: n = n + 1\nbig = n > 20", {9, 20}, False),
        ("n = x.shape[0]\nwhile n > 9: n = n // 2\nbig = e > 20", {9, 2, 20}, True),
        ("n = int(x.sum())\nwhile n > 9: n = n // 2\nbig = e > 20", {9, 2, 20}, False),
        ("if n.eq(300) or torch.isin(n, torch.tensor([70, 90])): y = 0", {300, 70, 90}, True),
        (f"{EVERY}y = Every(300)(n)", {300, 7}, True),
        (f"{EVERY}y = n", {7}, True),
        ("k = 1\nwhile True:\n    k *= 2\n    if k >= len(x): break", {1}, True),
        ("k = 1\nwhile True:\n    k = step(k)\n    if k >= len(x): break", {1}, False),
    ],
)
def test_numbers_of_comparisons_and_rests_are_read(text: str, numbers: set[float], turns: bool) -> None:
    """Also by the name they were given before; what a loop ends by makes no turn."""
    found = read(text)
    assert found.numbers() == numbers and found.turns is turns


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("y = min(1.0, (100000 / int(self.n)) ** 0.5)", {1.0, 100_000, 0.5}),
        ("if int(self.n) / (20 * 1000) == 1: y = 0", {20_000}),
        ("p = int(self.n) / 40000\nq = p * 7\ny = q - 9 + x * 300", {40_000, 7, 9}),
        ("def steps(self): return int(self.n)\ny = self.steps() / 500 + (m - 60)", {500}),
        ("def due(a, b): return a / 500\ny = due(x, 7) + due(self.n, 8)", {500}),
        ("y = x * 128 + max(x.shape[0], 64)", set()),
    ],
)
def test_numbers_that_a_counter_is_reckoned_with_are_read(text: str, numbers: set[float]) -> None:
    """Also with what comes of it, by a name, an argument or what a function returns; all others are not."""
    assert read(text).beside(["n"]) == numbers


def test_a_count_between_powers_of_two_is_found_by_halves_and_further_ones_where_numbers_change() -> None:
    """A number that no source has; amid a ramp nothing turns, nor where the reference takes no such count."""
    found = ways.between
    assert found(10**6, lambda count: Way((count > 20_500,), ())) == [20_500, 20_501]
    assert found(10**6, lambda count: Way((), (min(1.0, 1e5 / (count + 1)),))) == [99_999, 100_000, 400_000]
    assert found(10**6, lambda count: Way((), (min(1.0, count / 30_000),))) == [29_999, 30_000, 7499]
    assert found(10**6, lambda count: Way((), (max(0.1, 1 - count / 10**5),))) == [89_999, 90_000, 22_499]
    assert found(10**6, lambda count: Way((), (count,))) == []
    assert found(10**4, lambda count: Way((count > 20_500,), ())) == []
    assert found(10**6, lambda count: Way((), ()) if count < 5000 else None) == []


def test_counts_turn_where_one_more_or_less_takes_another_way() -> None:
    """Most often at those that have a way of their own; past the end none is tried."""
    found = Counter(ways.at_turns([1000], 5000, lambda count: Way((count % 1000 == 999,), ())))
    assert found == {998: 1, 999: 3, 1000: 1, 2998: 1, 2999: 3, 3000: 1}
    assert set(ways.at_turns([1000], 5000, lambda count: Way((), (count < 1000,)))) == {999, 1000}
    assert set(ways.at_turns([1000], 2000, lambda count: Way((count % 1000 == 999,), ()))) == {998, 999, 1000}
    assert ways.at_turns([1000], 5000, lambda count: Way((), (count,))) == []
    assert ways.at_turns([1000], 5000, lambda count: None) == []


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
        "self.q % self.period == 9999",
        "(self.milestones == self.q).any()",
        "int(self.q) / 9999 == 1",
        "int(self.q) & 16383 == 9999",
        "self.q.eq(19999)",
        "torch.isin(self.q, self.milestones)",
        "self.due(int(self.q))",
    ],
)
def test_a_counter_stands_where_the_source_turns_in_many_states(condition: str) -> None:
    """By a constant, by an attribute that the constructor was handed, by what lives in the module that ran."""
    init = f"{COUNTS}\nself.period = torch.tensor(10000)\nself.every = 10000\n{LISTED}\n{MILES}"
    init += "\nself.cfg = dict([('every', 10000)])\nself.due = Every(sum(map(int, ['4000', '6000'])))"
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


@pytest.mark.parametrize(
    ("begins", "after", "counted"),
    [("torch.ones((), dtype=torch.int64)", 1, True), ("torch.tensor(-3.0)", 1, True),
     ("torch.tensor(4)", 0, False), ("torch.tensor(4.0)", 0.5, True), ("torch.tensor(4.0)", 0.3, False),
     ("torch.ones((), dtype=torch.int8)", 1, False)],
)  # fmt: skip
def test_a_counter_may_begin_with_another_number(begins: str, after: float, counted: bool) -> None:
    """It is what a call adds one to: a width that the constructor sets is none."""
    init = f"self.register_buffer('q', {begins})"
    made = instance(f"x * (1 + 0 * self.q.add_({after})) if int(self.q) % 9999 != 5000 else x * 0", SIZES, init=init)
    names, counts = thresholds.counters(made)
    assert list(names) == (["q"] if counted else []) and (5000 in counts) is counted
    assert torch.equal(dict(made.model.state_dict())["q"], dict(made.first_state)["q"])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_counts_of_a_device_are_looked_for_on_the_host(device: str) -> None:
    """A place out of range is an error there, and ends all that is on a device."""
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    body = "x * (1 + 0 * self.q.add_(1)) + self.table[self.q % 64] if int(self.q) % 20000 != 19999 else x * 0"
    made = plain_tasks.task(body, SIZES, init=COUNTS + "\nself.register_buffer('table', torch.zeros(64))")
    given = Reference(made, device).instance(made.timed_case())
    host = on_host(given)
    assert host is not None
    assert {value.device.type for _, value in host.first_state} == {"cpu"} == {host._raw(3)[0][0].device.type}
    names, counts = thresholds.counters(given)
    assert list(names) == ["q"] and 19999 in counts and thresholds._counters(host) == (names, counts)
    assert given.first_state[0][1].device.type == torch.device(device).type


def test_an_epoch_is_counted_in_parts_of_one() -> None:
    """A call short of the thirtieth."""
    init = "self.register_buffer('epoch', torch.zeros(()))"
    made = instance("x * 0 if float(self.epoch.add_(1 / 1024)) % 30 == 0 else x", SIZES, init=init)
    names, counts = thresholds.counters(made)
    assert list(names) == ["epoch"] and 30 - 1 / 1024 in counts
    assert float(dict(thresholds.counted(made.first_state, names, 30 - 1 / 1024))["epoch"]) == 30 - 1 / 1024


def test_what_counts_samples_comes_to_a_number_by_a_batch() -> None:
    """Eight rows are added before it is looked at: at 9992 the tenth thousand is full."""
    init = "self.register_buffer('q', torch.zeros((), dtype=torch.int64))"
    made = instance("x * 0 if int(self.q.add_(x.shape[0])) % 10000 == 0 else x", SIZES, init=init)
    names, counts = thresholds.counters(made)
    assert list(names) == ["q"] and {9992, 29992} <= set(counts)


@pytest.mark.parametrize(
    ("condition", "kind", "most"),
    [
        ("int(self.q.add_(8)) > 10**9", "int64", 10**9),
        ("int(self.q.add_(8)) > 10**9", "int32", 10**9),
        ("int(self.q.add_(8)) > 3 * 10**9", "int32", 0),
        ("int(self.q.add_(8)) > 10**9 + torch.zeros(int(self.q) // 10**6).sum()", "int64", 0),
        ("int(self.q.add_(8)) > 10**9 + float(x.sum() * int(self.q)) * 0", "int64", 0),
    ],
)
def test_a_counter_that_is_no_size_comes_as_far_as_tokens_that_a_model_has_seen(
    condition: str, kind: str, most: int
) -> None:
    """In 32 bits there is room for 1e9; a tensor of so many elements there is not, nor what is told by a ramp."""
    made = instance(f"x * 0 if {condition} else x", SIZES, init=COUNTS.replace("int64", kind))
    counts = thresholds.counters(made)[1]
    assert not most if not counts else {most - 8, most - 7} <= set(counts)


def test_a_countdown_comes_to_its_end_and_begins_no_further_than_it_does() -> None:
    """Beside one that counts up, whose own number it does not reach."""
    init = f"{COUNTS}\nself.register_buffer('left', torch.tensor(300))"
    made = instance("x * 0 if int(self.left.sub_(1)) == 0 or int(self.q.add_(1)) == 20000 else x", SIZES, init=init)
    names, counts = thresholds.counters(made)
    assert names["left"] == 300 and {1, 19_999} <= set(counts)
    state = dict(thresholds.counted(made.first_state, names, 19_999))
    assert int(state["left"]) == 300 and int(state["q"]) == 19_999


@pytest.mark.parametrize(
    ("formula", "norm"),
    [
        ("x * 0 if float(x.norm()) < 1e-8 else x / float(x.norm())", 1e-8),
        ("x / max(float(x.norm()), 1e-8)", 1e-8),
        ("x * min(float(x.norm()), 3e5)", 3e5),
        ("x * (1 + sum(float(x.norm()) > one for one in (1e3, 1e5, 1e7)))", 1e7),
    ],
)
def test_a_norm_is_met_near_the_ends_of_single_precision_too(formula: str, norm: float) -> None:
    """Where all is zero, where it becomes a number, and the third of three."""
    made = instance(formula, SIZES)
    norms = [float(thresholds.changed(made, BESIDE, [torch.randn(8, 4)], seed)[0].norm()) / norm for seed in range(24)]
    assert sum(0.9 < norm < 1.0 for norm in norms) >= 3 and sum(1.0 < norm < 1.1 for norm in norms) >= 3


def test_halves_are_scaled_down_as_far_as_they_hold() -> None:
    """Of 1e-8 none has a bit left."""
    made = instance("x * 0 if float(x.float().norm()) < 1e-9 else x * 2", "[torch.randn(8, 4).half()]")
    assert not any(2.0**-24 > scale for _, scale, _ in thresholds.of(made).scales)


@pytest.mark.parametrize(
    "formula",
    [
        "x * min(1.0, 3e5 / (float(x.norm()) + 1e-6))",
        "x * (0 if self.spike(x) else 1)",
        "[x * 2, x * 3][float(x.norm()) > 3e5]",
        "(x.exp(), x.tanh())[float(x.norm()) > 3e5] * 2",
        "x * (self.a if float(x.norm()) > 3e5 else self.b)",
        "x * 2 if float(x.norm()) < 3e3 else x if float(x.norm()) < 3e5 else x * 0",
    ],
)
def test_a_condition_counts_wherever_it_is_made(formula: str) -> None:
    """Without an ``if``, in a method of its own, behind another one."""
    made = instance(formula, SIZES, init=TWO)
    norms = [float(thresholds.changed(made, BESIDE, [torch.randn(8, 4)], seed)[0].norm()) / 3e5 for seed in range(16)]
    assert sum(0.9 < norm < 1.0 for norm in norms) >= 4 and sum(1.0 < norm < 1.1 for norm in norms) >= 4


def test_inputs_are_scaled_together_too() -> None:
    """Of two norms that must both be large none alone takes another way."""
    both = "a * 0 if float(a.norm()) * float(b.norm()) ** 0 > 3e5 and float(b.norm()) > 4e6 else a * b"
    made = instance(both, "[torch.randn(8, 4), torch.randn(8, 4)]", args="a, b")
    pairs = [thresholds.changed(made, BESIDE, [torch.randn(8, 4) for _ in "ab"], seed) for seed in range(24)]
    assert sum(float(a.norm()) > 3e5 and 0.9 < float(b.norm()) / 4e6 < 1.0 for a, b in pairs) >= 2
    assert sum(float(a.norm()) > 3e5 and 1.0 < float(b.norm()) / 4e6 < 1.1 for a, b in pairs) >= 2


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
