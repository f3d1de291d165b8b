# SPDX-License-Identifier: Apache-2.0
"""The judge's arithmetic on a CUDA device: the same draws, oracle, floors and decoys as on the CPU."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import task

from kernelwright.judge.admission import admit
from kernelwright.judge.reference import Reference
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

TASKS = {
    "softmax": ("x.softmax(-1)", "[torch.randn(64, 1024)]", "", False),
    "product": ("x @ x.T", "[torch.randn(256, 512)]", "", False),
    "mean": ("x.mean()", "[torch.rand(64, 4096)]", "", False),
    "attention": ("F.scaled_dot_product_attention(x, x, x)", "[torch.randn(2, 2, 64, 32)]", "", False),
    "gradients": ("F.gelu(self.l(x))", "[torch.randn(32, 64)]", "self.l = nn.Linear(64, 32)", True),
    "norm": ("self.n(x)", "[torch.rand(4, 8, 16)]", "self.n = nn.GroupNorm(2, 8)", False),
    "lstm": ("self.l(x)", "[torch.randn(7, 3, 16)]", "self.l = nn.LSTM(16, 24)", False),
    "half": ("x @ x.T", "[torch.randn(64, 64).bfloat16()]", "", False),
    "loss": ("F.cross_entropy(x, x.argmax(1))", "[torch.randn(64, 100)]", "", False),
}


@pytest.mark.parametrize("name", TASKS)
def test_eager_passes_and_rounded_inputs_do_not(name: str) -> None:
    """Every variant: eager within a bit of itself; bfloat16 inputs refused in at least one, and the task admitted."""
    forward, inputs, init, gradients = TASKS[name]
    made = task(forward, inputs, init=init, contract=Contract(gradients=gradients))
    reference = Reference(made, "cuda")
    instance = reference.instance(made.timed_case())
    checker = Checker(instance, seed=1)
    low_passes = []
    for variant in instance.variants(3):
        leaves = instance.draw(variant, 5)
        state = instance.draw_state(6) if variant.fresh_weights else None
        right = instance.eager(leaves, state)
        assert {"cuda"} == {leaf.device.type for leaf in [*leaves, *right]}
        assert checker.check(variant, leaves, state, right, leaves).passed
        low = [leaf.bfloat16().to(leaf.dtype) if leaf.is_floating_point() else leaf for leaf in leaves]
        low_passes.append(checker.check(variant, leaves, state, instance.eager(low, state), leaves).passed)
    assert name == "half" or not all(low_passes)
    found = admit(reference)
    assert ((), True) == (found.reasons, found.admitted)


def test_tf32_products_are_refused() -> None:
    """The tensor cores' own rounding, not an emulation."""
    made = task("x @ x.T", "[torch.rand(256, 512)]")
    instance = Reference(made, "cuda").instance(made.timed_case())
    checker = Checker(instance, seed=1)
    variant = instance.variants(3)[0]
    leaves = instance.draw(variant, 5)
    right = instance.eager(leaves, None)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        low = leaves[0] @ leaves[0].T
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert checker.check(variant, leaves, None, right, leaves).passed
    assert not checker.check(variant, leaves, None, [low], leaves).passed
