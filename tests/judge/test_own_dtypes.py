# SPDX-License-Identifier: Apache-2.0
"""References that look at dtypes run in float64, told those of their own run."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance
from kernelwright.judge.oracle import Float64Trace
from kernelwright.judge.verify import Checker

GIVEN = Variant(name="as given", required=True)
HEAD = """
def ok(x, dtype=torch.float32):
    if x.dtype is not dtype:
        raise TypeError("another dtype")
    return x


def half(x):
    return ok(x.half(), torch.float16).float()


def repeated(x):
    for _ in range(3 if float(x.sum() - x.double().sum()) == 0.0 else 2):
        x = ok(x) * 0.5 + half(x)
    return x


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        assert x.dtype == torch.float32
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2
"""
ROWS = "[torch.randn(16, 64)]"


def drawn(forward: str, inputs: str = ROWS, **more: object) -> tuple[Instance, list[torch.Tensor]]:
    """A reference and a draw of its inputs."""
    made = instance(forward, inputs, head=HEAD, **more)
    return made, made.draw(GIVEN, 1)


@pytest.mark.parametrize(
    ("forward", "twin"),
    [
        ("ok(x).exp()", "x.exp()"),
        ("ok(ok(x).half(), torch.float16).float() * 3", "x * 3"),
        ("ok(x.half().float() / 3).bfloat16().float()", "x / 3"),
        ("ok(x) @ ok(torch.empty(64, 64, dtype=x.dtype).fill_(0.1))", "x @ torch.full((64, 64), 0.1)"),
        ("ok(x) + torch.full((64,), 0.1, dtype=torch.float32)", "x + torch.full((64,), 0.1)"),
        ("ok(x) + torch.full((64,), 0.1).to(x.dtype)", "x + torch.full((64,), 0.1)"),
        ("ok(x.double().cumsum(-1).to(x.dtype))", "x.cumsum(-1)"),
        ("ok(x).masked_fill(x < 0, torch.finfo(x.dtype).min)", "x.masked_fill(x < 0, torch.finfo(x.dtype).min)"),
        ("ok(self.w) * x", "self.w * x"),
        ("Twice.apply(x)", "x * 2"),
        ("x * (1 if x.type() == 'torch.FloatTensor' else None)", "x"),
        ("x * (1 if x.element_size() == x.itemsize == 4 else None)", "x"),
        ("x * (1 if torch.result_type(x, 1.0) == torch.float32 else None)", "x"),
        ("x * torch.tensor([1, 0][x.half().dtype.itemsize - 2])", "x"),
    ],
)
def test_it_computes_what_it_does_without_looking(forward: str, twin: str) -> None:
    """To the last bit of float64, whatever it converts on the way."""
    init = "self.w = nn.Parameter(torch.rand(64))"
    made, leaves = drawn(forward, init=init)
    plain, _ = drawn(twin, init=init)
    exact, kind = made.oracle(leaves, None)
    assert torch.equal(plain.doubled(leaves, None, Float64Trace())[0], exact[0]) and exact[0].dtype is torch.float64
    if "itemsize - 2" not in forward:
        assert "float64-trace" == kind and made.own_dtypes.why
        assert ["the reference looks at dtypes"] == [note.partition(":")[0] for note in made.notes]


def test_it_is_tried_only_where_float64_fails() -> None:
    """What runs without being told is told nothing, and what fails all the same is judged by orders, as it says."""
    made, leaves = drawn("x.to(torch.zeros(1, dtype=x.dtype).dtype) * 2")
    assert "float64" in made.oracle(leaves, None)[1] and not made.own_dtypes.tried and not made.notes
    made, leaves = drawn("ok(x).view(torch.int32).view(torch.float32)")
    assert "orders-of-summation" == made.oracle(leaves, None)[1]
    assert ["the reference is judged by 6 orders of summation: it does not run in float64 (TypeError)"] == made.notes
    assert made.own_dtypes.tried and not made.own_dtypes.why
    made, leaves = drawn("x.view(torch.int32).view(torch.float32)")
    assert "orders-of-summation" == made.oracle(leaves, None)[1] and not made.own_dtypes.said


def test_who_computes_something_else_for_another_dtype_is_told_too() -> None:
    """A run that does not raise, but disagrees with eager."""
    made, leaves = drawn("x.sum(-1) * (1 if x.dtype == torch.float32 else 3)")
    checker = Checker(made)
    assert checker.check(GIVEN, leaves, None, [leaves[0].sum(-1)], leaves).passed
    assert not checker.check(GIVEN, leaves, None, [leaves[0].sum(-1) * 3], leaves).passed
    assert "float64-trace" == checker.oracle and not made.without_double
    assert made.notes[0].endswith("disagrees with its own result by far more than rounding")


def test_a_run_that_disagrees_all_the_same_is_not_trusted() -> None:
    made, leaves = drawn("ok(x) * (1 if torch.get_default_dtype() == torch.float32 else 3)")
    checker = Checker(made)
    assert checker.check(GIVEN, leaves, None, [leaves[0].clone()], leaves).passed
    assert "orders-of-summation" == checker.oracle and "disagrees" in made.without_double
    assert 1 == len(made.notes) and not made.own_dtypes.why


def test_a_loop_of_more_steps_is_told_at_each_place_what_it_read_there() -> None:
    """Of float32 and of float16 in turn, which become one in float64."""
    made, leaves = drawn("repeated(x)")
    assert float(leaves[0].sum() - leaves[0].double().sum()) != 0.0
    exact = leaves[0].double()
    for _ in range(3):
        exact = exact * 0.5 + exact
    assert torch.equal(exact, made.oracle(leaves, None)[0][0])


def test_parts_of_this_package_and_operators_see_what_there_is() -> None:
    """Gradients, and honest errors of operators that are taken apart."""
    made, leaves = drawn("ok(F.layer_norm(ok(x), (64,))).softmax(-1)", contract=GRADIENTS)
    assert "float64-trace" == made.oracle(leaves, None)[1]
    checker = Checker(made)
    grown = leaves[0].clone().requires_grad_()
    out = F_layer_norm(grown).softmax(-1)
    made.adopt(leaves)
    assert made.incoming is not None
    (grad,) = torch.autograd.grad(out, grown, made.incoming)
    assert checker.check(GIVEN, leaves, None, [out.detach(), grad], leaves).passed
    off = [out.detach(), grad * (1 + 1e-4)]
    assert not checker.check(GIVEN, leaves, None, off, leaves).passed


def F_layer_norm(x: torch.Tensor) -> torch.Tensor:  # noqa: N802
    """In two passes."""
    u = x - x.mean(-1, keepdim=True)
    return u * torch.rsqrt(u.square().mean(-1, keepdim=True) + 1e-5)


def test_borders_of_a_quantiser_that_asserts_are_asked() -> None:
    """By a reciprocal codes fall to the other side, and arithmetic in bfloat16 is refused as ever."""
    made, _ = drawn("torch.round(ok(x) / (x.abs().amax(-1, keepdim=True) / 127)).to(torch.int8)",
                    "[torch.randn(512, 1024)]")  # fmt: skip
    checker = Checker(made, seed=3)
    for seed in range(40):
        leaves = made.draw(GIVEN, seed)
        (x,), eager = leaves, made.eager(leaves, None)[0]
        got = torch.round(x * (127 / x.abs().amax(-1, keepdim=True))).to(torch.int8)
        if not torch.equal(got, eager):
            break
    assert not torch.equal(got, eager)
    assert checker.check(GIVEN, leaves, None, [got], leaves).passed
    low = x.bfloat16()
    wrong = torch.round(low / (low.abs().amax(-1, keepdim=True) / 127)).to(torch.int8)
    assert not checker.check(GIVEN, leaves, None, [wrong], leaves).passed
