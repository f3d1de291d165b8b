# SPDX-License-Identifier: Apache-2.0
"""A region while it grows: which axes each value runs over, and which splits into rows and columns remain possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kernelwright.proposers.templates.ir import (
    BAND,
    BOOL,
    COLUMN,
    COMPARE,
    CYCLE,
    F32,
    F64,
    FULL,
    I64,
    READS,
    ROW,
    SCALAR,
    TILE,
    TOTAL,
    Fused,
    Region,
    Tensor,
    Value,
)  # fmt: skip
from kernelwright.proposers.templates.sizes import equal, product

Logical = tuple[int | None, ...]
"""Per dimension of a tensor: the axis of the space it runs along, or None where its size is 1.

A negative number stands for several axes in a row that the dimension runs through; see ``Growing.merge``."""

Split = tuple[int, int]
"""(a, b): axes a..b-1 are the columns, all others the rows; b < number of axes makes the region strided."""


_COSTS = {CYCLE: 1, TILE: 1, BAND: 2}
"""How unwelcome a kind is where a region may still be split in several ways."""


class NotFusible(Exception):
    """This operation cannot join this region (or any); nothing was changed that ``restore`` does not undo."""


@dataclass(frozen=True)
class Handle:
    """A value of the growing region as the tensor it stands for."""

    value: int
    logical: Logical


@dataclass
class Grown:
    """One value: op, arguments, axes it varies over, and whether it waits for all rows."""

    op: str
    args: tuple[int, ...]
    axes: frozenset[int]
    dtype: str
    total: bool
    index: int = -1
    number: float = 0.0


def broadcast(*logicals: Logical) -> Logical:
    """Aligned at the right, as torch broadcasts; raises NotFusible where two different axes meet."""
    rank = max((len(x) for x in logicals), default=0)
    out: list[int | None] = [None] * rank
    for logical in logicals:
        for offset, axis in enumerate(reversed(logical)):
            position = rank - 1 - offset
            if axis is not None and out[position] not in (None, axis):
                raise NotFusible("two axes meet")
            out[position] = axis if axis is not None else out[position]
    return tuple(out)


@dataclass
class Growing:
    """A region under construction over the axes of ``sizes``."""

    sizes: tuple[str, ...]
    sample: tuple[int, ...]
    level: int
    float_type: str = F32
    """The type of every value that is not whole."""
    values: list[Grown] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)
    outputs: list[tuple[int, Tensor]] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    merged: dict[int, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    """Negative number to the axes it stands for, and their size as one."""

    def __post_init__(self) -> None:
        n = len(self.sizes)
        self.splits = [(a, n) for a in range(n + 1)]

    def own(self, dtype: str) -> str:
        """How a type is computed here: all floats in one."""
        return self.float_type if dtype in (F32, F64) else dtype

    def snapshot(self) -> tuple[list[Grown], list[str], list[str], list[Split]]:
        """What ``restore`` needs to undo a failed join."""
        return list(self.values), list(self.inputs), list(self.scalars), list(self.splits)

    def restore(self, saved: tuple[list[Grown], list[str], list[str], list[Split]]) -> None:
        """Back to the snapshot."""
        self.values, self.inputs, self.scalars, self.splits = saved

    def merge(self, axes: tuple[int, ...], size: str) -> int:
        """One number for a dimension of ``size`` elements that runs through several axes."""
        if len(axes) == 1:
            return axes[0]
        for number, known in self.merged.items():
            if known == (axes, size):
                return number
        self.merged[-1 - len(self.merged)] = (axes, size)
        return -len(self.merged)

    def real(self, axes: Iterable[int | None]) -> list[int]:
        """The axes of the space behind those of some dimensions, in order."""
        found: list[int] = []
        for axis in axes:
            if axis is not None:
                found += self.merged[axis][0] if axis < 0 else (axis,)
        return found

    def size(self, axis: int) -> str:
        """The size of a dimension along it."""
        return self.merged[axis][1] if axis < 0 else self.sizes[axis]

    def regroup(self, axes: list[int], wanted: Iterable[str]) -> list[int]:
        """An axis, or several merged, for each size in order; NotFusible where they do not come out even."""
        left, found = list(axes), []
        for size in wanted:
            group: list[int] = []
            while left and not (group and equal(product(self.sizes[a] for a in group), size)):
                group.append(left.pop(0))
            if not group or not equal(product(self.sizes[a] for a in group), size):
                raise NotFusible("a reshape that cuts through an axis")
            found.append(self.merge(tuple(group), size))
        if left:
            raise NotFusible("a reshape that moves axes")
        return found

    def kind(self, axes: frozenset[int], split: Split) -> str | None:
        """How a tensor over these axes is read under a split, or None if no kind fits."""
        a, b = split
        n = len(self.sizes)
        rows = frozenset(range(a)) | frozenset(range(b, n))
        if len(axes) == n:
            return FULL
        if not axes:
            return SCALAR
        if axes == frozenset(range(a, b)):
            return COLUMN
        if axes == rows:
            return ROW
        tail, end = min(axes), max(axes) + 1
        if b == n and axes == frozenset(range(tail, end)) and tail <= a < end:
            return TILE if end == n else BAND
        inner = [*range(a), *range(b, n)][-len(axes) :]
        return CYCLE if axes == frozenset(inner) else None

    def _narrow(self, keep: Callable[[Split], bool]) -> None:
        left = [split for split in self.splits if keep(split)]
        if not left:
            raise NotFusible("no split into rows and columns fits")
        self.splits = left

    def add(self, value: Grown) -> int:
        """Append a value (an equal one is shared); narrows the splits to those that can hold it."""
        if value in self.values:
            return self.values.index(value)
        if not value.total:
            self._narrow(lambda split: self._holds(value.axes, split))
        self.values.append(value)
        return len(self.values) - 1

    def _holds(self, axes: frozenset[int], split: Split) -> bool:
        """Whether a value over these axes has a kind, with at most one width of bands in the region."""
        kind = self.kind(axes, split)
        if kind != BAND:
            return kind is not None
        ends = {max(v.axes) for v in self.values if not v.total and self.kind(v.axes, split) == BAND}
        return ends <= {max(axes)}

    def external(self, name: str, logical: Logical, dtype: str) -> Handle:
        """A tensor from outside, read contiguously."""
        axes = self.real(logical)
        if axes != sorted(axes) or len(set(axes)) != len(axes):
            raise NotFusible("its axes are in another order")
        grown = Grown("input", (), frozenset(axes), dtype, False, self._slot(name))
        return Handle(self.add(grown), logical)

    def const(self, number: float, dtype: str = "") -> Handle:
        """A literal."""
        return Handle(
            self.add(Grown("const", (), frozenset(), dtype or self.float_type, False, number=float(number))), ()
        )

    def scalar(self, text: str) -> Handle:
        """A number known at the call only."""
        if text not in self.scalars:
            self.scalars.append(text)
        return Handle(
            self.add(Grown("scalar", (), frozenset(), self.float_type, False, index=self.scalars.index(text))), ()
        )

    def apply(self, op: str, *handles: Handle, dtype: str = "") -> Handle:
        """A pointwise op over broadcast arguments."""
        logical = broadcast(*(h.logical for h in handles))
        args = tuple(h.value for h in handles)
        axes = frozenset().union(*(self.values[i].axes for i in args))
        total = any(self.values[i].total for i in args)
        if total and axes:
            raise NotFusible("it needs the result of all rows again")
        dtype = BOOL if op in COMPARE or op in ("and", "or", "not") else dtype or self.float_type
        return Handle(self.add(Grown(op, args, axes, dtype, total)), logical)

    def reduce(self, op: str, handle: Handle, dims: Iterable[int], keepdim: bool) -> Handle:
        """``sum``, ``max`` or ``min`` over dimensions of the tensor: a row reduction, or one over everything."""
        rank = len(handle.logical)
        chosen = {d % rank for d in dims} if rank else set()
        axes = frozenset(self.real(axis for d, axis in enumerate(handle.logical) if d in chosen))
        left: Logical = tuple(None if d in chosen else axis for d, axis in enumerate(handle.logical))
        if not keepdim:
            left = tuple(axis for d, axis in enumerate(left) if d not in chosen)
        return self.reduce_axes(op, handle, axes, left)

    def reduce_axes(self, op: str, handle: Handle, axes: frozenset[int], left: Logical) -> Handle:
        """The same over axes of the space; ``left`` is what remains of the tensor."""
        value = self.values[handle.value]
        if value.dtype == self.float_type and not axes and op != "argmax":
            return Handle(handle.value, left)  # dimensions of size 1
        if value.total or value.dtype != self.float_type:
            raise NotFusible("nothing to reduce")
        if axes == value.axes and not any(axis is not None for axis in left) and op != "argmax":
            return Handle(self._total(op, handle.value), left)
        self._columns(value.axes, axes)
        dtype = I64 if op == "argmax" else self.float_type
        return Handle(self.add(Grown(f"row_{op}", (handle.value,), value.axes - axes, dtype, False)), left)

    def scan(self, op: str, handle: Handle, dim: int) -> Handle:
        """A running sum or product along one dimension; ``op`` is one of ``ir.SCANS``."""
        axis = handle.logical[dim % len(handle.logical)] if handle.logical else None
        value = self.values[handle.value]
        if axis is None or value.total or value.dtype != self.float_type:
            raise NotFusible("nothing to add up")
        self._columns(value.axes, frozenset(self.real([axis])))
        return Handle(self.add(Grown(op, (handle.value,), value.axes, self.float_type, False)), handle.logical)

    def _columns(self, filled: frozenset[int], axes: frozenset[int]) -> None:
        """Only these axes may be the columns from here on; ``filled`` are those of the value read along them."""
        if len(filled) != len(self.sizes):
            raise NotFusible("a second reduction over rows")
        a, b = min(axes, default=0), max(axes, default=-1) + 1
        if axes != frozenset(range(a, b)) or not axes:
            raise NotFusible("the reduced axes are apart")
        if b < len(self.sizes):
            self._restride((a, b))
        self._narrow(lambda split: split == (a, b))

    def _total(self, op: str, value: int) -> int:
        """Over all elements; a value that does not fill rows or space would be counted too often."""
        axes = self.values[value].axes
        self._narrow(lambda split: self.kind(axes, split) in (FULL, ROW))
        return self.add(Grown(f"total_{op}", (value,), frozenset(), self.float_type, True))

    def _restride(self, split: Split) -> None:
        """A middle axis is reduced: try the strided split, if every value so far can be read that way."""
        if self.splits == [split]:
            return
        fixed = any(v.op.startswith(("row_", "scan_")) or v.op == "pick" for v in self.values)
        if fixed or any(not v.total and self.kind(v.axes, split) is None for v in self.values):
            raise NotFusible("rows are not where this reduction needs them")
        self.splits = [split]

    def pick(self, full: Handle, index: Handle) -> Handle:
        """One element of each row, at the column that ``index`` (one integer per row) names."""
        n = len(self.sizes)
        axes = self.values[full.value].axes
        self._narrow(lambda s: s == (n - 1, n) and len(axes) == n)
        if self.values[index.value].axes != frozenset(range(n - 1)):
            raise NotFusible("not one index per row")
        grown = Grown("pick", (full.value, index.value), frozenset(range(n - 1)), self.float_type, False)
        return Handle(self.add(grown), index.logical)

    def take(self, table: str, index: Handle, count: Handle, logical: Logical) -> Handle:
        """Rows of a table in memory; the dimensions of ``index`` come first, the others are the table's columns."""
        rows = self.values[index.value].axes
        columns = self._of_table(rows, logical[len(index.logical) :])
        args = (index.value, count.value)
        return Handle(self.add(Grown("take", args, rows | columns, self.float_type, False, self._slot(table))), logical)

    def bag(self, table: str, lists: str, length: Handle, count: Handle, logical: Logical) -> Handle:
        """Sums of rows of a table: for each row of the space, those that its own list of integers names."""
        rows = frozenset(self.real(logical[:-1]))
        columns = self._of_table(rows, logical[-1:])
        begin = self.add(Grown("list", (length.value,), rows, I64, False, self._slot(lists)))
        args = (begin, length.value, count.value)
        return Handle(self.add(Grown("bag", args, rows | columns, self.float_type, False, self._slot(table))), logical)

    def _of_table(self, rows: frozenset[int], trailing: Logical) -> frozenset[int]:
        """The axes of a table's columns, which are the columns of the space from here on."""
        n, columns = len(self.sizes), frozenset(self.real(trailing))
        if not rows or not columns or columns != frozenset(range(min(columns), n)):
            raise NotFusible("one row, or no columns")
        self._narrow(lambda split: split == (min(columns), n))
        return columns

    def _slot(self, name: str) -> int:
        if name not in self.inputs:
            self.inputs.append(name)
        return self.inputs.index(name)

    def output(self, handle: Handle, tensor: Tensor) -> None:
        """The value becomes a tensor of the program. Raises NotFusible if it fills neither rows nor space."""
        if any(t.name == tensor.name for _, t in self.outputs):
            return
        value = self.values[handle.value]
        axes = self.real(handle.logical)
        if axes != sorted(axes):
            raise NotFusible("its axes are in another order")
        if not value.total:
            self._narrow(lambda split: self.kind(value.axes, split) in (FULL, ROW))
        self.outputs.append((handle.value, tensor))

    def finish(self) -> Fused:
        """The region as data: dead values dropped, kinds settled by the first split that remains."""
        split = self._chosen()
        keep: set[int] = set()
        stack = [value for value, _ in self.outputs]
        while stack:
            position = stack.pop()
            if position not in keep:
                keep.add(position)
                stack.extend(self.values[position].args)
        order = sorted(keep)
        number = {old: new for new, old in enumerate(order)}
        inputs = sorted({self.values[i].index for i in order if self.values[i].op in READS})
        scalars = sorted({self.values[i].index for i in order if self.values[i].op == "scalar"})
        values = []
        for position in order:
            grown = self.values[position]
            slots = inputs if grown.op in READS else scalars if grown.op == "scalar" else None
            values.append(
                Value(
                    op=grown.op, args=tuple(number[i] for i in grown.args), dtype=grown.dtype, number=grown.number,
                    kind=TOTAL if grown.total else self.kind(grown.axes, split) or SCALAR,
                    index=slots.index(grown.index) if slots else -1,
                )
            )  # fmt: skip
        (rows, cols, inner), sample = self._extent(split)
        return Fused(
            region=Region(
                values=tuple(values), outputs=tuple(number[v] for v, _ in self.outputs),
                strided=split[1] < len(self.sizes),
            ),
            inputs=tuple(self.inputs[i] for i in inputs), scalars=tuple(self.scalars[i] for i in scalars),
            outputs=tuple(t for _, t in self.outputs), rows=rows, cols=cols, inner=inner,
            band=self._band(split), sample=sample,
        )  # fmt: skip

    def _chosen(self) -> Split:
        """Of the splits left, the first whose cycles are fewest: (0, n), one long run, comes first when it can."""
        return min(
            self.splits,
            key=lambda s: sum(_COSTS.get(self.kind(v.axes, s) or "", 0) for v in self.values if not v.total),
        )

    def _band(self, split: Split) -> str:
        """How many columns share a BAND value."""
        for value in self.values:
            if not value.total and self.kind(value.axes, split) == BAND:
                return product(self.sizes[max(value.axes) + 1 : split[1]])
        return "1"

    def _extent(self, split: Split) -> tuple[tuple[str, str, str], tuple[int, int, int]]:
        a, b = split
        outer, cols, inner = (slice(0, a), slice(a, b), slice(b, None))
        rows = self.sizes[outer] + self.sizes[inner]
        sample_rows, sample_cols, sample_inner = 1, 1, 1
        for size in self.sample[outer] + self.sample[inner]:
            sample_rows *= size
        for size in self.sample[cols]:
            sample_cols *= size
        for size in self.sample[inner]:
            sample_inner *= size
        texts = (product(rows), product(self.sizes[cols]), product(self.sizes[inner]))
        return texts, (sample_rows, sample_cols, sample_inner)
