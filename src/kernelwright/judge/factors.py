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
CONDITION = "sizes far apart"
"""The change that squeezes matrices along some of their directions."""
ALIKE = "sizes alike"
"""The change that makes all directions of a matrix but one, or all, count the same."""
LEFT = 4.0, 40.0
"""How many times as large as what is lost in rounding the singular values of squeezed directions are. Pivots are as
small there: of 24 columns 1e-5 to 1e-4 of the largest."""
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
    """Matrices with the singular vectors that they have, but half of them, those of the least singular values, count
    for hardly anything, in each by a lot of its own. Symmetric where they were, with positive eigenvalues where they
    had such. By one lot for eight matrices a draw in four left all pivots of a Cholesky above 1e-4 of the largest."""
    if leaf.dim() < 2 or min(leaf.shape[-2:]) < 2 or leaf.itemsize < 4 or not bool(torch.isfinite(leaf).all()):
        return leaf
    lot = torch.rand((*leaf.shape[:-2], 1), generator=rng, device=leaf.device, dtype=torch.float64) ** 2
    left, sizes, right = torch.linalg.svd(leaf.double(), full_matrices=False)
    count = sizes.shape[-1]
    least = torch.finfo(leaf.dtype).eps * count * LEFT[0] * (LEFT[1] / LEFT[0]) ** lot * sizes[..., :1]
    few = torch.arange(count, device=leaf.device) >= (count + 1) // 2
    made = (left * torch.where(few, least, sizes)[..., None, :]) @ right
    if torch.equal(leaf, leaf.mT):
        made = (made + made.mT) / 2
    return made.to(leaf.dtype)


def alike(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """Symmetric matrices of the size that they have, whose eigenvalues are positive and equal but for one, or for none
    in one of four: turned, so that nobody finds the same vectors to them twice."""
    square = leaf.dim() > 1 and leaf.shape[-1] == leaf.shape[-2] > 1
    if not square or leaf.itemsize < 4 or leaf.is_complex() or not bool(torch.isfinite(leaf).all()):
        return leaf
    size, lines = leaf.shape[-1], (*leaf.shape[:-2], 1)
    turned = torch.linalg.qr(torch.randn(leaf.shape, generator=rng, device=leaf.device, dtype=torch.float64)).Q
    sizes = 1.0 + torch.rand(lines, generator=rng, device=leaf.device, dtype=torch.float64).expand(*lines[:-1], size)
    other = 4.0 * torch.rand(lines, generator=rng, device=leaf.device, dtype=torch.float64)
    first = torch.arange(size, device=leaf.device) == 0
    sizes = torch.where(first & (other > 1.0), other, sizes) * leaf.double().square().mean().sqrt()
    made = (turned * sizes[..., None, :]) @ turned.mT
    return ((made + made.mT) / 2).to(leaf.dtype)
