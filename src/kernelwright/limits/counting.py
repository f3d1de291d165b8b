# SPDX-License-Identifier: Apache-2.0
"""How much of an operand some operators read, and how much they compute, where torch's own counters do not say."""

from __future__ import annotations

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


def window_coverage(
    name: str, position: int, operands: list[torch.Tensor], results: list[torch.Tensor], args: Any
) -> float:
    """Share of an operand that a moving window reads: of the input what lies under a window, of the weights of a
    convolution those that ever lie over the input."""
    backward = name == "convolution_backward"
    data, weights = (1, 2) if backward else (0, 1)
    if position not in (data, weights) or (position == weights and not name.startswith("convolution")):
        return 1.0
    rank = operands[data].ndim - 2 if name.startswith("convolution") else 3 if "3d" in name else 2

    def option(place: int, default: int) -> list[int]:
        given = list(args[place]) if len(args) > place and args[place] else [default]
        return given * rank if len(given) == 1 else given

    if name.startswith("convolution"):
        first = 4 if backward else 3
        kernel, transposed = list(operands[weights].shape[2:]), bool(args[first + 3])
        stride, padding, dilation = option(first, 1), option(first + 1, 0), option(first + 2, 1)
    else:
        kernel, transposed = option(1, 1), False
        stride = option(2, 1) if len(args) > 2 and args[2] else kernel
        padding, dilation = option(3, 0), option(4, 1) if name.startswith("max") else [1] * rank
    inner, outer = operands[data].shape[-rank:], (operands[0] if backward else results[0]).shape[-rank:]
    share = 1.0
    for axis in range(rank):
        sizes = (int(outer[axis]), int(inner[axis])) if transposed else (int(inner[axis]), int(outer[axis]))
        steps, taps = np.arange(sizes[1])[:, None], np.arange(int(kernel[axis]))[None, :]
        at = steps * stride[axis] - padding[axis] + taps * dilation[axis]
        inside = (at >= 0) & (at < sizes[0])
        if position == weights:
            share *= float(inside.any(axis=0).mean())
        elif transposed:
            share *= float(inside.any(axis=1).mean())
        else:
            share *= np.unique(at[inside]).size / max(1, sizes[0])
    return share


def distances(operands: list[torch.Tensor]) -> int:
    """Operations of the distances between all rows of two operands."""
    one, two = operands[0], operands[1]
    return 2 * one.numel() * two.shape[-2]
