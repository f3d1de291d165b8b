# SPDX-License-Identifier: Apache-2.0
"""What is added to a product of matrices may be what its running sums start from: a bias, or a later shift.

A library starts a convolution from its bias, and every addend is then rounded at the size of that. A program that folds
an inference batch norm, or a scale and a shift, into the weights and the bias before them is as honest: on inputs of a
thousandth of their size one convolution of 54 terms, so folded, erred by up to 3.7 times what its parts one by one may.

Only what is one number for many elements is such a shift: beside a residual, narrow products would show less.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge.noise import finite

if TYPE_CHECKING:
    from kernelwright.judge.rounding import Rounded

aten = torch.ops.aten
_ADDS = frozenset({aten.add.Tensor, aten.sub.Tensor, aten.add.Scalar, aten.sub.Scalar, aten.rsub.Scalar})
_SCALES = frozenset({aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.neg.default})


class Chain:
    """The last product, as scales and shifts have left it, and how many terms its sums have."""

    def __init__(self, deviation: float) -> None:
        self._deviation = deviation
        """Of the rounding of one addition, over the size of the sum."""
        self._product: torch.Tensor | None = None
        self._terms = 0.0

    def begun(self, out: torch.Tensor, terms: float) -> torch.Tensor:
        """``out``, whose elements are sums of so many terms."""
        self._product, self._terms = out, terms
        return out

    def shifted(self, mode: Rounded, total: torch.Tensor, addend: Any, terms: float) -> torch.Tensor:
        """A sum ``total`` that may have started from ``addend``, and rounded at its size ever since."""
        size = finite(addend.abs()) if isinstance(addend, torch.Tensor) else abs(addend)
        return self.begun(total + mode.bells(total) * size * (self._deviation * math.sqrt(max(1.0, terms))), terms)

    def joined(self, mode: Rounded, func: Any, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
        """What an elementary operator made, where it scaled the product or added to it."""
        if func not in _ADDS and func not in _SCALES:
            return out
        sides = [side for side, value in enumerate(args[:2]) if self._is(value)]
        if len(sides) != 1:
            return out
        if func in _SCALES:
            return self.begun(out, self._terms)
        addend = args[1 - sides[0]]
        if isinstance(addend, torch.Tensor) and addend.shape == out.shape:
            return out
        return self.shifted(mode, out, addend, self._terms)

    def _is(self, value: Any) -> bool:
        mine = self._product
        if mine is None or not isinstance(value, torch.Tensor):
            return False
        return value.data_ptr() == mine.data_ptr() and value.numel() == mine.numel() and value.dtype is mine.dtype
