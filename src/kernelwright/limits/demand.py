# SPDX-License-Identifier: Apache-2.0
"""From the results back to the inputs: how many bytes of each storage the results cannot do without.

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
EVEN = "even"
"""A share of the result needs at least that share of the operand."""
PLACED = "placed"
"""Each element of the operand is in one place of the result or in none: missing places may be all of its places."""
WHOLE = "whole"
"""Nothing is known unless the whole result is needed."""


@dataclass(frozen=True, slots=True)
class Read:
    """``amount`` elements of ``width`` bytes that a step reads of a storage through a view."""

    key: int
    view: View
    amount: float
    width: int
    how: str = EVEN


@dataclass(frozen=True, slots=True)
class Step:
    """One executed operator: the storages it makes or changes, and what it reads of others."""

    results: tuple[int, ...]
    reads: tuple[Read, ...]
    made: float = 0.0
    """Elements of the (first) result."""
    wrote: Read | None = None
    """The part of an existing storage that it changes; its ``amount`` is how many elements may be replaced there."""
    replaces: bool = False
    """Nothing of what was in that part before is left."""


class Needs:
    """Bytes needed of every storage, of which ``sizes`` says how many bytes there are."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._sizes = sizes
        self._views: dict[int, dict[tuple[View, int], float]] = {}

    def add(self, read: Read, amount: float | None = None) -> None:
        """A read, or only ``amount`` elements of it; the same view read twice is read once."""
        views = self._views.setdefault(read.key, {})
        place = (read.view, read.width)
        views[place] = max(views.get(place, 0.0), read.amount if amount is None else amount)

    def bytes(self, key: int) -> float:
        """How many distinct bytes of a storage are needed at least.

        Views that lie apart add up. Of others, those needed in full are laid over each other; of which elements a
        partly needed one consists is not known, so they may all be among the others'.
        """
        views = self._views.get(key, {})
        ranges = sorted(_bytes_of(view, width) for view, width in views)
        if all(end <= begin for (_, end), (begin, _) in pairwise(ranges)):
            total = sum(amount * width for (_, width), amount in views.items())
        else:
            total = max(amount * width for (_, width), amount in views.items())
            for width in {width for _, width in views}:
                full = [view for (view, w), amount in views.items() if w == width and amount >= _count(view)]
                total = max(total, (union(full) or 0.0) * width)
        return min(total, float(self._sizes.get(key, 0)))

    def share(self, key: int) -> float:
        """The same, as a share of the storage."""
        size = self._sizes.get(key, 0)
        return self.bytes(key) / size if size else 0.0

    def known(self, key: int) -> bool:
        """Whether anything needed reads the storage, were it no element of it."""
        return key in self._views

    def back(self, steps: Sequence[Step]) -> None:
        """Follow ``steps`` from the last to the first."""
        for step in reversed(steps):
            made = [key for key in step.results if key in self._views]
            if not made:
                continue
            wrote = step.wrote
            if wrote is None:
                share = max(self.share(key) for key in made)
            elif wrote.key in self._views:
                share = self._written(wrote)
                self._replaced(wrote, everything=step.replaces)
            else:
                continue
            for read in step.reads:
                if read.key not in step.results:  # what is changed in place is needed as far as it was before
                    self.add(read, _needed(read, share, step.made))

    def _written(self, wrote: Read) -> float:
        """The least share of a changed part that is needed."""
        views = {view: n for (view, width), n in self._views[wrote.key].items() if width == wrote.width}
        size, found = _count(wrote.view), 0.0
        for view, amount in views.items():
            found = max(found, amount - _count(view) + (shared(view, wrote.view) or 0.0))
        full = [view for view, amount in views.items() if amount >= _count(view)]
        if len(full) > 1 and found < size:
            alone, together = union(full), union([*full, wrote.view])
            if alone is not None and together is not None:
                found = max(found, alone + size - together)
        return min(1.0, found / size) if size else 0.0

    def _replaced(self, wrote: Read, *, everything: bool) -> None:
        """What was in a part before it was changed is needed less by as many elements as were replaced."""
        views, (begin, end) = self._views[wrote.key], _bytes_of(wrote.view, wrote.width)
        for (view, width), amount in list(views.items()):
            first, last = _bytes_of(view, width)
            if last <= begin or end <= first or not wrote.amount:
                continue
            common = shared(view, wrote.view) if width == wrote.width else None
            if everything and common == _count(view):
                del views[view, width]
            elif everything and width == wrote.width and amount >= _count(view) and _dense(view) and _dense(wrote.view):
                del views[view, width]
                for start, stop in ((first, begin), (end, last)):
                    if start < stop:
                        size = (stop - start) // width
                        views[(start // width, (size,), (1,)), width] = float(size)
            elif width == wrote.width:
                most = min(_count(view), _count(wrote.view)) if common is None else common
                views[view, width] = max(0.0, amount - min(most, wrote.amount))
            else:
                views[view, width] = 0.0
        if not views:
            del self._views[wrote.key]


def _needed(read: Read, share: float, made: float) -> float:
    """Elements of an operand needed at least where ``share`` of the ``made`` elements of the result is."""
    if share >= 1.0:
        return read.amount
    if read.how == PLACED:
        return max(0.0, read.amount - (1.0 - share) * made)
    return read.amount * share if read.how == EVEN else 0.0


def union(views: Sequence[View]) -> float | None:
    """Distinct elements of several views of one storage; None where that would take too long."""
    ranges = sorted(_bytes_of(view, 1) for view in views)
    if all(end <= begin for (_, end), (begin, _) in pairwise(ranges)):
        return float(sum(_count(view) for view in views))
    if ranges[-1][1] > LARGEST_MASK:
        return float(max(_count(view) for view in views)) if len(set(views)) == 1 else None
    marks = np.zeros(max(end for _, end in ranges), dtype=bool)
    for offset, shape, strides in views:
        np.lib.stride_tricks.as_strided(marks[offset:], shape, strides)[...] = True
    return float(marks.sum())


def shared(one: View, other: View) -> float | None:
    """Elements that two views of one storage have in common; None where counting them would take too long."""
    (begin, end), (first, last) = _bytes_of(one, 1), _bytes_of(other, 1)
    if end <= first or last <= begin:
        return 0.0
    if one == other or (begin <= first and last <= end and _count(one) == end - begin):
        return float(_count(other))
    if first <= begin and end <= last and _count(other) == last - first:
        return float(_count(one))
    together = union([one, other])
    return None if together is None else _count(one) + _count(other) - together


def _count(view: View) -> int:
    return math.prod(view[1])


def _dense(view: View) -> bool:
    begin, end = _bytes_of(view, 1)
    return _count(view) == end - begin


def _bytes_of(view: View, width: int) -> tuple[int, int]:
    """Where a view begins and ends, in bytes of its storage; nowhere for an empty one."""
    offset, shape, strides = view
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if all(shape) else 0
    return offset * width, (offset + reach) * width
