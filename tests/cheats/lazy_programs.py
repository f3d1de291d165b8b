# SPDX-License-Identifier: Apache-2.0
"""Programs as everybody writes them that the judge once refused for what its processes lack: a folder that torch's
compiler wants as soon as it is imported (by checkpoints, custom operators, flex_attention), though they compile nothing.
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

LAZY: tuple[Program, ...] = (*LATE,)
