# SPDX-License-Identifier: Apache-2.0
"""Scores that a mask fills by addition: -1e9 + s is -1e9 in float32 whatever s is, in every program.

In float64 it is not, and where all of a row is filled a softmax of it weighs by s instead of alike; with the rounding
of -1e9 put back at random (60, beside scores of 3) it weighs by chance. The honest error of attention over a batch
with samples of padding alone was as large as its answers then, and answers of ones passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

aten = torch.ops.aten
_SUMS = {
    **dict.fromkeys((aten.add.Tensor, aten.add_.Tensor), 1.0),
    **dict.fromkeys((aten.sub.Tensor, aten.sub_.Tensor), -1.0),
}
"""With the sign of the second addend."""
_PRODUCTS = frozenset({aten.mul.Tensor, aten.mul_.Tensor})
FAR = 2.0**26
"""What a mask puts in, or takes away, is as large: 10^8 or more; 10^4 swallows no score."""
SWALLOWED = 2.0**-26
"""Share of it below which what it is added to leaves no bit behind in float32."""


def found(func: Any, kwargs: Mapping[str, Any], out: Any) -> bool:
    """Whether this is a sum or product with numbers that far from zero."""
    if not (func in _SUMS or func in _PRODUCTS) or kwargs.get("alpha", 1) != 1 or not isinstance(out, torch.Tensor):
        return False
    plain = out.dtype is torch.float64 and out.layout is torch.strided and out.numel() > 0
    return plain and bool(torch.stack(torch.aminmax(out)).abs().amax() >= FAR)


def kept(func: Any, args: tuple[Any, ...], before: torch.Tensor, rough: torch.Tensor) -> torch.Tensor:
    """``rough``, which is ``before`` with rounding or without, as float32 has it where that is exact: what swallows its
    other addend, the sum of two such of one sign, a product with 0 or 1. ``rough`` is written to; of an operator that
    writes to its first argument it is that."""
    written = func._schema.is_mutable
    if func in _PRODUCTS:
        exact = torch.zeros_like(before, dtype=torch.bool)
        for value in args[1:2] if written else args[:2]:
            exact |= torch.as_tensor((value == 0) | (value == 1), device=before.device)
        made = torch.where(exact & (before.abs() >= FAR), before, rough)
    else:
        second = torch.as_tensor(args[1], device=before.device) * _SUMS[func]
        first = before - second if written else torch.as_tensor(args[0], device=before.device)
        least, most = torch.minimum(first.abs(), second.abs()), torch.maximum(first.abs(), second.abs())
        made = torch.where((least >= FAR) & (before.abs() > most), before, rough)
        for large, small in ((first, second), (second, first)):
            made = torch.where((large.abs() >= FAR) & (small.abs() <= SWALLOWED * large.abs()), large, made)
    return rough.copy_(made)  # in place: others follow it by where it lies
