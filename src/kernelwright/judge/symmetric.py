# SPDX-License-Identifier: Apache-2.0
"""Matrices that are symmetric, Hermitian where they are complex, and definite, and stay so when they are changed."""

from __future__ import annotations

import torch

from kernelwright.judge import numerics
from kernelwright.judge.inputs import FLOATS

MATRICES = frozenset({*FLOATS, torch.complex64, torch.complex128})
"""Dtypes whose matrices are looked at."""
ROUNDED = 64
"""Times its rounding unit, of its largest number, that a matrix may be away from what it is said to be."""
MARGIN = 1.25
"""How many times the sum of the others of its row the diagonal of a matrix is at least that is made definite again."""
HALVED = 8
"""Times at the most that a change of few elements is halved for its sake."""


def mirrored(values: torch.Tensor) -> bool:
    """Whether all of its matrices (the last two dimensions) are symmetric, but for rounding; diagonal ones too; of
    complex ones whether they are Hermitian. None is that is a mask: all differences are as small as infinity."""
    square = values.dim() > 1 and values.shape[-1] == values.shape[-2] > 1
    if values.dtype not in MATRICES or not square or not values.numel():
        return False
    near = ROUNDED * torch.finfo(values.dtype).eps
    row, column = values[..., 0, :], values[..., :, 0].conj()
    if not bool(((row - column).abs() <= near * row.abs().amax()).all()):  # almost all others, in one look
        return False
    return numerics.finite(values) and bool(((values - values.mH).abs() <= near * values.abs().amax()).all())


def definite(leaf: torch.Tensor, *, semi: bool = False) -> bool:
    """Whether all of these symmetric matrices are positive definite; ``semi``: or semidefinite, but for rounding."""
    return numerics.finite(leaf) and not bool(failed(leaf, semi=semi).any())


def failed(leaf: torch.Tensor, *, semi: bool = False) -> torch.Tensor:
    """Which of them have no root."""
    exact = leaf.to(torch.complex128 if leaf.is_complex() else torch.float64)
    if semi:
        ridge = ROUNDED * torch.finfo(leaf.dtype).eps * exact.diagonal(dim1=-2, dim2=-1).abs().amax(-1)
        exact = exact + ridge[..., None, None] * torch.eye(leaf.shape[-1], dtype=exact.dtype, device=leaf.device)
    return torch.linalg.cholesky_ex(exact).info != 0


def positive(leaf: torch.Tensor) -> bool:
    """Whether these are diagonal with positive numbers there, which ``triangles`` has found to be diagonal."""
    return mirrored(leaf) and bool((leaf.diagonal(dim1=-2, dim2=-1).real > 0).all())


def kept_positive(before: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Changed diagonal matrices with the sizes of their numbers; a zero is what it was."""
    if changed is before or not numerics.finite(changed):
        return changed
    sizes = changed.diagonal(dim1=-2, dim2=-1).abs().to(changed.dtype)
    return torch.where(sizes == 0, before.diagonal(dim1=-2, dim2=-1), sizes).diag_embed()


def halved(before: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """A changed symmetric matrix, its other half like the one that was changed, so that a single element that changes
    does so in both. The diagonal of complex ones is real."""
    if changed is before:
        return changed
    half = torch.where(changed == before, changed.mH, changed).tril()
    if half.is_complex():
        half.diagonal(dim1=-2, dim2=-1).imag.zero_()
    return half + half.tril(-1).mH


def enlarged(before: torch.Tensor, changed: torch.Tensor, *, near: bool, semi: bool = False) -> torch.Tensor:
    """Changed symmetric matrices; those that were positive definite, and are so no more, by a larger diagonal: who
    solves by a root was refused where such a matrix had been negated. ``near``: few elements changed, which come back
    half way, and again, instead. ``semi``: those that were semidefinite."""
    if changed is before or not numerics.finite(changed):
        return changed
    lost = failed(changed, semi=semi)
    for _ in range(HALVED if near else 0):
        changed = torch.where(lost[..., None, None], before + (changed - before) / 2, changed)
        lost = failed(changed, semi=semi)
    others = changed.abs().sum(-1) - changed.diagonal(dim1=-2, dim2=-1).abs()
    diagonal = before.diagonal(dim1=-2, dim2=-1) + MARGIN * others
    enough = changed.clone()
    enough.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
    return torch.where(lost[..., None, None], enough, changed)


def structured(*states: torch.Tensor) -> bool:
    """Whether a buffer holds symmetric matrices in all of these states: not of one number, nor of zeros and ones, which
    stay anyway."""
    return all(mirrored(one) for one in states) and not bool(
        ((states[0] == 0) | (states[0] == 1)).all() or (states[0] == states[0].reshape(-1)[0]).all()
    )


def kept_so(changed: torch.Tensor, before: torch.Tensor, *like: torch.Tensor, near: bool = True) -> torch.Tensor:
    """A changed buffer, symmetric, and definite, as it was before and is in all of ``like``: who took a root of a
    covariance in a buffer was refused, for every element of it came times a factor of its own. ``near``: see
    ``enlarged``."""
    if changed is before or changed.shape != before.shape or not structured(before, *like):
        return changed
    made = halved(before, changed)
    for semi in (False, True):
        if all(definite(one, semi=semi) for one in (before, *like)):
            return enlarged(before, made, near=near, semi=semi)
    return made


def words_of(model: torch.nn.Module | None) -> list[str]:
    """What a proof says of such buffers."""
    return [
        f"weight {name} is symmetric{' and positive definite' if definite(value) else ''} as it is made, and stays so: "
        "programs may rely on that, and on others were not judged"
        for name, value in (model.named_buffers() if model is not None else ())
        if structured(value.detach())
    ]
