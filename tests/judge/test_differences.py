# SPDX-License-Identifier: Apache-2.0
"""judge/differences.py, subtractions.py, ranges.py, approach.py: differences however they are written, made small."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import approach, ranges, solved, subtractions
from kernelwright.judge.inputs import Variant, size_of
from kernelwright.task import Contract

DRAW = Variant(name=solved.SOLVED, required=True, change=solved.SOLVED)
TRAINED = Variant(name=solved.TRAINED, required=True, change=solved.TRAINED, fresh_weights=True, moved=solved.TRAINED)
PLAIN = Variant(name="", required=True)
WEIGHT = "self.w = torch.nn.Parameter(torch.randn(12, 16) / 4)\nself.v = torch.nn.Parameter(torch.randn(10, 16) / 3)"
TWO = "[torch.randn(32, 12), torch.randn(32, {})]"
GAP = "torch.no_grad()(lambda a, b: a - b)"
HALVES = "[torch.randn(32, 12).half(), torch.randn(32, 16).bfloat16()]"


def offered(made: object) -> set[str]:
    """What of these draws is, and means something."""
    return {v.change for v in made.offered(3) if v.change in solved.CHANGES and made.usable(v, 3)}


@pytest.mark.parametrize(
    ("apart", "inputs"),
    [
        ("torch.add(x @ self.w, y.tanh(), alpha=-1)", TWO.format(16)),
        ("torch.sub(input=x @ self.w, other=y.tanh())", TWO.format(16)),
        ("torch.sub(x @ self.w, y.tanh(), alpha=2)", TWO.format(16)),
        ("torch.addmm(y.tanh(), x, self.w, alpha=-1)", TWO.format(16)),
        ("torch.baddbmm(y.tanh()[None], x[None], self.w[None], beta=-2)", TWO.format(16)),
        ("torch.addcdiv(x @ self.w, y.tanh(), torch.ones(()), value=-1)", TWO.format(16)),
        ("F.gaussian_nll_loss(x @ self.w, y.tanh(), torch.ones(32, 16), reduction='none')", TWO.format(16)),
        ("torch.stack([x @ self.w, y.tanh()]).diff(dim=0)", TWO.format(16)),
        ("torch.stack([x @ self.w, y.tanh()]).std(0)", TWO.format(16)),
        (f"{GAP}(x @ self.w, y.tanh())", TWO.format(16)),
        ("x @ self.w - y.tanh().detach()", TWO.format(16)),
        ("(x @ self.w).data - y.detach().tanh()", TWO.format(16)),
        ("x.float() @ self.w - y.float().tanh()", HALVES),
        ("x @ self.w + y.tanh()", TWO.format(16)),
        ("(x @ self.w)[:, None] - y.view(32, 4, 16).tanh()", TWO.format(64)),
        ("torch.tanh(y @ self.w[:, :12] + x) - y", TWO.format(12)),
    ],
)  # fmt: skip
def test_a_difference_is_small_however_it_is_written(apart: str, inputs: str) -> None:
    """The answer is by ten times and more less than of inputs by lot."""
    made = instance(f"({apart})", inputs, args="x, y", init=WEIGHT)
    assert solved.SOLVED in offered(made)
    [plain] = made.eager(made.draw(PLAIN, 1), None)
    for seed in range(3):
        leaves = made.draw(DRAW, seed)
        assert all(size_of(leaf) > 1 / 32 for leaf in leaves)
        assert 0 < size_of(made.eager(leaves, None)[0]) < size_of(plain) / 10
    assert all(torch.equal(value, made.model.state_dict()[name]) for name, value in made.first_state)


def test_residuals_of_three_terms_are_small() -> None:
    """Not by the first difference alone, beside which the third term is all that is left."""
    three = "[torch.randn(32, 12), torch.randn(32, 16), torch.randn(32, 10)]"
    made = instance("x @ self.w - y.tanh() + z @ self.v", three, args="x, y, z", init=WEIGHT)
    assert solved.SOLVED in offered(made)
    sizes = [size_of(made.eager(made.draw(DRAW, seed), None)[0]) for seed in range(8)]
    assert min(sizes) < 1 / 10 < 1 / 2 < max(sizes)


def test_scripted_functions_are_looked_into() -> None:
    """And are scripted again."""
    head = "@torch.jit.script\ndef gap(a, b):\n    return a - b"
    made = instance("gap(x @ self.w, y.tanh())", TWO.format(16), args="x, y", init=WEIGHT, head=head)
    assert solved.SOLVED in offered(made)
    assert size_of(made.eager(made.draw(DRAW, 1), None)[0]) < 1 / 10
    assert isinstance(made.reference.module.gap, torch.jit.ScriptFunction)


def test_scripted_modules_are_looked_into() -> None:
    """By the class that they were made of."""
    head = "class Gap(nn.Module):\n    def forward(self, a, b):\n        return a - b"
    init = f"{WEIGHT}\nself.gap = torch.jit.script(Gap())"
    made = instance("self.gap(x @ self.w, y.tanh())", TWO.format(16), args="x, y", init=init, head=head)
    assert solved.SOLVED in offered(made)
    assert size_of(made.eager(made.draw(DRAW, 1), None)[0]) < 1 / 10
    assert isinstance(made.model.gap.forward, torch._C.ScriptMethod)


@pytest.mark.parametrize(
    "nearest",
    ["torch.cdist(x @ self.w, y.tanh()).amin(1)", "((x @ self.w)[:, None] - y.tanh()).norm(dim=-1).amin(1)",
     "((x @ self.w).view(8, 4, 16) - y[:8].tanh()[:, None]).square().sum(-1).amin(1)"],
)  # fmt: skip
def test_the_nearest_of_several_is_near(nearest: str) -> None:
    """Of a difference of each from each those that come together: all of them would be one row."""
    made = instance(f"({nearest})", "[torch.randn(32, 12), torch.randn(24, 16)]", args="x, y", init=WEIGHT)
    assert solved.SOLVED in offered(made)
    leaves = made.draw(DRAW, 1)
    assert size_of(made.eager(leaves, None)[0]) < size_of(made.eager(made.draw(PLAIN, 1), None)[0]) / 10
    assert float(leaves[1].std(0).mean()) > 1 / 8


@pytest.mark.parametrize(
    ("apart", "inputs", "args"),
    [
        ("x @ self.w[:4] - y @ self.v[:6]", "[torch.randn(32, 4), torch.randn(32, 6)]", "x, y"),
        ("torch.tanh(x @ self.w) @ self.w.T - x", "[torch.randn(32, 12)]", "x"),
        ("torch.tanh(x @ self.w[:10]) - torch.tanh(x @ self.v)", "[torch.randn(32, 10)]", "x"),
        ("x @ self.w - y.tanh()", "[torch.rand(32, 12), torch.rand(32, 16)]", "x, y"),
        ("self.w[x].sin() - self.v[y].sin()", "[torch.randint(12, (32,)), torch.randint(10, (32,))]", "x, y"),
    ],
)
def test_weights_are_moved_where_inputs_alone_make_nothing_small(apart: str, inputs: str, args: str) -> None:
    """In draws with those weights; nothing is as small that all of it is, and inputs stay where they lie."""
    made = instance(f"({apart})", inputs, args=args, init=WEIGHT)
    found = offered(made)
    assert solved.TRAINED in found and solved.SOLVED not in found
    state = made.draw_state(7, solved.TRAINED)
    assert [name for name, _ in state] == [name for name, _ in made.first_state]
    assert any(not torch.equal(a, b) for (_, a), (_, b) in zip(state, made.first_state, strict=True))
    assert all(size_of(value) > 1 / 20 for _, value in state)
    plain = made.draw(PLAIN, 1)
    for seed in range(3):
        leaves = made.draw(TRAINED, seed)
        [out], [usual] = made.eager(leaves, state), made.eager(plain, None)
        assert 0 < size_of(out) < size_of(usual) / 10
        for leaf, other in zip(leaves, plain, strict=True):
            if leaf.is_floating_point() and float(other.min()) >= 0:
                assert 0 <= float(leaf.min()) and float(leaf.max()) <= 1
    assert all(torch.equal(value, made.model.state_dict()[name]) for name, value in made.first_state)


def test_weights_that_may_not_change_are_not_moved() -> None:
    frozen = Contract(frozen_parameters=True)
    apart = "torch.tanh(x @ self.w) @ self.w.T - x"
    made = instance(apart, "[torch.randn(32, 12)]", init=WEIGHT, contract=frozen)
    assert offered(made) == set()


def test_buffers_that_are_written_under_no_grad_know_nothing_of_a_call() -> None:
    """A second call of a model that keeps a mean of what is detached has gradients too."""
    body = "(self.m.mul_(0.9).add_((x @ self.w).mean(0).detach()), x @ self.w - y.tanh())[1]"
    init = (
        WEIGHT + "\nself.register_buffer('m', torch.zeros(16))\nself.register_buffer('u', torch.zeros(4, 4).view(16))"
    )
    made = instance(body, TWO.format(16), args="x, y", init=init, contract=Contract(training=True))
    search = approach.Search(made)
    for _ in range(2):
        [taken] = search._run(search._start)
        assert search._reached(taken.apart) == [0, 1]
        assert made.model.m.grad_fn is None


@pytest.mark.parametrize(
    ("leaf", "moves"),
    [
        (torch.rand(8, 8), True),
        (torch.rand(8, 8) + 3, True),
        (torch.rand(8, 8).half(), True),
        (torch.randn(8, 8), False),
        (torch.rand(8, 8).softmax(-1), False),
        (torch.rand(8).softmax(0), False),
        (torch.rand(8, 8).cumsum(1), False),
        (torch.randint(0, 9, (8, 8)).float(), False),
        (torch.randint(0, 9, (8, 8)), False),
        (torch.full((8,), 2.0), False),
    ],
)
def test_what_lies_in_a_range_is_moved_in_it(leaf: torch.Tensor, moves: bool) -> None:
    """Not what adds up, is in order, or whole."""
    assert (0 in ranges.of([leaf])) is moves
    for ends in ranges.of([leaf]).values():
        placed = ranges.placed(leaf.float(), ends)
        assert torch.allclose(ranges.value(placed, ends), leaf.float(), atol=1e-5)
        far = ranges.value(placed * 100 + 3, ends)
        assert ends[0] <= float(far.min()) and float(far.max()) <= ends[1]


def test_sides_are_what_is_taken_from_each_other() -> None:
    one, other = torch.randn(2, 4, 4)

    def apart(name: str, *args: object, **more: object) -> torch.Tensor | None:
        sides = subtractions.of(name, args, more)
        return None if sides is None else sides.one + sides.other if sides.sums else sides.one - sides.other

    assert torch.allclose(apart("add", one, other, alpha=-3), one - 3 * other)
    assert torch.allclose(apart("sub", one, other, alpha=-1), one + other)
    assert torch.allclose(apart("addmm", one, one, other, alpha=-2), one - 2 * one @ other)
    assert torch.allclose(apart("addcmul", one, one, other, value=-2), one - 2 * one * other)
    assert torch.allclose(apart("addmm", one, one, other, beta=-1), one - one @ other)
    assert torch.allclose(apart("mse_loss", input=one, target=other), one - other)
    assert torch.allclose(apart("diff", one, dim=0), one.diff(dim=0))
    assert torch.allclose(apart("add", one, -2.0), one - 2) and apart("add", one, 2.0) is None
    assert apart("addmm", one[0], one, other) is None, "a bias"
    assert apart("add", one, other, alpha=1j) is None and apart("add", 1, 2) is None
    assert apart("addmm", one, one, other, alpha=1j) is None
    assert apart("var", torch.randn(64, 4), 0) is None and apart("diff", one, 2) is None
