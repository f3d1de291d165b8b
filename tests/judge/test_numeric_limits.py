# SPDX-License-Identifier: Apache-2.0
"""Limits of a type that a reference asks for: in float64 they are those of its own."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge.inputs import Variant
from kernelwright.judge.numeric_limits import Limits
from kernelwright.judge.verify import Checker

GIVEN = Variant(name="as given", required=True)
SMALL = Variant(name="small", required=True, scale=1e-3)
FILL, WITHIN = (
    "x.masked_fill(x < 0, torch.finfo(x.dtype).min)",
    "(lambda i: (x.relu() + i.tiny).clamp(min=i.eps).log())",
)
IDS = "[torch.randint(0, 8, (4, 8)), (torch.rand(4, 8) > 0.3).long()]"
TABLES = (
    "self.a, self.b, self.c = nn.Embedding(8, 32), nn.Embedding(8, 32), nn.Embedding(8, 32)\nself.n = nn.LayerNorm(32)"
)
EMBEDDED = (
    "(lambda e: (self.n(e), (1 - m[:, None].to(e.dtype)) * torch.finfo(e.dtype).min))"
    "(self.a(x) + self.b(m) + self.c(7 - x))"
)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_mask_is_filled_with_the_least_number_of_its_own_type(dtype: str) -> None:
    """Of float64 too, where the reference is written in that."""
    made = instance(FILL, f"[torch.randn(4, 8).to(torch.{dtype})]")
    exact, kind = made.oracle(made.draw(GIVEN, 3), None)
    assert torch.finfo(getattr(torch, dtype)).min == float(exact[0].min()) and kind == "float64"


@pytest.mark.parametrize("forward", [f"{WITHIN}(torch.finfo(x.dtype))", f"{WITHIN}(torch.finfo())"])
def test_so_are_what_guards_a_logarithm_and_what_is_added(forward: str) -> None:
    made = instance(forward, "[torch.randn(4, 8)]")
    exact = made.oracle(made.draw(GIVEN, 3), None)[0][0]
    assert float(exact.min()) == pytest.approx(float(torch.tensor(2.0**-23).log()))


def test_each_question_has_its_own_answer() -> None:
    """Of two types in one call, and of one that is named."""
    forward = "(x * torch.finfo(x.dtype).eps, y * torch.finfo(y.dtype).eps, x * torch.finfo(torch.float16).eps)"
    made = instance(forward, "[torch.ones(4), torch.ones(4).double()]", args="x, y")
    exact = made.oracle([torch.ones(4), torch.ones(4).double()], None)[0]
    assert [2.0**-23, 2.0**-52, 2.0**-10] == [float(out[0]) for out in exact]


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-6), ("bfloat16", 1e-2), ("float64", 1e-14)])
def test_a_norm_without_a_guard_has_that_of_its_own_type(dtype: str, most: float) -> None:
    """Of inputs of a thousandth float64's was 10 % off; a norm by name, and of the module."""
    for forward, init in (("F.rms_norm(x, (8,))", ""), ("self.n(x)", f"self.n = nn.RMSNorm(8, dtype=torch.{dtype})")):
        made = instance(forward, f"[torch.randn(4, 8).to(torch.{dtype})]", init=init)
        leaves = made.draw(SMALL, 3)
        exact = made.oracle(leaves, None)[0][0]
        torch.testing.assert_close(made.eager(leaves, None)[0].double(), exact, rtol=most, atol=0.0)


def test_the_judge_itself_and_what_was_never_asked_have_float64s() -> None:
    """And torch.finfo is its own again afterwards."""
    limits, before = Limits(), (torch.finfo, torch.rms_norm)
    with limits.again():
        assert torch.finfo(torch.float64).eps == 2.0**-52
    with limits.noted():
        torch.finfo(torch.float32)
    with limits.again():
        judges = eval("torch.finfo(torch.float64).eps", {"torch": torch, "__name__": "kernelwright.judge.some"})
        assert [torch.finfo(torch.float64).eps for _ in range(3)] == [2.0**-23] * 3 and judges == 2.0**-52
    assert (torch.finfo, torch.rms_norm) == before


def test_sums_in_another_order_beside_a_mask_are_held_against_float64() -> None:
    """Inputs are whole numbers alone; refused in 4 of 4 judgements by orders of summation, which were all alike."""
    made = instance(EMBEDDED, IDS, init=TABLES, args="x, m")
    checker, ratios = Checker(made, seed=3), []
    for seed in range(8):
        x, m = leaves = made.draw(GIVEN, seed)
        e = made.model.a(x) + (made.model.c(7 - x) + made.model.b(m))
        mask = (1 - m[:, None].float()) * torch.finfo(torch.float32).min
        ratios.append(checker.check(GIVEN, leaves, None, [made.model.n(e).detach(), mask], leaves).error_ratio)
        got = checker.check(GIVEN, leaves, None, [made.model.n(e.bfloat16().float()).detach(), mask], leaves)
        assert not got.passed
    assert max(ratios) <= 2.0 and checker.oracle.startswith("float64")
