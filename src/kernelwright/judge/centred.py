# SPDX-License-Identifier: Apache-2.0
"""Squares of distances from a mean may be added up as Welford's recurrence does, which never has the mean itself.

m_k = m_(k-1) + d_k / k and M_k = M_(k-1) + d_k (x_k - m_k), where d_k = x_k - m_(k-1). Each m_k rounds by r = ROUND *
unit * |m|, so m_k is off by r sqrt(k / 3), and M_k by 2 d_k times that: in all by r sqrt(2/3 n M). Two passes have a
mean that is off by as much, but their distances from it add up to nearly zero, so M has the square of that only. Of
variances of 96 numbers 24 sizes from zero Welford's, one number after the other, was refused in 18 of 447 draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge.noise import finite

if TYPE_CHECKING:
    from kernelwright.judge.rounding import Rounded

aten = torch.ops.aten
_SQUARES = frozenset({aten.square.default, aten.pow.Tensor_Scalar, aten.mul.Tensor})


class Centred:
    """The last mean, and what the operator before this one made of it: distances from it, or squares of these."""

    def __init__(self, deviation: float) -> None:
        self._deviation = deviation
        """Of the rounding of one addition, over the size of the sum."""
        self._mean: torch.Tensor | None = None
        self._distances: tuple[int, int] | None = None
        self._squares: tuple[int, int] | None = None

    def averaged(self, mean: torch.Tensor) -> torch.Tensor:
        """``mean``, from which distances may be taken next."""
        self._mean, self._distances, self._squares = mean, None, None
        return mean

    def squared(self, squares: torch.Tensor) -> None:
        """Note squares of distances from the last mean."""
        self._squares = _place(squares)

    def followed(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        """What an elementary operator made, which is no view."""
        distances, self._distances, self._squares = self._distances, None, None
        if self._mean is None or not isinstance(out, torch.Tensor):
            return
        if func is aten.sub.Tensor and isinstance(args[1], torch.Tensor) and _place(args[1]) == _place(self._mean):
            self._distances = _place(out)
        elif func in _SQUARES and distances is not None and _place(args[0]) == distances:
            twice = args[1] is args[0] if func is aten.mul.Tensor else len(args) == 1 or args[1] == 2
            self._squares = _place(out) if twice else None

    def total(self, mode: Rounded, values: torch.Tensor, out: torch.Tensor, width: torch.Tensor) -> torch.Tensor:
        """A sum of ``values``, where these are such squares, with what Welford's recurrence errs by in so many lanes
        (``width``, of the shape of ``out`` or a number)."""
        mean, squares = self._mean, self._squares
        if mean is None or squares != _place(values) or mean.numel() != out.numel():
            return out
        count = values.numel() / max(1, out.numel())
        size = finite(mean.abs().reshape(out.shape) * (out.clamp_min(0.0) * (2 / 3 * count) / width).sqrt())
        return out + mode.bells(out) * size * self._deviation


def _place(values: torch.Tensor) -> tuple[int, int]:
    return values.data_ptr(), values.numel()
