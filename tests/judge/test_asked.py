# SPDX-License-Identifier: Apache-2.0
"""Gradients of some inputs and parameters alone."""

from __future__ import annotations

import random

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import asked
from kernelwright.judge.asked import INPUTS, OUTPUTS, turned
from kernelwright.judge.buffers import CallPlan, TensorSpec

X, W = TensorSpec.contiguous((3, 4), "float32"), TensorSpec.contiguous((5, 4), "float32")
Y = TensorSpec.contiguous((3, 5), "float32")
PLAN = CallPlan(
    arguments={}, inputs=(X,), results={}, outputs=(Y,), sets=1, seeds=(0,),
    gradients=(("input:0", X), ("parameter:weight", W)),
)  # fmt: skip


@pytest.mark.parametrize("needed", [None, ["input:0"], ["parameter:weight"]])
def test_what_is_not_needed_requires_no_gradient_and_gives_zeros(needed: list[str] | None) -> None:
    """And is asked for again once all are needed."""
    layer, x, incoming = torch.nn.Linear(4, 5, bias=False), torch.randn(3, 4), torch.randn(3, 5)
    call = ([x], {}, [x])
    _, (of_x, of_w) = asked.begin(layer, call, PLAN, [incoming], needed)()
    assert x.requires_grad is (needed is None or "input:0" in needed)
    assert layer.weight.requires_grad is (needed is None or "parameter:weight" in needed)
    assert torch.allclose(of_x, incoming @ layer.weight if x.requires_grad else torch.zeros(3, 4))
    assert torch.allclose(of_w, incoming.T @ x if layer.weight.requires_grad else torch.zeros(5, 4))
    asked.begin(layer, call, PLAN, [incoming], None)()
    assert x.requires_grad and layer.weight.requires_grad


def test_parameters_and_inputs_are_asked_for_without_the_others_and_some_by_lot() -> None:
    names = ["input:0", "input:2", "parameter:a", "parameter:b"]
    seen = set()
    for seed in range(40):
        groups = asked.groups(names, random.Random(seed))
        assert groups[:2] == [names[2:], names[:2]]
        assert all(0 < len(group) < 4 and set(group) < set(names) for group in groups)
        seen |= {tuple(group) for group in groups}
    assert len(seen) > 8


@pytest.mark.parametrize("names", [[], ["input:0"]])
def test_one_alone_is_all_there_is(names: list[str]) -> None:
    assert asked.groups(names, random.Random(1)) == []


def test_what_is_turned_round_is_back_afterwards_and_torch_knows() -> None:
    """To the last bit, and to zeros of either sign; whole numbers stay, and what raises inside is back too."""
    values, whole = torch.tensor([[1e-45, -0.0, 3e38], [0.0, float("nan"), 1.1]]), torch.arange(4)
    before = values.clone()
    with pytest.raises(KeyError), turned([values, whole, values]):
        assert torch.equal(values[0, 0], -before[1, 2]) and torch.equal(whole, torch.arange(4))
        raise KeyError
    assert torch.equal(values.view(torch.int32), before.view(torch.int32)) and values._version > before._version


def test_views_that_overlap_are_back_too() -> None:
    """Turned back in reverse."""
    base = torch.arange(6.0)
    with turned([base[:4], base[2:]]):
        assert not torch.equal(base, torch.arange(6.0))
    assert torch.equal(base, torch.arange(6.0))


@pytest.mark.parametrize(("written", "minds"), [("", False), (INPUTS, True), (OUTPUTS, False)])
def test_torch_minds_what_is_written_that_it_needs(written: str, minds: bool) -> None:
    """A square needs its input, and not its output."""
    made = instance("x * x", "[torch.randn(4, 8)]", contract=GRADIENTS)
    leaves = made.draw(made.variants(3)[0], 5)
    if minds:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made.eager(leaves, None, written)
        return
    assert all(map(torch.equal, made.eager(leaves, None), made.eager(leaves, None, written)))
