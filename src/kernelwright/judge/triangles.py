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
    masks are other answers (see ``factor``)."""
    pairs = list(enumerate(zip(first, second, strict=True)))
    names = {i: factor(a) if i in constant else kind(a) for i, (a, _) in pairs}
    return {i: names[i] for i, (_, b) in pairs if names[i] and (i in constant or kind(b) == names[i])}


def factor(leaf: torch.Tensor) -> str:
    """``upper`` or ``lower`` where matrices that are the same in every draw are square and triangular, and have no zero
    on the diagonal: roots of covariances. One number beside zeros may be a mask, and a diagonal one is symmetric."""
    name = kind(leaf) if leaf.dim() > 1 and leaf.shape[-1] == leaf.shape[-2] else ""
    if name not in ("upper", "lower") or not bool(leaf.diagonal(dim1=-2, dim2=-1).all()):
        return ""
    return name if bool(((leaf != 0) & (leaf != leaf.reshape(-1)[0])).any()) else ""


def scaled(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Other such matrices: rows and columns times factors of their own, 0.5 to 1.5. Their numbers in any order, and any
    place, were singular, and a task on the root of a covariance was not admitted."""
    down, along = (0.5 + torch.rand(leaf.shape[:-1], generator=rng, dtype=leaf.dtype, device=leaf.device) for _ in "ab")
    return leaf * down[..., None] * along[..., None, :]


def exchanged(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """The same numbers in another order within the triangle, and along the diagonal."""
    made = leaf.clone()
    inside = torch.ones_like(leaf, dtype=torch.bool)
    inside = inside.triu(1) if factor(leaf) == "upper" else inside.tril(-1)
    whole = torch.eye(leaf.shape[-1], dtype=torch.bool, device=leaf.device).expand(leaf.shape)
    for places in (inside, whole):
        numbers = leaf[places]
        made[places] = numbers[torch.randperm(len(numbers), generator=rng, device=leaf.device)]
    return made


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
