# SPDX-License-Identifier: Apache-2.0
"""Tensors of a graph while its program is built, and the region that begins with some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelwright.proposers.templates.ir import Tensor
from kernelwright.proposers.templates.space import Growing, Handle


@dataclass
class Item:
    """A tensor of the graph while the program is built."""

    tensor: Tensor
    level: int
    """The step layer after which it exists; sources are 0."""
    home: Growing | None = None
    handle: Handle | None = None
    base: Item | None = None
    """The same elements in the same order, of which this is a view; regions read it directly."""
    view: torch.fx.Node | None = None
    """The node that makes the view, until a torch call needs it made."""


def fresh(read: Sequence[Item], over: Sequence[Tensor], real: str) -> Growing | None:
    """An empty region over the broadcast shape of ``over``, computing in ``real``, after everything it reads."""
    shape: list[tuple[str, int]] = []
    level = max(((item.base or item).level for item in read), default=0)
    for tensor in over:
        own = list(zip(tensor.shape, tensor.sample, strict=True))
        own = [("1", 1)] * (len(shape) - len(own)) + own
        shape = [("1", 1)] * (len(own) - len(shape)) + shape
        shape = [b if a[0] == "1" else a for a, b in zip(shape, own, strict=True)]
    axes = [pair for pair in shape if pair[0] != "1"]
    if not axes:
        return None
    return Growing(tuple(a for a, _ in axes), tuple(b for _, b in axes), level + 1, real)
