# SPDX-License-Identifier: Apache-2.0
"""Square matrices of which little is left: less the identity, with their own transpose, beside their diagonal.

A correlation of a model that is trained is nearly the identity, a rotation's generator nearly its negative transpose.
By lot none is: who took |c|^2 - |diag c|^2 for the squares beside a diagonal, or 2 |a|^2 + 2 tr(a a) for |a + a'|^2,
passed, and gave 0 where 3.7e-6 was right. Told here by operators and by how tensors lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

DIAGONALS = {"diagonal", "diag", "trace", "linalg_diagonal", "diagonal_copy"}
"""Functions, and operators, that take the diagonal of a matrix."""
TRIANGLES = {"triu": 1, "tril": -1}
"""Those that keep one side of it, where this is said besides."""
MASKING = {"mul", "mul_", "__mul__", "__rmul__", "__imul__", "masked_fill", "masked_fill_", "__getitem__", "index"}
"""Those that keep what a mask says."""
SUMS = {"add", "add_", "__add__", "__radd__", "__iadd__"}


def square(value: Any) -> bool:
    """Whether it holds square matrices of several elements."""
    return isinstance(value, torch.Tensor) and value.dim() > 1 and value.shape[-1] == value.shape[-2] > 1


def parted(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """The square matrices, its last axes, of which a function, or an operator, takes the diagonal, or the rest."""
    if name in MASKING and len(args) > 1:
        pairs = ((args[0], args[1]), (args[1], args[0]))
        return next((a for a, b in pairs if square(a) and a.is_floating_point() and _parts(b)), None)
    if not (args and square(args[0]) and args[0].is_floating_point()):
        return None
    beside = name in TRIANGLES and kwargs.get("diagonal", args[1] if len(args) > 1 else 0) == TRIANGLES[name]
    return args[0] if beside or _diagonal(name, args, kwargs) else None


def _parts(mask: Any) -> bool:
    """Whether it says where a diagonal lies, or what lies beside it."""
    mask = mask[0] if isinstance(mask, list | tuple) and len(mask) == 1 else mask
    if not (square(mask) and mask.dim() == 2) or mask.requires_grad or mask.is_complex():
        return False
    return (mask[0, 0] != 0) != (mask[0, 1] != 0) and (identity(mask) or identity(1 - mask.float()))


def _diagonal(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if name not in DIAGONALS:
        filled = name == "as_strided" and list(args[2]) == [sum(args[0].stride())]  # what ``fill_diagonal_`` runs
        return name == "fill_diagonal_" or filled
    given = dict(zip(("offset", "dim1", "dim2"), args[1:], strict=False)) | dict(kwargs)
    axes = args[0].dim()
    lies = {int(given.get("dim1", 0 if name != "linalg_diagonal" else -2)) % axes,
            int(given.get("dim2", 1 if name != "linalg_diagonal" else -1)) % axes}  # fmt: skip
    return not given.get("offset", given.get("diagonal", 0)) and lies == {axes - 2, axes - 1}


def beside_diagonal(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """All but the diagonal, where zeros stand, and the diagonal."""
    diagonal = value.diagonal(dim1=-2, dim2=-1).clone()
    return value - torch.diag_embed(diagonal), diagonal


def diagonal_of(value: torch.Tensor, whole: torch.Tensor | None) -> bool:
    """Whether it is that of this matrix, or of several, in the same memory."""
    if whole is None or not square(whole):
        return False
    lies = whole.diagonal(dim1=-2, dim2=-1)
    return value.shape == lies.shape and value.stride() == lies.stride()


def transposed(one: Any, other: Any) -> bool:
    """Whether one is the other's transpose, in the same memory."""
    if not (square(one) and square(other) and one.shape == other.shape and one.layout is other.layout is torch.strided):
        return False
    same = one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() and one.dtype is other.dtype
    return bool(
        same and one.storage_offset() == other.storage_offset() and one.mT.stride() == other.stride() != one.stride()
    )


def identity(value: Any) -> bool:
    """Whether it is one, or several."""
    if not (square(value) and value.numel()) or value.is_complex():
        return False
    value = value.detach()
    first = value[(0,) * (value.dim() - 2)]
    if float(first[0, 0]) != 1 or float(first[0, 1]):  # nearly all others are told by these
        return False
    return torch.equal(value, torch.eye(value.shape[-1], dtype=value.dtype, device=value.device).expand_as(value))
