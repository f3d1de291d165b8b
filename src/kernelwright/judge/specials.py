# SPDX-License-Identifier: Apache-2.0
"""Special values, strewn over an input, and so that they meet: alone they say nothing of what comes of two."""

from __future__ import annotations

import math

import torch

from kernelwright.judge.dealing import few

SPARSE = 64
"""Elements among which one is NaN at the most, and one each of the other special values."""
MEETINGS = 8
"""Places that inputs have in common: infinities of opposite signs of two inputs miss each other at all in 1 of 8 draws,
and no more than so many rows are lost to them."""


def sow(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A copy of a floating input in which some elements, by lot, are special."""
    leaf = leaf.clone(memory_format=torch.contiguous_format)
    tiny = torch.finfo(leaf.dtype).smallest_normal / 4
    order = torch.randperm(leaf.numel(), generator=rng, device=leaf.device)
    for value in (math.nan, math.inf, -math.inf, -0.0, tiny):  # few, or many: loops have tails of a few elements
        places = few(max(1, leaf.numel() // SPARSE), rng)
        leaf.view(-1)[order[:places]] = value
        order = order.roll(-places)
    _meet(leaf, rng)
    return leaf


def _meet(leaf: torch.Tensor, rng: torch.Generator) -> None:
    """Both infinities in one row, and at places that inputs of one shape have in common one of them or zero."""
    flat, count = leaf.view(-1), leaf.numel()
    width = leaf.shape[-1] if leaf.dim() else 1
    if width > 1 and count >= SPARSE:
        row = int(torch.randint(count // width, (), generator=rng, device=leaf.device)) * width
        spots = torch.randperm(width, generator=rng, device=leaf.device)[:2]
        flat[row + spots] = torch.tensor([math.inf, -math.inf], dtype=leaf.dtype, device=leaf.device)
    common = min(MEETINGS, count // SPARSE)
    if common:
        values = torch.tensor([math.inf, -math.inf, 0.0], dtype=leaf.dtype, device=leaf.device)
        lots = torch.randint(len(values), (common,), generator=rng, device=leaf.device)
        flat[torch.arange(common, device=leaf.device) * (count // common)] = values[lots]
