# SPDX-License-Identifier: Apache-2.0
"""Factors that are not the same for all inputs at once, nor for all elements or directions of one.

A product, or a quotient, of two inputs stays what it is where both are negated, and a quotient where both are scaled:
who left out the ``abs`` of a product of probabilities, or the clamp of a quotient, passed.
"""

from __future__ import annotations

import torch

SIGNS = "signs by lot"
"""The change that negates every second element, by lot: numbers that are never negative become such as any are."""
SIZES = "sizes by lot"
"""The change that scales each input by factors of its own."""
CONDITION, BESIDE = "sizes far apart", "beside powers of two"
"""The changes that squeeze matrices along some of their directions, and that move numbers to powers of two or beside
them."""
LEAST, MOST = 1e3, 1e5
"""How many times as large the largest singular value of a squeezed matrix is as the least. Float32 has two digits left
there; a square root of 1e-4 in place of what is less, or nine steps of conjugate gradients, none."""
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


def squeezed(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """Matrices with the singular vectors that they have, and singular values from the largest down in equal ratios:
    symmetric where they were, and with positive eigenvalues where they had."""
    if leaf.dim() < 2 or min(leaf.shape[-2:]) < 2 or leaf.itemsize < 4 or not bool(torch.isfinite(leaf).all()):
        return leaf
    lot = float(torch.rand((), generator=rng, device=leaf.device))
    left, sizes, right = torch.linalg.svd(leaf.double(), full_matrices=False)
    ratios = (LEAST * (MOST / LEAST) ** lot) ** -torch.linspace(
        0, 1, sizes.shape[-1], dtype=sizes.dtype, device=leaf.device
    )
    made = (left * (sizes[..., :1] * ratios)[..., None, :]) @ right
    if torch.equal(leaf, leaf.mT):
        made = (made + made.mT) / 2
    return made.to(leaf.dtype)


def beside_powers(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """Each number is the power of two above it, or its neighbour below, where an exponent is one less: all of a row
    one, by lot, of a vector each element."""
    if leaf.itemsize < 4:
        return leaf
    rows = (*leaf.shape[:-1], 1) if leaf.dim() > 1 else leaf.shape
    power = torch.ldexp(torch.ones_like(leaf), torch.frexp(leaf).exponent)
    below = torch.nextafter(power, torch.zeros_like(power))
    chosen = torch.where(torch.rand(rows, generator=rng, device=leaf.device) < WHOLE, power, below)
    return torch.where(leaf == 0, leaf, torch.copysign(chosen, leaf))
