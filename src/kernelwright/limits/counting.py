# SPDX-License-Identifier: Apache-2.0
"""How much of an operand some operators read, and how much they compute, where torch's own counters do not say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

DISTANCES = {"_euclidean_dist", "_cdist_forward"}
"""Of all pairs of rows: as many multiply-adds as their product has."""


def different(values: np.ndarray, size: int) -> float:
    """How many of ``size`` places are named; negative ones count from the end."""
    marks = np.zeros(max(1, size), dtype=bool)
    marks[values.reshape(-1)] = True
    return float(marks.sum())


def triangle(tensor: torch.Tensor, name: str, diagonal: int) -> float:
    """Share of the elements that ``tril`` or ``triu`` keeps."""
    rows, cols = tensor.shape[-2], tensor.shape[-1]
    lower = sum(min(max(row + diagonal + 1, 0), cols) for row in range(rows))
    if name == "triu":
        lower = rows * cols - sum(min(max(row + diagonal, 0), cols) for row in range(rows))
    return lower / max(rows * cols, 1)


def window_coverage(name: str, operands: list[torch.Tensor], args: Any) -> float:
    """Least share of the input a strided window reads: prod(min(1, kernel / stride))."""
    if name == "convolution":
        kernel, stride = list(operands[1].shape[2:]), list(args[3])
    else:
        kernel = list(args[1])
        stride = list(args[2]) if len(args) > 2 and args[2] else kernel
    if len(stride) == 1:
        stride = stride * len(kernel)
    return math.prod(min(1.0, size / step) for size, step in zip(kernel, stride, strict=False))


def distances(operands: list[torch.Tensor]) -> int:
    """Operations of the distances between all rows of two operands."""
    one, two = operands[0], operands[1]
    return 2 * one.numel() * two.shape[-2]
