# SPDX-License-Identifier: Apache-2.0
"""Several honest orders of summation in the reference's own precision."""

from __future__ import annotations

import torch
from plain_tasks import instance

from kernelwright.judge import orders
from kernelwright.judge.floors import OF_FEW
from kernelwright.judge.inputs import Variant, generator
from kernelwright.judge.verify import Checker
from kernelwright.judge.yardstick import Magnitudes

GIVEN = Variant(name="as given", required=True)


def test_sums_and_products_really_change_their_order() -> None:
    """Other rounding, same value."""
    x = torch.rand(8, 4096, generator=generator(1, "cpu"))
    ones = torch.ones(8, 8)
    for run in (lambda: x.sum(-1), lambda: x @ x.T, lambda: torch.addmm(ones, x, x.T), lambda: x.mean(1)):
        with orders.Reordered(generator(3, "cpu")):
            other = run()
        assert not torch.equal(run(), other)
        torch.testing.assert_close(run(), other, rtol=1e-5, atol=0.0)


def test_half_precision_and_integers_are_not_moved() -> None:
    """Half an ulp of bfloat16 is more than its programs may lose."""
    leaves = [torch.rand(64), torch.rand(64).bfloat16(), torch.arange(64)]
    moved = orders.moved_by_an_ulp(leaves, generator(0, "cpu"))
    assert [False, True, True] == [torch.equal(a, b) for a, b in zip(leaves, moved, strict=True)]
    torch.testing.assert_close(leaves[0], moved[0], rtol=2**-23, atol=0.0)


def test_integers_take_the_first_answer() -> None:
    """A mean of indices means nothing."""
    answers = [[torch.tensor([1.0]), torch.tensor([4])], [torch.tensor([2.0]), torch.tensor([9])]]
    assert [1.5, 4] == [float(orders.centre(answers)[0]), int(orders.centre(answers)[1])]


def test_of_few_numbers_more_draws_are_made_than_there_are_orders_at_once() -> None:
    """Twelve, for an answer that is refused by little; the first ones are those of before."""
    made = instance("x.sum(-1)", "[torch.randn(4, 64)]")
    made.distrust_double("a test")
    leaves = made.draw(Variant(name="as given", required=True), 3)
    exact = [Magnitudes(answer) for answer in made.oracle(leaves, None)[0]]
    floors = made.floors(leaves, None, exact)
    usual = floors.whole(0)
    found = floors.beyond(0, 1, sure=2.0)
    assert found is not None and found.rms >= usual.rms > 0.0
    assert len(floors._draws) == OF_FEW > orders.RUNS
    assert floors._draws[0] != floors._draws[orders.RUNS]


SUM = "self.a(x) + self.b(x) + self.c(x)"
TABLES = "self.a, self.b, self.c = nn.Embedding(8, 32), nn.Embedding(8, 32), nn.Embedding(8, 32)"
FLAGS = "\nself.register_buffer('live', (torch.arange(64) % 2).float())"


def test_where_all_inputs_are_whole_numbers_weights_are_moved() -> None:
    """But for flags that are floats, and not beside an input that floats: nothing else made an honest error there."""
    made = instance(SUM, "[torch.randint(0, 8, (4, 64))]", init=TABLES + FLAGS)
    state, leaves = made.first_state, made.draw(GIVEN, 3)
    moved = orders.beside(leaves, state, generator(0, "cpu"))
    assert [name for (name, a), (_, b) in zip(state, moved, strict=True) if torch.equal(a, b)] == ["live"]
    assert orders.beside([*leaves, torch.rand(3)], state, generator(0, "cpu")) is state


def test_a_sum_of_rows_in_another_order_is_honest_and_who_rounds_is_told_which_oracle_said_so() -> None:
    made = instance(SUM, "[torch.randint(0, 8, (4, 64))]", init=TABLES)
    made.distrust_double("a test")
    leaves, checker, model = made.draw(GIVEN, 3), Checker(made, seed=3), made.model
    x = leaves[0]
    other = (model.a(x) + (model.c(x) + model.b(x))).detach()
    assert checker.check(GIVEN, leaves, None, [other], leaves).passed
    found = checker.check(GIVEN, leaves, None, [other.bfloat16().float()], leaves)
    assert not found.passed and "judged by 6 orders of summation: a test" in found.detail


QUANTISED = "torch.sigmoid((x * 4.0).round() @ (self.w * 4.0).round().T / 64.0)"


def test_what_follows_a_rounding_to_few_numbers_is_moved_in_its_last_bit() -> None:
    """All six answers were equal before, for sums of whole numbers are exact, and a sigmoid by another formula was
    refused. Products in bfloat16 are told as ever."""
    made = instance(QUANTISED, "[torch.randn(64, 48)]", init="self.w = nn.Parameter(torch.randn(32, 48))")
    made.distrust_double("a test")
    checker = Checker(made, seed=1)
    w = dict(made.first_state)["w"]
    for seed in range(8):
        (x,) = leaves = made.draw(GIVEN, seed)
        y = (x * 4.0).round() @ (w * 4.0).round().T / 64.0
        assert checker.check(GIVEN, leaves, None, [1.0 / (1.0 + torch.exp(-y))], leaves).passed
        rough = torch.sigmoid(y.bfloat16().float())
        assert not checker.check(GIVEN, leaves, None, [rough], leaves).passed


def test_whole_numbers_stay_and_so_does_half_precision() -> None:
    """A logarithm of a power of two is an exponent for somebody; what is moved lies within half an ulp."""
    x = torch.tensor([1.0, 2.0, 8.0, 3.0, 5.0, 7.0] * 50)
    with orders.Reordered(generator(3, "cpu"), moved=True):
        made, half = x.log2(), x.bfloat16().tanh()
    assert torch.equal(half, x.bfloat16().tanh())
    powers = torch.tensor([True, True, True, False, False, False] * 50)
    assert torch.equal(made[powers], x.log2()[powers]) and not torch.equal(made, x.log2())
    torch.testing.assert_close(made, x.log2(), rtol=2**-23, atol=0.0)
