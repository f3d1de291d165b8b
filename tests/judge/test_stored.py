# SPDX-License-Identifier: Apache-2.0
"""Half precision rounds what each operator stores: who rounds elsewhere passes, who loses more does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import stored
from kernelwright.judge.inputs import Variant, generator
from kernelwright.judge.verify import Checker
from kernelwright.trial import CaseResult

GIVEN = Variant(name="as given", required=True)
CROSSED = "x * c - y * c"
KINDS = {"float16": "half", "bfloat16": "bfloat16"}
Program = Callable[..., torch.Tensor]


def checked(program: Program, kind: str, seed: int = 0) -> CaseResult:
    """What is said of an answer to products that are equal but in a few rows: eager's differences are zeros there."""
    inputs = "(lambda x: [x, torch.cat([x[:-16], torch.randn(16, 96)]), torch.randn(512, 96)])(torch.randn(512, 96))"
    inputs = f"[one.{KINDS[kind]}() for one in {inputs}]"
    checker = Checker(instance(CROSSED, inputs, args="x, y, c"), seed=3)
    leaves = checker.instance.draw(GIVEN, seed)
    return checker.check(GIVEN, leaves, None, [program(*leaves)], leaves)


def fused(x: torch.Tensor, y: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """One product rounded, the other one not: a fused multiply-add."""
    return (x.double() * c.double() - (y * c).double()).to(x.dtype)


def wide(x: torch.Tensor, y: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return (x.double() * c.double() - y.double() * c.double()).to(x.dtype)


def coarse(x: torch.Tensor, y: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """A product with three bits less."""
    return (x * c - (y * c * 8 + y * c - y * c * 8)).to(x.dtype) + (y * c) * 2.0**-7


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("program", [fused, wide])
def test_one_rounding_less_passes(program: Program, kind: str) -> None:
    assert all(checked(program, kind, seed).passed for seed in range(3))


@pytest.mark.parametrize("kind", list(KINDS))
def test_without_these_draws_it_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored.Further, "_is_half", lambda self, output: False)
    assert not checked(fused, kind).passed


def test_a_coarser_product_is_refused() -> None:
    assert not any(checked(coarse, "float16", seed).passed for seed in range(3))


def test_a_bias_may_be_added_to_a_product_that_was_stored() -> None:
    """In float32 eager adds it before it rounds: sums that cancel have few bits left else."""
    fc = "self.fc = nn.Linear(128, 96).bfloat16()"
    asked = instance("self.fc(x)", "[torch.randn(512, 128).bfloat16()]", init=fc)
    checker, layer = Checker(asked, seed=3), dict(asked.first_state)
    for seed in range(3):
        leaves = asked.draw(GIVEN, seed)
        product = leaves[0] @ layer["fc.weight"].T
        answers = product + layer["fc.bias"], product + layer["fc.bias"] + product * 2.0**-5
        passed = [checker.check(GIVEN, leaves, None, [one], leaves).passed for one in answers]
        assert passed == [True, False]


def test_operands_of_products_may_be_in_half_precision() -> None:
    """The weights of attention of a reference that is in float32 inside; not in a format of three bits."""
    forward = "(torch.softmax(q.float() @ k.float().mT * 0.125, -1) @ v.float()).to(q.dtype)"
    asked = instance(forward, "[torch.randn(2, 96, 64).bfloat16() for _ in range(3)]", args="q, k, v")
    checker = Checker(asked, seed=3)
    for seed in range(3):
        q, k, v = leaves = asked.draw(GIVEN, seed)
        weights = torch.softmax(q.float() @ k.float().mT * 0.125, -1)
        answers = [(weights.to(kind).float() @ v.float()).bfloat16() for kind in (torch.bfloat16, torch.float8_e4m3fn)]
        passed = [checker.check(GIVEN, leaves, None, [one], leaves).passed for one in answers]
        assert passed == [True, False]


def test_weights_beside_what_is_in_float32_on_purpose_are_no_such_operands() -> None:
    """Of places in an image, which a flow is the difference of: 12 times the error of eager was granted."""
    forward = "(torch.softmax(a @ b.mT, -1) @ g - g).bfloat16()"
    inputs = "(lambda a: [a, a + 0.1 * torch.randn(256, 32), 8.0 * torch.arange(256.0)[:, None]])(torch.randn(256, 32))"
    asked = instance(forward, inputs, args="a, b, g")
    checker = Checker(asked, seed=3)
    a, b, g = leaves = asked.draw(GIVEN, 1)
    weights = torch.softmax(a @ b.mT, -1)
    for kept, passes in ((weights, True), (weights.bfloat16().float(), False)):
        assert checker.check(GIVEN, leaves, None, [(kept @ g - g).bfloat16()], leaves).passed is passes


@pytest.mark.parametrize(
    ("values", "half"),
    [
        ("v.float()", True),
        ("v.float() + p", False),
        ("v.float().add_(p)", False),
        ("(lambda w: (torch._foreach_add_([w], [p]), w)[1])(v.float())", False),
    ],
)
def test_halves_in_a_wider_type_are_halves_until_they_are_written_to(values: str, half: bool) -> None:
    """A position added in place, in float32: who rounded the sum as an operand was granted, 22 times further off."""
    inputs = "[torch.randn(64, 64), torch.randn(64, 8).half(), torch.rand(64, 8)]"
    asked = instance(f"(s @ ({values})).half()", inputs, args="s, v, p")
    leaves = asked.draw(GIVEN, 1)
    with (seen := stored._Seen()):
        asked.eager(leaves, None)
    assert [[False, half]] == [halves for func, _, halves in seen.kinds if func is torch.ops.aten.mm.default]


def test_scores_of_thousands_are_still_held_against_float64() -> None:
    """Two that round to one number share what one of them has alone in float64, and eager's gradients are others by
    all of their size: its own sums in other orders were the oracle once, and float64's own numbers wrong."""
    inputs = "[torch.randn(2, 256, 64).bfloat16() for _ in range(3)]"
    asked = instance("torch.softmax(q @ k.mT / 8, -1) @ v", inputs, args="q, k, v", contract=GRADIENTS)
    checker, off = Checker(asked, seed=3), []
    for seed in range(8):
        leaves = asked.draw(Variant(name="sizes", required=True, change="sizes by lot", factors=(1000.0,)), seed)
        eager, exact = asked.eager(leaves, None), asked.oracle(leaves, None)[0]
        off.append(float((eager[2].double() - exact[2]).norm() / exact[2].norm()))
        assert checker.check(GIVEN, leaves, None, [one.bfloat16() for one in exact], leaves).passed
    assert max(off) > 10.0 and checker.oracle == "float64"


def test_a_sum_in_half_precision_is_refused() -> None:
    checker = Checker(instance("x.sum(-1)", "[torch.randn(32, 4096).half()]"), seed=3)
    leaves = checker.instance.draw(GIVEN, 0)
    running = torch.zeros(32, dtype=torch.float16)
    for column in leaves[0].unbind(1):
        running = running + column
    assert not checker.check(GIVEN, leaves, None, [running], leaves).passed


def test_draws_err_as_eager_does() -> None:
    """Of eight operators in a row, each stored in half precision."""
    forward, inputs = "(x * 1.1).sin().add(y).mul(y).exp().div(3.0).tanh().mul(x)", "[torch.randn(512).half()] * 2"
    asked = instance(forward, inputs, args="x, y")
    leaves = asked.draw(GIVEN, 1)
    with (seen := stored._Seen()):
        eager = asked.eager(leaves, None)[0]
    exact = asked.oracle(leaves, None)[0][0]
    drawn = asked.doubled(leaves, None, mode := stored.Stored(seen.kinds, torch.float16, generator(1, "cpu")))[0]
    assert mode.known
    honest, mine = ((one.double() - exact).square().mean().sqrt() for one in (eager, drawn))
    assert 0.7 < float(mine / honest) < 1.4


def test_other_operators_than_those_seen_are_noticed() -> None:
    asked = instance("x.sin()", "[torch.randn(8).half()]")
    leaves = asked.draw(GIVEN, 1)
    asked.doubled(leaves, None, mode := stored.Stored([], torch.float16, generator(1, "cpu")))
    assert not mode.known


def test_the_sum_in_the_gradient_of_a_softmax_may_be_taken_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As fused attention takes it, of an answer in half precision, where one weight is nearly 1: little else is off
    there. Of an answer in bfloat16 it is off by more."""
    keys = "torch.cat([20 * torch.randn(4, 1, 32), torch.randn(4, 63, 32)], 1)"
    inputs = f"[one.half() for one in (torch.randn(4, 64, 32), {keys}, torch.randn(4, 64, 32))]"
    asked = instance("torch.softmax(q @ k.mT * 0.25, -1) @ v", inputs, args="q, k, v", contract=GRADIENTS)
    leaves = asked.draw(GIVEN, 1)
    exact = asked.oracle(leaves, None)[0][1]
    with (seen := stored._Seen()):
        asked.eager(leaves, None)
    q, k, v = (leaf.float() for leaf in leaves)
    weights = torch.softmax(q @ k.mT * 0.25, -1)
    sure = (weights.amax(-1) > 0.99) & (weights.amax(-1) < 0.9998)

    def error(found: torch.Tensor) -> float:
        return float((found.double() - exact)[sure].square().mean().sqrt())

    def drawn() -> float:
        mode = stored.Stored(seen.kinds, torch.float16, generator(1, "cpu"))
        return error(asked.doubled(leaves, None, mode)[1])

    def fused(kept: torch.dtype) -> float:
        assert asked.incoming is not None
        incoming, answer = asked.incoming[0].float(), (weights.half().float() @ v).to(kept).float()
        inner = weights * (incoming @ v.mT - (incoming * answer).sum(-1, keepdim=True))
        return error((inner.half().float() * 0.25 @ k).half())

    honest, coarse, allowed = fused(torch.float16), fused(torch.bfloat16), drawn()
    monkeypatch.setattr(stored._Weighed, "off", lambda *args: None)
    without = drawn()
    assert 2 * without < honest < 1.25 * allowed < coarse / 4
