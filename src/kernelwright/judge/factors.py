# SPDX-License-Identifier: Apache-2.0
"""Factors that are not the same for all inputs at once.

A product, or a quotient, of two inputs stays what it is where both are negated, and a quotient where both are scaled:
who left out the ``abs`` of a product of probabilities, or the clamp of a quotient, passed.
"""

from __future__ import annotations

import torch

SIGNS = "signs by lot"
"""The change that negates every second element, by lot: numbers that are never negative become such as any are."""
SIZES = "sizes by lot"
"""The change that scales each input by factors of its own."""
WHOLE = 1 / 2
"""Of the inputs those that have one factor; the others have one for each row, or for each element of a vector."""


def signed(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """The same sizes, of either sign."""
    return torch.where(torch.rand(leaf.shape, generator=rng, device=leaf.device) < 0.5, -leaf, leaf)


def sized(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """As it is, or ``factor`` times as large, or as small."""
    whole = leaf.dim() == 0 or float(torch.rand((), generator=rng, device=leaf.device)) < WHOLE
    shape = () if whole else (*leaf.shape[:-1], 1) if leaf.dim() > 1 else leaf.shape
    which = torch.randint(3, shape, generator=rng, device=leaf.device)
    return leaf * torch.tensor([1.0 / factor, 1.0, factor], dtype=leaf.dtype, device=leaf.device)[which]
