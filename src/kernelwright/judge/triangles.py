# SPDX-License-Identifier: Apache-2.0
"""Inputs that are triangular matrices in every draw of a task, and stay so.

KernelBench has products of triangular matrices (level 1, problems 14 and 15): a program that leaves out their zeros is
what such a task asks for, and it is wrong on other matrices. So none are judged, the proof says so, and the drop-in
looks at the zeros before it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from kernelwright.judge import numerics

LEAST = 4
"""A matrix of fewer rows or columns is triangular by chance, or may be anything; many are not."""
_KEEP: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "upper": torch.triu,
    "lower": torch.tril,
    "diagonal": lambda leaf: leaf.triu().tril(),
}


def kind(leaf: torch.Tensor) -> str:
    """``upper``, ``lower`` or ``diagonal`` where all of its matrices (the last two dimensions) are; else empty."""
    numbers = leaf.is_floating_point() or leaf.is_complex()
    if not numbers or leaf.dim() < 2 or leaf.numel() == 0 or not _enough(leaf):
        return ""
    if bool(leaf[..., 1:, 0].any()) and bool(leaf[..., 0, 1:].any()):  # almost every other one, in one look
        return ""
    if not bool(leaf.diagonal(dim1=-2, dim2=-1).any()) or not numerics.finite(leaf):
        return ""  # nothing but zeros, or a mask that is added
    return next((name for name in ("diagonal", "upper", "lower") if torch.equal(_KEEP[name](leaf), leaf)), "")


def _enough(leaf: torch.Tensor) -> bool:
    """Whether their zeros are too many to be so by chance: as many as one matrix of LEAST rows has, in all of smaller
    ones that are square, as cameras are. Of a batch of 3x3 ones the zeros were filled, and who solved by them refused.
    """
    rows, columns = leaf.shape[-2:]
    few = rows * (rows - 1) // 2 * math.prod(leaf.shape[:-2]) if rows == columns else 0
    return min(rows, columns) >= LEAST or few >= LEAST * (LEAST - 1) // 2


def triangular(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor], constant: set[int]) -> dict[int, str]:
    """Which leaves of two draws are triangular in both, and how. One that is the same in both may be a mask: other
    masks are other answers."""
    pairs = [(i, kind(a), b) for i, (a, b) in enumerate(zip(first, second, strict=True)) if i not in constant]
    return {index: name for index, name, other in pairs if name and kind(other) == name}


def kept_so(leaves: list[torch.Tensor], found: Mapping[int, str]) -> list[torch.Tensor]:
    """Changed leaves, triangular where they were."""
    return [_KEEP[found[index]](leaf) if index in found else leaf for index, leaf in enumerate(leaves)]


def words_of(found: Mapping[int, str], names: Sequence[str]) -> list[str]:
    """What a proof says of them."""
    return [
        f"input {names[index] or index} is {name + ' triangular' if name != 'diagonal' else name} in every draw, and "
        "stays so: programs may rely on that, and on others were not judged"
        for index, name in found.items()
    ]
