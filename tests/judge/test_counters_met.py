# SPDX-License-Identifier: Apache-2.0
"""Counters come to where two numbers of a source meet, and one alone to where it turns."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import thresholds, ways, weighed
from kernelwright.judge.thresholds import BESIDE

SIZES = "[torch.randn(8, 4)]"
COUNTS = "self.register_buffer('q', torch.zeros((), dtype=torch.int64))"


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("int(self.q) > 12500 and int(self.q) % 1000 == 0", 13_000),
        ("int(self.q) > 12500 and int(self.q) % 1000 < 10", 12_999),
        ("divmod(int(self.q), 391) == (30, 0)", 11_730),
        ("int(self.q) % 8 == 0 and int(self.q) // 8 % 500 == 0", 4_000),
    ],
)
@pytest.mark.parametrize("kind", ["int64", "int16"])
def test_a_counter_stands_where_two_numbers_meet(condition: str, count: int, kind: str) -> None:
    """At a product, at the first multiple of one beyond the other; in 16 bits too."""
    made = instance(f"x * 0 if {condition} else x", SIZES, init=COUNTS.replace("int64", kind))
    assert {count, count + 1} & set(thresholds.counters(made)[1])


def test_counters_begin_where_they_do_before_a_window() -> None:
    """Where the reference turns at some count; of which nothing turns they are any."""
    for condition, begins in (("int(self.q) % 10000 == 9999", True), ("x.shape[0] > 3", False)):
        made = instance(f"x * 0 if {condition} else x", SIZES, init=COUNTS)
        states = [weighed.begun(made, made.draw_state(seed)) for seed in range(12)]
        assert all(int(dict(state)["q"]) == 0 for state in states) is begins


def test_counters_move_alone_too() -> None:
    """Bad rounds after which a rate falls, but not while another counter says to wait."""
    init = f"{COUNTS}\nself.register_buffer('wait', torch.zeros((), dtype=torch.int64))"
    made = instance("x if int(self.wait) > 0 or int(self.q) < 1000 else x * 0", SIZES, init=init)
    drawn = [weighed.placed(made, made.first_state, seed) for seed in range(60)]
    assert sum(int(dict(state)["q"]) >= 1000 and int(dict(state)["wait"]) == 0 for state in drawn) >= 3


@pytest.mark.parametrize(
    ("formula", "modes"),
    [
        ("x if int(m) == 0 else x.relu() if int(m) == 1 else x.tanh()", (0, 2, 3)),
        ("(x, x.relu(), x.tanh())[int(m)]", (0, 2)),
        ("x * int(m)", ()),
    ],
)
def test_a_single_number_is_a_third_mode_where_there_is_one(formula: str, modes: tuple[int, ...]) -> None:
    """That a task never changes; as far as the reference answers."""
    made = instance(formula, "[torch.randn(8, 4), torch.tensor(1)]", args="x, m")
    assert ways.modes(made, made._raw(1)[0], 1) == modes
    drawn = {int(thresholds.changed(made, thresholds.AT, made._raw(1)[0], seed)[1]) for seed in range(12)}
    assert drawn == set(modes or (1,))


def test_a_single_float_is_zero_or_a_number_of_the_source_where_python_goes_another_way() -> None:
    """A temperature of zero; where nothing turns there it is not, nor where there is no answer."""
    inputs = "[torch.randn(8, 4), torch.tensor(0.7)]"
    made = instance("x * 2 if float(t) == 0.0 else x / t", inputs, args="x, t")
    drawn = [float(thresholds.changed(made, BESIDE, [torch.randn(8, 4), torch.tensor(0.7)], n)[1]) for n in range(2)]
    assert drawn == [0.0, 0.0]
    one = instance("x * 2 if float(t) == 1.0 else x / (1 - t)", inputs, args="x, t")
    drawn = {float(thresholds.changed(one, BESIDE, [torch.randn(8, 4), torch.tensor(0.7)], n)[1]) for n in range(2)}
    assert drawn == {1.0}
    for other in ("x * t if x.shape[0] > 3 else x", "x / t * float(t)"):
        assert not thresholds.of(instance(other, inputs, args="x, t")).scales
