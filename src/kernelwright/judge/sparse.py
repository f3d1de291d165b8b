# SPDX-License-Identifier: Apache-2.0
"""Tensors between a reference's inputs and its answers that hold only what is not zero, and have no storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from kernelwright.judge.rounding import Rounded

PRODUCTS = {"mm": 0, "mv": 0, "addmm": 1, "_sparse_addmm": 1}
"""Products of which a factor may be sparse, and where their factors begin."""
_ROWS = (torch.sparse_csr, torch.sparse_csc)


def found(values: Any) -> bool:
    """Whether one of these is such a tensor."""
    return any(isinstance(value, torch.Tensor) and value.layout is not torch.strided for value in values)


def held(tensor: torch.Tensor) -> int:
    """How many numbers a tensor holds."""
    return tensor.numel() if tensor.layout is torch.strided else int(tensor._nnz())


def each(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The same tensor with the numbers that it holds changed one by one; zeros of a dense one, too."""
    if tensor.layout is torch.strided:
        return change(tensor)
    shape = tensor.shape
    if tensor.layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(tensor._indices(), change(tensor._values()), shape, check_invariants=False)
    rows = tensor.layout is torch.sparse_csr
    if tensor.layout not in _ROWS:
        raise TypeError(f"products of {tensor.layout} are not judged")
    borders, places = (
        (tensor.crow_indices(), tensor.col_indices()) if rows else (tensor.ccol_indices(), tensor.row_indices())
    )
    return torch.sparse_compressed_tensor(
        borders, places, change(tensor.values()), shape, layout=tensor.layout, check_invariants=False
    )


def product(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], longest: int) -> Any:
    """An operator on such tensors, perturbed as one running sum of each element's terms; what is none of PRODUCTS as
    one rounding."""
    out = func(*args, **kwargs)
    if not isinstance(out, torch.Tensor) or out.dtype is not torch.float64 or found([out]):
        return out
    name = func._schema.name.removeprefix("aten::")
    if name not in PRODUCTS:
        return out if func.is_view or func._schema.is_mutable else mode.roughen(out.clone())
    at = PRODUCTS[name]
    left, right = args[at : at + 2]
    plain = torch.mv if name == "mv" else torch.mm
    squares = plain(each(left, torch.square), each(right, torch.square))
    counts = plain(each(left, torch.ones_like), each(right, torch.ones_like))
    noisy = mode.summed(out, squares, counts, 1, longest)
    return mode.roughen(noisy) if at else noisy
