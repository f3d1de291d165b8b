# SPDX-License-Identifier: Apache-2.0
"""How much of an operand some operators read, and how much they compute, where torch's own counters do not say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

DISTANCES = {"_euclidean_dist", "_cdist_forward"}
"""Of all pairs of rows: as many multiply-adds as their product has."""


SECTOR = 32
"""Bytes that memory moves at least: GPUs fetch sectors of 32 (CUDA C++ Best Practices Guide, "Coalesced Access to
Global Memory"), CPUs lines of 64 or more."""


def named(values: np.ndarray, size: int) -> np.ndarray:
    """Which of ``size`` places are named; negative values count from the end."""
    marks = np.zeros(max(1, size), dtype=bool)
    marks[values.reshape(-1)] = True
    return marks


def fetched(marks: np.ndarray, tensor: torch.Tensor, *, stored: bool) -> float:
    """Elements of a tensor that come from memory with those marked, in order: the whole sectors they lie in.

    The marked ones alone where the tensor is not ``stored`` (what is computed on the way may lie in any order, or
    nowhere), not contiguous, or does not begin with a sector.
    """
    each = SECTOR // tensor.itemsize
    if not stored or each < 2 or not tensor.is_contiguous() or tensor.storage_offset() * tensor.itemsize % SECTOR:
        return float(np.count_nonzero(marks))
    full = marks.size - marks.size % each
    sectors = int(np.count_nonzero(marks[:full].reshape(-1, each).any(axis=1)))
    return float(sectors * each + (marks.size - full) * bool(marks[full:].any()))


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
