# SPDX-License-Identifier: Apache-2.0
"""Programs as everybody writes them that the judge once refused for what its processes lack: a folder that torch's
compiler wants as soon as it is imported (by checkpoints, custom operators, flex_attention), though they compile nothing;
Triton's interpreter, on a CPU, where torch's compiler had imported Triton before the program asked for it.
"""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import Program, honest, module

OPERATOR = """
from torch import library


@library.custom_op("kwcorpus::gelu_of", mutates_args=())
def gelu_of(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * 1.7) + 0.5 * x


@gelu_of.register_fake
def _(x):
    return torch.empty_like(x)
"""
FLEX = "return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + mask[i, j])"
LATE = (
    honest("lazy/checkpoint", "gradient", module(
        "return checkpoint(lambda t: torch.sigmoid(self.fc(t)), x, use_reentrant=False)", init=INIT["gradient"],
        head="from torch.utils.checkpoint import checkpoint")),
    honest("lazy/custom operator", "pointwise", module("return gelu_of(x)", head=OPERATOR)),
    honest("lazy/flex_attention", "causal", module(
        FLEX, args="q, k, v, mask", head="from torch.nn.attention.flex_attention import flex_attention")),
)  # fmt: skip

ASKED = 'import os\nos.environ["TRITON_INTERPRET"] = "1"\n'
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, c, C: tl.constexpr):
    at = tl.arange(0, C)
    v = tl.load(x + tl.program_id(0) * c + at, mask=at < c, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + tl.program_id(0) * c + at, e / tl.sum(e, 0), mask=at < c)
"""
LAUNCH = """
x = x.contiguous()
y = torch.empty_like(x)
kernel[(x.shape[0],)](x, y, x.shape[1], C=triton.next_power_of_2(x.shape[1]))
return y
"""
INTERPRETED = tuple(
    honest(f"lazy/{name}", "softmax", first + module(LAUNCH, head=KERNEL))
    for name, first in (("Triton that asks to be interpreted", ASKED), ("Triton", ""))
)

LAZY: tuple[Program, ...] = (*LATE, *INTERPRETED)
