# SPDX-License-Identifier: Apache-2.0
"""The numbers that a reference clamps by, as float32 has them.

1 - 1e-7 is 1.9e-8 less in float32: a fifth of what is left to 1. A probability that is clamped there and then taken
from 1, as cross entropies and focal losses do, so differed from the oracle's by far more than rounding. The oracle was
thought to compute something else, and six orders of summation stood in for it, among which is no running sum over equal
addends: an honest one was refused in each draw of small logits. Elsewhere a fifth counted as eager's own error, and who
clamped at 1 - 2e-7 was 3 times as far off as that, where a cross entropy was mostly made of such.

``nan_to_num`` that is told no bounds takes those of its type for infinities, 1.8e308 for 3.4e38: of a logarithm of
counts, some of them zero, honest programs were refused in each draw, for the same reason.
"""

from __future__ import annotations

from typing import Any

import torch

LARGEST = float(torch.finfo(torch.float32).max)
CLAMPS = {"aten::clamp", "aten::clamp_min", "aten::clamp_max", "aten::hardtanh"}


def of_single(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an operator, where it clamps, or takes infinities for numbers, with its bounds in float32."""
    if func._schema.name.rstrip("_") == "aten::nan_to_num":
        return _told(args, kwargs)
    if func._schema.name.rstrip("_") not in CLAMPS:
        return args, kwargs
    return (args[0], *map(_rounded, args[1:])), {name: _rounded(value) for name, value in kwargs.items()}


def _told(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Those of ``nan_to_num`` (a tensor, and numbers for NaN and the infinities), none of which is left to a type."""
    given = dict(zip(("nan", "posinf", "neginf"), args[1:], strict=False)) | kwargs
    usual = {"posinf": LARGEST, "neginf": -LARGEST}
    return args[:1], given | {name: bound for name, bound in usual.items() if given.get(name) is None}


def _rounded(number: Any) -> Any:
    """A float as float32 has it, unless it is infinite or zero there alone; anything else as it is."""
    if not isinstance(number, float):
        return number
    single = float(torch.tensor(number, dtype=torch.float32))
    return single if abs(single - number) < abs(number) else number
