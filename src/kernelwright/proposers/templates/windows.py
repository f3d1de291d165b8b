# SPDX-License-Identifier: Apache-2.0
"""Which torch calls gather boxes of elements: pooling, and convolutions of every channel with a filter of its own."""

from __future__ import annotations

import re
from typing import Any

import torch

from kernelwright.proposers.templates.ir import Window
from kernelwright.proposers.templates.rules import arg
from kernelwright.proposers.templates.scans import base

TYPES = frozenset({"float32", "float16", "bfloat16"})
"""Types that windows have a text for."""
_POOL = re.compile(r"(max|avg)_pool([123])d")
_CONV = re.compile(r"conv([123])d")


def window(node: torch.fx.Node) -> Window | None:
    """The window of a call on floating tensors, or None where it is none or one that is not covered."""
    name = base(node)
    for pattern, read in ((_POOL, _pool), (_CONV, _conv)):
        match = pattern.fullmatch(name)
        value = node.meta.get("val")
        if match is not None and isinstance(value, torch.Tensor):
            return read(node, match)
    return None


def _pool(node: torch.fx.Node, match: re.Match[str]) -> Window | None:
    kind, rank = match[1], int(match[2])
    kernel = _sizes(arg(node, 1, "kernel_size"), rank)
    stride = _sizes(arg(node, 2, "stride") or list(kernel or ()), rank)
    padding = _sizes(arg(node, 3, "padding", 0), rank)
    dilation: tuple[int, ...] | None = (1,) * rank
    if kind == "max":
        dilation = _sizes(arg(node, 4, "dilation", 1), rank)
        ceil = arg(node, 5, "ceil_mode", False)
    else:
        ceil = arg(node, 4, "ceil_mode", False)
        # Windows over the edge are divided by their whole size; counting only what lies inside is not covered.
        counted = arg(node, 5, "count_include_pad", True) or not any(padding or ())
        if not counted or arg(node, 6, "divisor_override") is not None:
            return None
    if ceil or kernel is None or stride is None or padding is None or dilation is None:
        return None
    return _made("max" if kind == "max" else "mean", rank, kernel, stride, padding, dilation)


def _conv(node: torch.fx.Node, match: re.Match[str]) -> Window | None:
    rank = int(match[1])
    x, weight = (a.meta["val"] for a in node.args[:2] if isinstance(a, torch.fx.Node))
    groups = arg(node, 6, "groups", 1)
    stride = _sizes(arg(node, 3, "stride", 1), rank)
    padding = _sizes(arg(node, 4, "padding", 0), rank)
    dilation = _sizes(arg(node, 5, "dilation", 1), rank)
    if stride is None or padding is None or dilation is None or x.dim() != rank + 2:
        return None
    kernel = _sizes([int(size) for size in weight.shape[2:]], rank)
    if kernel is None or groups != x.shape[1] or groups == 1 or weight.shape[0] % groups:
        return None
    repeats = int(weight.shape[0]) // int(groups)
    return _made("dot", rank, kernel, stride, padding, dilation, repeats)


def _sizes(value: Any, rank: int) -> tuple[int, ...] | None:
    """One whole number per dimension."""
    if isinstance(value, int):
        return (value,) * rank
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value):
        return None
    return tuple(value) * (rank if len(value) == 1 else 1)


def _made(
    kind: str,
    rank: int,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    repeats: int = 1,
) -> Window | None:
    if kernel[0] * kernel[-1] > 1024 or any(n <= 0 for n in (*kernel, *stride, *dilation)):
        return None

    def three(values: tuple[int, ...], fill: int) -> tuple[int, int, int]:
        a, b, c = (fill,) * (3 - rank) + values
        return a, b, c

    return Window(
        kind=kind,
        rank=rank,
        kernel=three(kernel, 1),
        stride=three(stride, 1),
        padding=three(padding, 0),
        dilation=three(dilation, 1),
        repeats=repeats,
    )
