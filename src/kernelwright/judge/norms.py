# SPDX-License-Identifier: Apache-2.0
"""The size of errors by band of magnitude (``bands``), a chunk of an answer at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from kernelwright.judge import numerics
from kernelwright.judge.floors import BANDS
from kernelwright.judge.native import SAFE


def of_bands(
    error: torch.Tensor, order: torch.Tensor | None, counts: Sequence[int], *, lenient: bool
) -> tuple[float, list[float]]:
    """Of a chunk the largest error, and the norm of the errors in each band; none where some are not finite."""
    top = numerics.peak(error)
    if not math.isfinite(top):
        if not lenient:
            return top, [math.nan] * BANDS
        error = tamed(error)
        top = numerics.peak(error)
    if top == 0.0:
        return top, [0.0] * BANDS
    scale = 1.0 if SAFE[0] < top < SAFE[1] else top
    if order is not None and order.dtype is torch.uint8:
        sizes_of = _sizes_on_device if order.is_cuda else _sizes
        return top, sizes_of(error, order, counts, scale)
    pieces = (error if order is None else error.index_select(0, order)).split(list(counts))
    sizes = [torch.linalg.vector_norm(piece if scale == 1.0 else piece / scale) for piece in pieces]
    return top, [size * scale for size in torch.stack(sizes).tolist()]


def _sizes(error: torch.Tensor, bands: torch.Tensor, counts: Sequence[int], scale: float) -> list[float]:
    """The norm of the errors in each band."""
    numbers, places = error.numpy(), bands.numpy()
    squares = np.square(numbers if scale == 1.0 else numbers / scale)
    sums = [float(np.multiply(squares, places == band).sum()) if count else 0.0 for band, count in enumerate(counts)]
    return [math.sqrt(total) * scale for total in sums]


def _sizes_on_device(error: torch.Tensor, bands: torch.Tensor, counts: Sequence[int], scale: float) -> list[float]:
    """The same, waited for once."""
    squares = (error if scale == 1.0 else error / scale).square()
    sums = [(squares * (bands == band)).sum() for band, count in enumerate(counts) if count]
    found = iter(torch.stack(sums).tolist())
    return [math.sqrt(next(found)) * scale if count else 0.0 for count in counts]


def minus(answer: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The difference in float64. Formats of one byte take part in no arithmetic and are converted first."""
    return torch.sub(answer if answer.element_size() > 1 else answer.to(torch.float64), exact)


def tamed(values: torch.Tensor) -> torch.Tensor:
    """Zeros where they are not finite."""
    return values.nan_to_num(0.0, 0.0, 0.0)
