# SPDX-License-Identifier: Apache-2.0
"""What a proof will take is said before it is begun, and a budget that cannot hold it is refused at once."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance, task

from kernelwright.errors import BudgetTooSmall, ReferenceFails, TaskError
from kernelwright.judge import foresight
from kernelwright.judge.instance import Instance
from kernelwright.judge.reference import Reference


def slow(seconds: float) -> Instance:
    """An instance whose reference seems to take so long."""
    made = task("x * 2", "[torch.rand(4, 8)]")
    found = Reference(made, "cpu").instance(made.timed_case())
    found.call_seconds = found.draw_seconds = seconds
    return found


def test_a_budget_that_cannot_hold_a_proof_is_refused_with_numbers() -> None:
    """One call of 10 s: the message has what was seen, what is needed and a budget that would do."""
    with pytest.raises(BudgetTooSmall) as caught:
        foresight.look(slow(10.0), 60.0, lambda text: None)
    error = caught.value
    assert "60 s left" in error.got
    assert "a call of the reference takes 10 s" in error.got
    assert "a budget of about 7.0 min" == error.expected
    assert error.what_next.startswith("--budget 8m")
    assert 62 == error.exit_code


@pytest.mark.parametrize(("seconds", "left"), [(10.0, None), (10.0, 600.0), (1.0, 5.0), (1e-3, 0.1)])
def test_who_has_time_or_needs_little_goes_on(seconds: float, left: float | None) -> None:
    """No hurry, a budget that suffices, and calls so short that the run may overrun a small budget a little."""
    foresight.look(slow(seconds), left, lambda text: None)


def test_answers_whose_shape_depends_on_values_are_no_task() -> None:
    """Of 200 numbers below 30 one is missing in a draw of 29. Places of what is always there are of one shape."""
    made = task("torch.unique(x, return_counts=True)", "[torch.randint(0, 30, (200,))]")
    with pytest.raises(TaskError, match="depends on the values"):
        foresight.look(Reference(made, "cpu").instance(made.timed_case()), None, lambda text: None)
    made = task("(x >= 0.0).nonzero()", "[torch.rand(200)]")
    foresight.look(Reference(made, "cpu").instance(made.timed_case()), None, lambda text: None)


def test_what_takes_long_is_announced_and_the_rest_is_not() -> None:
    """A line for 1 s a call, none for a millisecond."""
    said: list[str] = []
    foresight.look(slow(1e-3), None, said.append)
    assert not said
    foresight.look(slow(1.0), None, said.append)
    assert ["a call of the reference takes 1 s, drawing its inputs 1 s"] == [line.partition(":")[0] for line in said]


def test_an_element_costs_a_gpu_less() -> None:
    """By the constants of a CPU, a billion elements on a GPU would be refused for a budget that is plenty."""
    instance = slow(0.0)
    here = foresight.foresee(instance)
    instance.device = torch.device("cuda:0")
    there = foresight.foresee(instance)
    assert 0 < there.admission < here.admission / 20
    assert 0 < there.proof < here.proof / 5


def test_a_call_in_float64_that_is_far_dearer_than_eager_is_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An LSTM of 0.3 s takes 6 s in float64, where torch has no fused layer; what is usual changes nothing."""
    instance, said = slow(0.01), []
    instance.double_seconds = 0.04
    usual = foresight.foresee(instance)
    foresight.look_again(instance, 1.0, said.append)
    assert not said
    instance.double_seconds = 6.0
    dear = foresight.foresee(instance)
    assert dear.admission > 3 * 6.0 > 6.0 > usual.admission
    assert dear.proof > 100.0 > usual.proof
    with pytest.raises(BudgetTooSmall, match="a call in float64 6 s"):
        foresight.look_again(instance, 30.0, said.append)
    assert "a call in float64 6 s" in said[0]
    instance.work = 10**11
    assert usual.proof < foresight.foresee(instance).proof < dear.proof / 2
    foresight.look_again(instance, 60.0, said.append)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("x * 2, x.sum().item()", "depends on values"),
        ("x * 2, bool((x > -0.5).any())", "depends on values"),
        ("x * 2, x.shape[0] * 3, 0.5, True", ""),
    ],
)
def test_a_number_beside_tensors_is_the_same_for_all_variants(answers: str, said: str) -> None:
    """A flag that is true of most draws is none of the inputs that are far below zero."""
    made = instance(answers, "[torch.randn(8, 16)]")
    if not said:
        foresight.look(made, None, lambda text: None)
        return
    with pytest.raises(ReferenceFails, match=said):
        foresight.look(made, None, lambda text: None)
