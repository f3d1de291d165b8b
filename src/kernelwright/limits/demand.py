# SPDX-License-Identifier: Apache-2.0
"""From the results back to the inputs: how many elements of each storage the results cannot do without.

Each executed operator is a step that reads parts of storages and makes others. Where only a part of what a step makes
is used, only that share of what it reads counts: slicing can be moved before an operator, and no bound may forbid it.
Where it cannot (a slice along the dimension that softmax sums over) the share is too small, so the bound stays a bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

View = tuple[int, tuple[int, ...], tuple[int, ...]]
"""(offset, shape, strides) in elements of a storage."""
LARGEST_MASK = 1 << 26
"""Elements of a storage up to which overlapping views are laid over each other one by one; 64 MiB of marks."""


@dataclass(frozen=True, slots=True)
class Read:
    """``amount`` elements that a step reads of a storage through a view."""

    key: int
    view: View
    amount: float


@dataclass(frozen=True, slots=True)
class Step:
    """One executed operator: the storages it makes or changes, and what it reads of others."""

    results: tuple[int, ...]
    reads: tuple[Read, ...]
    replaces: bool = False
    """Nothing of what was in the results before is left."""


class Needs:
    """Elements needed of every storage, of which ``sizes`` says how many elements there are."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._sizes = sizes
        self._views: dict[int, dict[View, float]] = {}

    def add(self, read: Read, share: float = 1.0) -> None:
        """``share`` of a read is needed; the same view read twice is read once."""
        views = self._views.setdefault(read.key, {})
        views[read.view] = max(views.get(read.view, 0.0), read.amount * share)

    def elements(self, key: int) -> float:
        """How many distinct elements of a storage are needed."""
        views = self._views.get(key, {})
        total, size = sum(views.values()), self._sizes.get(key, 0)
        if len(views) > 1:
            total = min(total, union(list(views), size))
        return min(total, float(size))

    def share(self, key: int) -> float:
        """The same, as a share of the storage."""
        size = self._sizes.get(key, 0)
        return self.elements(key) / size if size else 0.0

    def known(self, key: int) -> bool:
        """Whether anything needed reads the storage, were it no element of it."""
        return key in self._views

    def back(self, steps: Sequence[Step]) -> None:
        """Follow ``steps`` from the last to the first."""
        for step in reversed(steps):
            made = [key for key in step.results if key in self._views]
            if not made:
                continue
            share = max(self.share(key) for key in made)
            if step.replaces:
                for key in made:
                    del self._views[key]
            for read in step.reads:
                if read.key not in step.results:  # what is changed in place is needed as far as it was before
                    self.add(read, share)


def union(views: Sequence[View], size: int) -> float:
    """Distinct elements of several views of one storage; where that would take too long, those of the largest."""
    ranges = sorted((offset, offset + _reach(shape, strides)) for offset, shape, strides in views)
    if all(end <= begin for (_, end), (begin, _) in pairwise(ranges)):
        return float(sum(math.prod(shape) for _, shape, _ in views))
    if size > LARGEST_MASK or ranges[-1][1] > LARGEST_MASK:
        return float(max(math.prod(shape) for _, shape, _ in views))
    marks = np.zeros(max(size, max(end for _, end in ranges)), dtype=bool)
    for offset, shape, strides in views:
        np.lib.stride_tricks.as_strided(marks[offset:], shape, strides)[...] = True
    return float(marks.sum())


def _reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from a view's first to its last, both included; 0 for an empty one."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if all(shape) else 0
