# SPDX-License-Identifier: Apache-2.0
"""Gradients of some inputs and parameters alone, and as ``backward()`` leaves them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import asked
from kernelwright.judge.asked import INPUTS, OUTPUTS, turned
from kernelwright.judge.buffers import CallPlan, TensorSpec
from kernelwright.judge.calls import Given
from kernelwright.judge.gradients import apart

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


class _Shares(torch.autograd.Function):
    """A sum of two whose gradients are two tensors of one memory."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x + w

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        made = grad * 1.0
        return made, made.detach()


class _Sum(torch.nn.Module):
    def __init__(self, how: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight, self.how = torch.nn.Parameter(torch.randn(3, 4)), how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.how(x, self.weight)


@pytest.mark.parametrize(
    ("how", "names", "spoilt"),
    [
        (torch.add, ["input:0", "parameter:weight"], set()),
        (_Shares.apply, ["input:0", "parameter:weight"], {"parameter:weight"}),
        (_Shares.apply, ["parameter:weight"], {"input:0"}),
        (lambda x, w: x.view(-1).view(3, 4) + w, ["parameter:weight"], set()),
        (lambda x, w: x.view(-1).view(3, 4) + w, ["input:0"], {"incoming"}),
    ],
)
def test_what_shares_memory_with_a_gradient_is_emptied_with_it(how: Any, names: list[str], spoilt: set[str]) -> None:
    """The tensor that came in is copied for each; a view of it is not, and neither are two tensors of one memory."""
    layer, x, incoming = _Sum(how), torch.randn(3, 4), torch.randn(3, 4)
    before = incoming.clone()
    plan = CallPlan(arguments={}, inputs=(X,), results={}, outputs=(X,), sets=1, seeds=(0,),
                    gradients=(("input:0", X), ("parameter:weight", X)))  # fmt: skip
    _, found = asked.begin(layer, ([x], {}, [x]), plan, [incoming], None, names)()
    values = {"incoming": incoming, "input:0": found[0], "parameter:weight": found[1]}
    assert {name for name, value in values.items() if not torch.equal(value, before)} == spoilt
    assert x.grad is None and layer.weight.grad is None


@pytest.mark.parametrize(
    ("forward", "names"),
    [
        ("x + self.w", ["input:0", "parameter:w"]),
        ("torch.cat([x, self.w])", []),
        ("x.view(-1) + (2 * self.w).view(-1)", ["parameter:w"]),
        ("(x.unsqueeze(0) + self.w.unsqueeze(0)).sin()", []),
        ("x * 1.0", ["input:0", "parameter:w"]),
    ],
)
def test_gradients_that_share_memory_in_the_reference_are_known(forward: str, names: list[str]) -> None:
    """Parts and views of the incoming gradient, and two views of one; what has no gradient shares nothing."""
    init = "self.w = nn.Parameter(torch.randn(4, 8))"
    made = instance(forward, "[torch.randn(4, 8)]", init=init, contract=GRADIENTS)
    leaves = made.draw(made.variants(3)[0], 5)
    assert isinstance(leaves, Given) and apart(made, leaves, made.first_state) == names
    assert all(parameter.grad is None for parameter in made.model.parameters())
