# SPDX-License-Identifier: Apache-2.0
"""Single numbers of buffers with which a reference takes another way come in some new weights."""

from __future__ import annotations

import plain_tasks
import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import other_ways, replaced, ways, weights
from kernelwright.judge.instance import Instance
from kernelwright.judge.reference import Reference

X = "[torch.randn(8, 32)]"
BUFFER = "self.register_buffer('q', torch.tensor({}))"
CHOSEN = f"self.w = nn.Parameter(torch.randn(3, 8, 32))\n{BUFFER.format(0)}"
MODES = "x if int(self.q) == 0 else x.relu() if int(self.q) == 1 else F.gelu(x)"


def found(made: Instance, name: str = "q") -> set[int]:
    """The numbers of a buffer that come so."""
    return {int(numbers[name]) for numbers in other_ways.numbers(made)}


@pytest.mark.parametrize(
    ("formula", "number", "others"),
    [
        ("x.topk(int(self.q)).values.sum(-1) if int(self.q) > 0 else x.sum(-1)", 5, {0}),
        ("x if int(self.q) < 0 else x.tril(int(self.q))", -1, {0, 2}),
        ("x.masked_fill(torch.arange(32) >= self.q, 0.0)", 2**31 - 1, {8, 32}),
        ("x.masked_fill(torch.arange(32) >= self.q, 0.0)", 10**9, {8, 32}),
        (MODES, 1, {2}),
        ("x if int(self.q) == 1 else x.relu()", 1, set()),
        ("x if int(self.q) else x.relu()", 1, set()),
        ("x - self.q", 128, set()),
        ("x.softmax(int(self.q))", -1, set()),
        ("sum((x + at for at in range(int(self.q))), x)", 3, set()),
    ],
)
def test_numbers_come_with_which_the_reference_takes_another_way(formula: str, number: int, others: set[int]) -> None:
    """An off switch, a limit, a third mode; not what a zero point does, nor a third number of two ways, nor turns of a
    loop."""
    assert found(instance(formula, X, init=BUFFER.format(number))) == others


def test_two_flags_together_come_where_neither_does_that_alone() -> None:
    """Beside a third one, all three being tried together elsewhere."""
    init = "\n".join(f"self.register_buffer('{name}', torch.tensor(False))" for name in "pqr")
    formula = "x if bool(self.r) else x.exp() if bool(self.p) and bool(self.q) else x.relu()"
    made = instance(formula, X, init=init)
    pairs = [{name for name, value in some.items() if bool(value)} for some in other_ways.numbers(made)]
    assert pairs == [{"p", "q"}]
    assert {bool(dict(made.draw_state(seed, weights.REPLACED))["p"]) for seed in range(4)} == {True}


@pytest.mark.parametrize(
    ("formula", "others"),
    [("x * self.w[self.q]", {1, 2}), ("x * self.w[:2][self.q]", {1}), ("x * self.w[0]", set())],
)  # fmt: skip
def test_which_of_several_is_used_comes_where_answers_are_others(formula: str, others: set[int]) -> None:
    """As far as there are some, and where answers are others."""
    assert found(instance(formula, X, init=CHOSEN)) == others


def test_they_come_among_what_is_replaced() -> None:
    """In every draw of such weights where there is nothing else."""
    made = instance(MODES, X, init=BUFFER.format(1))
    assert not replaced.nothing(made, weights.REPLACED)
    assert {int(dict(made.draw_state(seed, weights.REPLACED))["q"]) for seed in range(4)} == {2}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_numbers_for_a_device_are_asked_for_on_the_host() -> None:
    """A place out of range is an error there, and ends all that is on a device."""
    drawn = plain_tasks.task("x * self.w[self.q]", X, init=CHOSEN)
    made = Reference(drawn, "cuda:0").instance(drawn.timed_case())
    assert found(made) == {1, 2} == {int(dict(made.draw_state(seed, weights.REPLACED))["q"]) for seed in range(9)}
    assert all(value.is_cuda for numbers in other_ways.numbers(made) for value in numbers.values())
    given = plain_tasks.task(MODES.replace("self.q", "y"), "[torch.randn(8, 32), torch.tensor(1)]", args="x, y")
    other = Reference(given, "cuda:0").instance(given.timed_case())
    assert ways.modes(other, other._raw(1)[0], 1) == (0, 2, 3)
