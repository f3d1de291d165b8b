# SPDX-License-Identifier: Apache-2.0
"""Scores that a mask fills by addition, all of a row at once: every float32 program weighs alike there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import filled, logarithms
from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker

GIVEN = Variant(name="as given", required=True)
PADDED = "(torch.rand(4, 1, 12) < 0.8).float()"
INPUTS = f"[torch.randn(4, 12, 16), torch.randn(4, 12, 16), torch.randn(4, 12, 16), {PADDED}]"
CAUSAL = "torch.ones(12, 12).triu(1) * -1e9"
WAYS = (
    f"((q @ k.transpose(1, 2) / 4 + {CAUSAL} + p * -1e9).softmax(-1)) @ v",
    f"((q @ k.transpose(1, 2) / 4).add_({CAUSAL}).add_(p * -1e9).softmax(-1)) @ v",
    f"((q @ k.transpose(1, 2) / 4 - (1e9 * p - {CAUSAL})).softmax(-1)) @ v",
)
"""Early rows see padding alone, and later places of it are masked twice."""


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """The mask comes first, scores are added to it product by product, sums of exponentials in two halves."""
    scores = torch.ones(12, 12).triu(1) * -1e9 + p * -1e9
    for at in range(16):
        scores = scores + q[:, :, None, at] * (k[:, None, :, at] * 0.25)
    most = scores.amax(-1, keepdim=True)
    weights = (scores - most).exp()
    return (weights[..., :6] @ v[:, :6] + weights[..., 6:] @ v[:, 6:]) / weights.sum(-1, keepdim=True)


def ones(q: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """No answer."""
    return torch.ones_like(q)


def by_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Rows that are filled weigh by their scores, as they do in float64."""
    scores = (q @ k.transpose(1, 2) / 4).double() + torch.ones(12, 12).double().triu(1) * -1e9 + p.double() * -1e9
    return scores.softmax(-1).float() @ v


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("program", "passes"), [(fused, True), (ones, False), (by_scores, False)])
def test_attention_is_held_to_its_rounding_beside_rows_that_a_mask_fills(
    way: str, program: Callable[..., torch.Tensor], passes: bool
) -> None:
    """Added and subtracted, in place too. Answers of ones passed before, and so did weights by scores."""
    made = instance(way, INPUTS, args="q, k, v, p")
    leaves = made.draw(GIVEN, 3)
    checker = Checker(made, seed=3)
    assert passes is checker.check(GIVEN, leaves, None, [program(*leaves)], leaves).passed
    assert made.oracle(leaves, None)[1] == "float64"


def test_such_rows_are_as_exact_as_those_of_one_number() -> None:
    """Their logarithm, 1e9, is none by which gradients are excused."""
    made = instance(WAYS[0], INPUTS, args="q, k, v, p", contract=GRADIENTS)
    assert logarithms._largest(made, made.draw(GIVEN, 3), None).size < 100.0


def test_only_sums_and_products_of_plain_numbers_are_looked_at() -> None:
    """A sparse sum has no largest number that torch would tell, and other operators put in nothing."""
    far, add = torch.full((2, 3), -1e9, dtype=torch.float64), torch.ops.aten.add.Tensor
    assert filled.found(add, {}, far)
    assert not filled.found(add, {}, far.to_sparse())
    assert not filled.found(add, {"alpha": 2}, far) and not filled.found(torch.ops.aten.div.Tensor, {}, far)
