# SPDX-License-Identifier: Apache-2.0
"""Single whole numbers and flags in buffers are others in some new weights, where the reference takes that."""

from __future__ import annotations

import pytest
from plain_tasks import instance

from kernelwright.judge import single_numbers, weights
from kernelwright.judge.instance import Instance

X = "[torch.randn(8, 32)]"
BUFFER = "self.register_buffer('q', {})"
POINT, FLAG = BUFFER.format("torch.tensor(128)"), BUFFER.format("torch.tensor(False)")


def seen(made: Instance, name: str = "q", moved: str = "") -> set[int]:
    """The numbers that a buffer has in forty draws of new weights."""
    return {int(dict(made.draw_state(seed, moved))[name]) for seed in range(40)}


@pytest.mark.parametrize(
    ("formula", "init", "numbers"),
    [
        ("x - self.q", "torch.tensor(128)", {112, 120, 128, 129, 144}),
        ("x - self.q", "torch.tensor([-128], dtype=torch.int8)", {-128, -127, -112}),
        ("x - self.q", "torch.tensor([255], dtype=torch.uint8)", {224, 240, 255}),
        ("x - self.q", "torch.tensor(2)", {1, 2, 3}),
        ("x if bool(self.q) else 2 * x", "torch.tensor(False)", {0, 1}),
        ("x if bool(self.q) else 2 * x", "torch.tensor([True])", {0, 1}),
        ("x if self.q[0] == 1 else 2 * x", "torch.tensor([1], dtype=torch.uint8)", {0, 1}),
        ("x - self.q", "torch.zeros((), dtype=torch.int8)", {0, 1}),
        ("x.softmax(int(self.q))", "torch.tensor(-1)", {-1}),
    ],
)
def test_a_single_number_is_another_one_nearby_by_lot_and_a_flag_the_other(
    formula: str, init: str, numbers: set[int]
) -> None:
    """Within its type; minus one means that there is none of something."""
    assert seen(instance(formula, X, init=BUFFER.format(init))) == numbers


@pytest.mark.parametrize(
    ("formula", "number"),
    [
        ("x.view(8, int(self.q), -1)", 8),
        ("F.avg_pool1d(x, int(self.q))", 4),
        ("x[:, :: int(self.q)]", 4),
        ("x.unflatten(-1, (int(self.q), -1)).softmax(-1).flatten(1)", 8),
        ("(x - (int(self.q) != 6) * torch.rand(8, 1))", 6),
        ("(x.abs() + int(self.q) - 7).log().clamp(max=(0.0 if int(self.q) == 7 else float('nan')))", 7),
    ],
)
def test_sizes_and_steps_stay_and_what_makes_answers_random_or_none(formula: str, number: int) -> None:
    """The reference is asked: it fails there, or answers in another shape, or not twice the same, or not finitely."""
    assert seen(instance(formula, X, init=BUFFER.format(f"torch.tensor({number})"))) == {number}


def test_what_is_asked_for_is_what_comes() -> None:
    """An index into a table takes what lies in it alone, on the one side of its number."""
    made = instance("x + torch.arange(33.0)[self.q]", X, init=BUFFER.format("torch.tensor(32)"))
    assert seen(made) == {28, 30, 32}


def test_others_stay_where_the_rest_is_moved_and_counters_are_none_of_them() -> None:
    """A weight that a flag switches off is no other one then. A number to which a call adds counts something."""
    assert seen(instance("x - self.q", X, init=POINT), moved=weights.SIGNS) == {128}
    assert seen(instance("x + 0 * self.q.add_(1)", X, init=POINT)) == {128}
    counted = instance("x + self.q % 32", X, init=BUFFER.format("torch.zeros((), dtype=torch.int64)"))
    assert single_numbers.taken(counted, {}) == [] and max(seen(counted)) > 255


def test_each_of_several_is_also_another_by_itself() -> None:
    """A flag that skips a layer hides its zero point; and one tensor of two names has one number."""
    two = f"{POINT}\nself.register_buffer('f', torch.tensor(True))\nself.register_buffer('g', self.f)"
    made = instance("x - self.q if bool(self.f) else x", X, init=two)
    found = [{name: int(value) for name, value in made.draw_state(seed)} for seed in range(60)]
    assert all(one["f"] == one["g"] for one in found)
    assert {(one["f"], one["q"] == 128) for one in found} == {(0, True), (1, False), (1, True), (0, False)}


def test_an_earlier_draw_keeps_its_numbers_and_dear_weights_always_have_others() -> None:
    """These are drawn once, and have the first numbers by lot after that."""
    made = instance("x - self.q", X, init=POINT)
    drawn = next(state for seed in range(40) if int(dict(state := made.draw_state(seed))["q"]) != 128)
    assert dict(made.draw_state(99, "", drawn))["q"] == dict(drawn)["q"]
    assert int(dict(made.draw_state(99, weights.SIGNS, drawn))["q"]) == 128
    large = f"{POINT}\nself.register_buffer('w', torch.randn(1100, 2048))"
    assert 128 not in seen(instance("x - self.q + self.w[0, 0]", X, init=large))


def test_what_a_flag_turns_on_is_known_of_the_reference() -> None:
    """Rounding jumps: an honest program is on the other side of a jump here and there."""
    made = instance("(x * 8).round() if bool(self.q) else x", X, init=FLAG)
    before = made.jumps
    assert seen(made) == {0, 1} and (before, made.jumps) == (False, True)


def test_a_reference_of_much_work_is_asked_for_two() -> None:
    """Four runs, so two numbers, each of which is seen twice to be the same."""
    made = instance("x - self.q", X, init=POINT)
    made.work = 10**12
    assert seen(made) == {112, 128, 144}
