# SPDX-License-Identifier: Apache-2.0
"""From which inputs NaN and infinities arrive in a result, where nothing else can bring them there.

``nan_to_num(x @ w)`` guards a result and not an input, so nobody ever drew what it is for: who left it out passed. A
product, a sum, a sigmoid is finite where inputs are, but for overflow, so what is looked for in one of those comes of
an input. A softmax whose row is masked, a quotient, a logarithm have NaN of their own, and a guard behind those is for
that: an honest kernel that looks at its mask instead never meets a NaN in an input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kernelwright.judge import borders

OPERATORS = 4096
"""Of a call that are followed, the first ones: those of a loop over 50,000 would take 0.2 s."""
_FINITE = {"mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "linear", "add", "sub", "rsub", "mul", "neg", "abs",
           "square", "sum", "mean", "relu", "tanh", "sigmoid", "clone", "copy", "_to_copy", "cat", "stack", "flip",
           "roll", "index_select"}  # fmt: skip
"""Operators whose results are finite where all that goes in is. No convolution: one by transforms, Winograd's too, puts
an infinity in more places than torch does."""


class Arrived:
    """By storage of a result, those of what it was computed from; none where it may have NaN of its own."""

    def __init__(self) -> None:
        self._of: dict[int, frozenset[int]] = {}
        self._left = OPERATORS

    def note(self, func: Any, args: Sequence[Any], out: Any) -> None:
        """One operator has run. Memory that was freed is another result's as soon as one lies there."""
        self._left -= 1
        made = _places(out)
        if not made or self._left < 0:
            return
        held = _places(args[1:] if borders.named(func) == "copy" else args)
        known = [self._of.get(place, frozenset((place,))) for place in held]
        clean = not held or (_finite(func, args) and all(known))
        writes = func._schema.is_mutable
        found = frozenset(made).union(*known) if clean else frozenset[int]()
        self._of |= dict.fromkeys((place for place in made if place not in held or writes), found)

    def origins(self, place: int) -> frozenset[int]:
        """Storages of which that is a result, and itself: an input may be a copy of another tensor."""
        return frozenset((place,)) | (self._of.get(place, frozenset()) if self._left >= 0 else frozenset())


def _finite(func: Any, args: Sequence[Any]) -> bool:
    name = borders.named(func)
    if name in ("div", "pow"):
        return len(args) > 1 and isinstance(args[1], int | float) and args[1] > 0
    return name in _FINITE


def _places(value: Any) -> list[int]:
    return [one.untyped_storage().data_ptr() for one in _tensors(value) if one.numel()]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Those of an argument, or a list of such, that have a storage."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested:
        yield value
