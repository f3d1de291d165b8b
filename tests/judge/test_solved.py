# SPDX-License-Identifier: Apache-2.0
"""judge/solved.py: inputs that make a difference of two results small."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import solved
from kernelwright.judge.inputs import Variant, size_of
from kernelwright.judge.instance import Instance
from kernelwright.task import Contract

DRAW = Variant(name=solved.SOLVED, required=True, change=solved.SOLVED)
PLAIN = Variant(name="", required=True)
WEIGHT = "self.w = torch.nn.Parameter(torch.randn(12, 16) / 4)\nself.v = torch.nn.Parameter(torch.randn(10, 16) / 3)"
TWO = "[torch.randn(32, 12), torch.randn(32, {})]"
NORMALISED = "F.normalize(x @ self.w, dim=-1) - F.normalize(y, dim=-1)"
STANDARD = "v, m = torch.var_mean(y, -1, keepdim=True)\n        d = x @ self.w - (y - m) / (v + 1e-6).sqrt()\n"


def offered(made: Instance) -> bool:
    """Whether such a draw is, and means something."""
    return any(made.usable(variant, 3) for variant in made.offered(3) if variant.change == solved.SOLVED)


@pytest.mark.parametrize(
    ("apart", "inputs", "args"),
    [
        (NORMALISED, TWO.format(16), "x, y"),
        ("x @ self.w - y @ self.v", TWO.format(10), "x, y"),
        ("F.log_softmax(x @ self.w, -1) - F.log_softmax(y, -1)", TWO.format(16), "x, y"),
        ("x.mT @ x - torch.eye(8)", "[torch.randn(4, 16, 8)]", "x"),
        ("x.norm(dim=1) - 1", "[torch.randn(64, 16)]", "x"),
        ("1 - x.norm(dim=1)", "[torch.randn(64, 16)]", "x"),
        ("(x - x.mean(1, keepdim=True)) - x.diff(dim=1).mean(1, keepdim=True) * (torch.arange(16) - 7.5)",
         "[torch.randn(64, 16)]", "x"),
    ],
)  # fmt: skip
def test_a_difference_is_small_for_such_inputs(apart: str, inputs: str, args: str) -> None:
    """Of several sizes, by hundreds less than it is of inputs by lot, which keep theirs; the same for the same seed."""
    made = instance(f"({apart})", inputs, args=args, init=WEIGHT)
    assert offered(made)
    [plain] = made.eager(made.draw(PLAIN, 1), None)
    sizes = set()
    for seed in range(8):
        leaves = made.draw(DRAW, seed)
        assert all(map(torch.equal, leaves, made.draw(DRAW, seed)))
        assert all(size_of(leaf) > 1 / 32 for leaf in leaves)
        [out] = made.eager(leaves, None)
        sizes.add(round(float(torch.tensor(size_of(out)).log10())))
        assert 0 < size_of(out) < size_of(plain) / 20
    assert len(sizes) > 1


def test_gradients_of_a_call_are_left_alone_and_the_weights_too() -> None:
    made = instance(f"({NORMALISED})", TWO.format(16), args="x, y", init=WEIGHT, contract=GRADIENTS)
    assert offered(made)
    assert all(value.grad is None for value in made.model.parameters())
    assert all(torch.equal(value, made.model.state_dict()[name]) for name, value in made.first_state)


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("x @ self.w - y", TWO.format(16)),  # one side is an input: ``fitted``
        ("x @ self.w - (x @ self.w).mean(-1, keepdim=True) + y.sum()", TWO.format(16)),
        ("1 - torch.sigmoid(x @ self.w) + y.sum()", TWO.format(16)),
        ("x @ self.w + y @ self.v", TWO.format(10)),
        ("x @ self.w - y @ self.v", "[torch.rand(32, 12), torch.rand(32, 10)]"),  # nothing below zero comes in
        ("F.dropout(x @ self.w - y @ self.v)", TWO.format(10)),
    ],
)
def test_others_have_none(forward: str, inputs: str) -> None:
    lot = Contract(random="dropout" in forward)
    assert not offered(instance(forward, inputs, args="x, y", init=WEIGHT, contract=lot))


def test_what_cannot_be_small_is_left_as_it_is() -> None:
    made = instance("torch.cosh(x @ self.w) + 1 - torch.tanh(y)", TWO.format(16), args="x, y", init=WEIGHT)
    assert solved.of(made) == [] and not offered(made)
    assert all(map(torch.equal, made.draw(DRAW, 4), made.draw(PLAIN, 4)))


def test_a_call_of_many_multiply_adds_is_not_asked() -> None:
    """Of one there are some dozens."""
    specs = instance(f"({NORMALISED})", TWO.format(16), args="x, y", init=WEIGHT).specs
    traits = {solved.fitted.DIFFERS}
    assert solved.small_differences(specs, traits, 1) and not solved.small_differences(specs, set(), 1)
    assert not solved.small_differences(specs, traits, solved.WORK)
