# SPDX-License-Identifier: Apache-2.0
"""Inputs without negative elements, moved so that they stay where those of a draw lie.

Each element is a place between the least and the largest of them, told by an angle, so that no step leaves the range.
While such inputs were left as they are, an expanded square was 8.9 % off that a model makes which is trained on images
in [0, 1). What is more than a number in a range stays: shares of a whole, whole numbers, times in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.judge import numerics

Ends = tuple[float, float]
HALVES = (torch.float16, torch.bfloat16)
SAME = 1e-3
"""By how much of itself a sum of rows differs at the most that is the same in all."""


def able(leaf: torch.Tensor) -> bool:
    """Whether it holds numbers that may be moved: those of half precision too, by their own rounding."""
    return bool(leaf.numel()) and (leaf.is_complex() or leaf.is_floating_point()) and leaf.itemsize > 1


def of(leaves: Sequence[torch.Tensor]) -> dict[int, Ends]:
    """By input without negative elements that is such, its range."""
    found = dict[int, Ends]()
    for at, leaf in enumerate(leaves):
        if able(leaf) and leaf.dim() and not leaf.is_complex() and numerics.finite(leaf) and float(leaf.min()) >= 0:
            ends = float(leaf.min()), float(leaf.max())
            if ends[0] < ends[1] and not _bound(leaf):
                found[at] = ends
    return found


def _bound(leaf: torch.Tensor) -> bool:
    """Whether more holds of it than where its elements lie."""
    if bool((leaf == leaf.round()).all()):
        return True
    for axis in (axis for axis, size in enumerate(leaf.shape) if size > 1):
        rows, steps = leaf.float().sum(axis), leaf.diff(dim=axis)
        shares = rows.numel() > 1 and bool(((rows - rows.mean()).abs() <= SAME * rows.mean()).all())
        one = rows.numel() == 1 and abs(float(rows.sum()) - 1) <= SAME
        if shares or one or bool((steps >= 0).all()) or bool((steps <= 0).all()):
            return True
    return False


def placed(value: torch.Tensor, ends: Ends) -> torch.Tensor:
    """The angles that say where elements lie in a range; of what lies beyond it, its ends."""
    low, high = ends
    return (2 * (value.clamp(low, high) - low) / (high - low) - 1).clamp(-1, 1).asin()


def value(angles: torch.Tensor, ends: Ends) -> torch.Tensor:
    """The elements back."""
    low, high = ends
    return (low + (high - low) * (angles.sin() + 1) / 2).clamp(low, high)
