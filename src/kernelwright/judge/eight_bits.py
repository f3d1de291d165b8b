# SPDX-License-Identifier: Apache-2.0
"""Floats of eight bits with codes that numbers by lot never have: the largest, the least, and where a contract asks for
special values those that are no number.

What is quantised from usual numbers leaves half of the codes out, and a program that cut off at 240, or had 480 for the
code of a NaN, was right on all of it.
"""

from __future__ import annotations

import torch

from kernelwright.judge import numerics

CODES = "all codes of eight bits"
SOWN = 1 / 16
"""Share of the elements that are any code where special values are sown."""


def changed(leaf: torch.Tensor, change: str, special: bool, rng: torch.Generator) -> torch.Tensor:
    """Every element any code, or where special values are asked for some of them; other leaves as they are."""
    if not numerics.tiny(leaf) or not (special or change == CODES):
        return leaf
    codes = torch.randint(256, leaf.shape, generator=rng, device=leaf.device, dtype=torch.uint8)
    made = codes.view(leaf.dtype)
    if special:
        some = torch.rand(leaf.shape, generator=rng, device=leaf.device) < SOWN
    else:
        some = made.float().isfinite()
    return torch.where(some, codes, leaf.contiguous().view(torch.uint8)).view(leaf.dtype)
