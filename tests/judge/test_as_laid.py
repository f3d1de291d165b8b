# SPDX-License-Identifier: Apache-2.0
"""Half precision where inputs do not lie in order: the operator itself, on inputs put in order, is honest."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from plain_tasks import instance

from kernelwright.judge import almost, weights
from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker

REPEATED = Variant(name=almost.REPEATED, required=True, change=almost.REPEATED)
PATTERNED = Variant(name="weights with a pattern", required=True, fresh_weights=True, moved=weights.PATTERNED)
STRIDED = Variant(name="strided inputs", required=True, layout="strided")
QKV = "[t.bfloat16() for t in torch.randn(3, 2, 4, 64, 32).unbind()]"


def test_the_operator_on_inputs_put_in_order_passes_and_less_does_not() -> None:
    """Torch's attention on a CPU rounds probabilities to bfloat16 for inputs in order alone; then it lost 4.8 bits."""
    checker = Checker(instance("F.scaled_dot_product_attention(q, k, v, is_causal=True)", QKV, args="q, k, v"), seed=3)
    leaves = checker.instance.draw(STRIDED, 1)
    assert not any(leaf.is_contiguous() for leaf in leaves)
    q, k, v = (leaf.contiguous() for leaf in leaves)

    def passed(out: torch.Tensor) -> bool:
        return checker.check(STRIDED, leaves, None, [out], leaves).passed

    scores = (q.float() @ k.float().mT) * 32**-0.5
    scores = scores.masked_fill(torch.ones(64, 64, dtype=torch.bool).triu(1), float("-inf"))
    assert passed(F.scaled_dot_product_attention(q, k, v, is_causal=True))
    assert passed(scores.softmax(-1).bfloat16() @ v)
    assert not passed((scores.to(torch.float8_e5m2).float().softmax(-1) @ v.float()).bfloat16())
    assert not passed((scores.softmax(-1) @ v.float().to(torch.float8_e4m3fn).float()).bfloat16())


def test_float32_is_judged_by_the_call_as_it_lies() -> None:
    """There the honest error is known without another kernel's."""
    checker = Checker(instance("x.softmax(-1)", "[torch.randn(16, 64)]"), seed=3)
    leaves = checker.instance.draw(STRIDED, 1)
    before = checker.instance.eager
    calls: list[bool] = []

    def counted(given: list[torch.Tensor], state: object) -> list[torch.Tensor]:
        calls.append(given[0].is_contiguous())
        return before(given, state)

    checker.instance.eager = counted  # type: ignore[method-assign,assignment]
    assert checker.check(STRIDED, leaves, None, [leaves[0].softmax(-1)], leaves).passed
    assert [False] == calls


@pytest.mark.parametrize("variant", [REPEATED, PATTERNED])
def test_roundings_that_a_pattern_lines_up_are_allowed_for(variant: Variant) -> None:
    """A few bits of float32 where inputs or weights have one, no more; none elsewhere or of half precision."""
    init = "self.w = nn.Parameter(torch.randn(64))"
    checker = Checker(instance("(x * self.w).softmax(-1)", "[torch.randn(16, 64)]", init=init), seed=3)
    half = Checker(instance("x.softmax(-1)", "[torch.randn(16, 64).bfloat16()]"), seed=3)

    def passed(variant: Variant, checker: Checker, times: float) -> bool:
        leaves = checker.instance.draw(variant, 1)
        state = checker.instance.draw_state(1, variant.moved) if checker.instance.first_state else None
        truth = checker.truth(variant, leaves, state)
        exact, lost = truth.exact[0], 2.0**-23 if truth.eager[0].dtype is torch.float32 else 2.0**-7
        wrong = (exact * (1 + times * lost)).to(truth.eager[0].dtype)
        return checker.check(variant, leaves, state, [wrong], leaves).passed

    assert passed(variant, checker, 12) and not passed(variant, checker, 1000)
    assert not passed(Variant(name="as given", required=True), checker, 12)
    assert not passed(REPEATED, half, 12)


def test_a_mean_that_leaves_out_a_part_of_one_row_is_no_rounding() -> None:
    """Rows that are alike round alike, so the honest error of their mean is a hundred times that of others already;
    sixteen times as much was more than a loss errs by that takes rows for single ones of which one is not."""
    inputs = "[torch.randn(128, 40), torch.randn(128, 40).softmax(-1)]"
    forward = "-(t * F.log_softmax(x, -1)).sum(-1).mean()"
    checker = Checker(instance(forward, inputs, args="x, t"), seed=3)
    variant = Variant(name=almost.SET, required=True, change=almost.SET)
    x, t = leaves = checker.instance.draw(variant, 1)
    x.zero_()[5, 6] = 1.0
    t.copy_(torch.eye(40).repeat(4, 1)[:128])[70, 3] = 0.03
    assert checker.check(variant, leaves, None, [-(t * F.log_softmax(x, -1)).sum(-1).mean()]).passed
    assert not checker.check(variant, leaves, None, [F.cross_entropy(x, t.argmax(-1))]).passed
