# SPDX-License-Identifier: Apache-2.0
"""Samples and channels that are zero in all inputs at once: an image that is black, a mask that is empty as its
prediction is, a channel that a ReLU has killed.

Zero rows are rows of one input. A division by the sum over an image, or by the sums of two inputs, never meets zero
there, and an epsilon that guards it could be left out. Complex inputs are changed as the two numbers they are made of.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

BLANK = {"blank samples": 0, "blank channels": 1}
"""Changes by the axis that they thin out."""
SHARE = 1 / 8
"""Of the slices along it those that are zero, and one at the least."""
ALONE = 1 / 2
"""Of the draws those in which all are but one: who leaves out what looks like zero in every second place finds out."""


def blanked(leaves: Sequence[torch.Tensor], axis: int, rng: torch.Generator) -> list[torch.Tensor]:
    """Some slices along an axis are zero, or all but one: the same ones in all floating inputs that are as long there
    as the largest."""
    sizes = {i: leaf.shape[axis] for i, leaf in enumerate(leaves) if leaf.is_floating_point() and leaf.dim() > axis}
    sizes = {i: size for i, size in sizes.items() if size > 1 and bool(torch.isfinite(leaves[i]).all())}
    if not sizes:
        return list(leaves)
    count = sizes[max(sizes, key=lambda i: leaves[i].numel())]
    chance = torch.rand(count, generator=rng, device=leaves[0].device)
    least, most = float(chance.min()), float(chance.max())
    alone = bool(torch.rand((), generator=rng, device=leaves[0].device) < ALONE)
    blank = chance < most if alone and least < most else chance <= max(SHARE, least)
    return [_without(leaf, blank, axis) if sizes.get(index) == count else leaf for index, leaf in enumerate(leaves)]


def _without(leaf: torch.Tensor, blank: torch.Tensor, axis: int) -> torch.Tensor:
    made = leaf.clone(memory_format=torch.contiguous_format)
    made.movedim(axis, 0)[blank.to(leaf.device)] = 0
    return made


def real(leaf: torch.Tensor) -> torch.Tensor:
    """A complex tensor as floats, rows of it as rows of twice the length; anything else as it is."""
    if not leaf.is_complex():
        return leaf
    parts = torch.view_as_real(leaf.resolve_conj())
    return parts.reshape(*leaf.shape[:-1], -1) if leaf.dim() else parts


def again(before: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """What ``real`` made of ``before``, changed, as complex numbers."""
    if not before.is_complex():
        return changed
    return torch.view_as_complex(changed.reshape(*before.shape, 2).contiguous())
