# SPDX-License-Identifier: Apache-2.0
"""The rounding of sums whose places whole numbers name: scattered and added, or rows of a table added up, for
``rounding``.

Each place is one running sum, in whatever order its addends arrive, written to where it lies or not. Equal addends of
one place (a graph whose edges all lead from one node, a bag of one word) all round the same way, as those of a row do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

from kernelwright.judge import counted
from kernelwright.judge.swallowed import LONGEST

aten = torch.ops.aten
IN_A_ROW = 16384
"""Addends of one place that may be one running sum (``rounding.LONGEST_DOT``)."""
SUMS, MEANS = 0, 1
"""Modes of an embedding bag; the third takes the largest."""


class Mode(Protocol):
    """What of ``rounding.Rounded`` is needed here."""

    unit: float
    few: bool

    def roughen(self, out: torch.Tensor) -> torch.Tensor:
        """One rounding of every element."""

    def but_few(self, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        """``moved``, but for what has few bits."""

    def summed(
        self, out: torch.Tensor, squares: torch.Tensor, terms: Any, lanes: float, longest: float, alike: Any = 0.0
    ) -> torch.Tensor:
        """A sum with the error of running sums."""


def added(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """scatter_add and index_add."""
    base, dim, index, source = args[:4]
    source = source * kwargs.get("alpha", 1)
    if base.dim() == 0 or source.dim() == 0 or index.numel() == 0:
        return func(*args, **kwargs)

    def into(start: torch.Tensor, addends: torch.Tensor) -> torch.Tensor:
        return func(start, dim, index, addends)

    if func is aten.index_add.default:
        one = base.index_copy(dim, index, source).index_select(dim, index)
    else:
        source = source[tuple(slice(size) for size in index.shape)]
        one = base.scatter(dim, index, source).gather(dim, index)
    out = into(base, source)
    squares = into(base.square(), source.square())
    terms = into((base != 0).to(base.dtype), (source != 0).to(base.dtype))
    equal = ((source - one).abs() <= source.abs() * (LONGEST / 4 * mode.unit)) & (source != 0)
    alike = into(torch.zeros_like(base), equal.to(base.dtype))
    exact = counted.exact(func, (base, dim, index, source), {})
    if exact is not None:  # ones that are counted do not round: float16 counted 2901 of them as 2900
        alike = torch.where(exact, 0.0, alike)
    noisy = mode.summed(out.clone(), squares, terms, 1, IN_A_ROW, torch.where(alike > 1, alike, 0.0))
    return torch.where(exact, out, noisy) if mode.few and exact is not None else noisy


def put(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """index_put that accumulates, at places that whole numbers name in the first dimensions."""
    base, indices, source, *more = args
    adds = bool(more[0]) if more else bool(kwargs.get("accumulate", False))
    named = [index for index in indices if isinstance(index, torch.Tensor) and index.dtype is torch.int64]
    if not adds or not named or len(named) < len(indices) or base.numel() == 0:
        return func(*args, **kwargs)
    sizes, rest = base.shape[: len(named)], base.shape[len(named) :]
    spread = torch.broadcast_tensors(*named)
    at = torch.zeros_like(spread[0])
    for index, size in zip(spread, sizes, strict=True):
        at = at * size + index % size
    rows = source.expand(*at.shape, *rest).reshape(at.numel(), *rest)
    flat = base.reshape(math.prod(sizes), *rest)
    return added(mode, aten.index_add.default, (flat, 0, at.flatten(), rows), {}).reshape(base.shape)


def reduced(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """scatter_reduce: its sums and means; a largest, a least and a product are rounded as they are."""
    base, dim, index, source, how = args[:5]
    if how not in ("sum", "mean") or base.dim() == 0 or index.numel() == 0:
        out = func(*args, **kwargs)
        return mode.roughen(out) if how == "prod" else out
    ones = torch.ones_like(base)
    if not kwargs.get("include_self", True):
        base, ones = base.scatter(dim, index, 0.0), ones.scatter(dim, index, 0.0)
    out = added(mode, aten.scatter_add.default, (base, dim, index, source), {})
    if how == "sum":
        return out
    return mode.roughen(out / ones.scatter_add(dim, index, torch.ones_like(source)).clamp_min(1.0))


def reduced_rows(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """index_reduce, as scatter_reduce of rows: it has a mean besides the rest."""
    base, dim, index, source, how = args[:5]
    if how != "mean" or base.dim() == 0 or index.numel() == 0:
        out = func(*args, **kwargs)
        return mode.roughen(out) if how == "prod" else out
    shape = [-1 if axis == dim % base.dim() else 1 for axis in range(base.dim())]
    at = index.reshape(shape).expand(source.shape)
    return reduced(mode, aten.scatter_reduce.two, (base, dim, at, source, how), kwargs)


def bagged(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """embedding_bag: sums and means of rows of a table."""
    found = func(*args, **kwargs)
    table, ids, starts, how = args[0], args[1], args[2], int(args[4]) if len(args) > 4 else SUMS
    weights, last = args[6] if len(args) > 6 else None, bool(args[7]) if len(args) > 7 else False
    padding = args[8] if len(args) > 8 else -1
    if how not in (SUMS, MEANS) or ids.numel() == 0 or found[0].numel() == 0:
        return found
    starts = starts[:-1] if last else starts
    bags = torch.bucketize(torch.arange(ids.numel(), device=ids.device), starts, right=True) - 1
    rows = table.index_select(0, ids)
    if weights is not None:
        rows = rows * weights[:, None]
        rows = mode.but_few(rows, mode.roughen(rows.clone()))
    kept = (ids != padding).to(rows.dtype)
    out = torch.zeros_like(found[0])
    summed = added(mode, aten.index_add.default, (out, 0, bags, rows * kept[:, None]), {})
    if how == MEANS:
        summed = mode.roughen(summed / out[:, 0].index_add(0, bags, kept).clamp_min(1.0)[:, None])
    return (summed, *found[1:])


def taken(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradient of a table whose rows were taken: each is a sum of those of its places."""
    grad, ids, count, padding, scaled = args[:5]
    if scaled or ids.numel() == 0 or grad.numel() == 0:
        return func(*args, **kwargs)
    at = ids.reshape(-1)
    rows = grad.reshape(at.numel(), -1).masked_fill((at == padding)[:, None], 0.0)
    out = torch.zeros((int(count), rows.shape[1]), dtype=grad.dtype, device=grad.device)
    return added(mode, aten.index_add.default, (out, 0, at, rows), {})


def taken_in_bags(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradient of a table of which rows were added up in bags."""
    grad, ids, starts, _, sizes, _, count, scaled, how, sparse, weights, *more = args
    padding = more[0] if more else kwargs.get("padding_idx", -1)
    if scaled or sparse or how not in (SUMS, MEANS) or ids.numel() == 0 or grad.numel() == 0:
        return func(*args, **kwargs)
    bags = torch.bucketize(torch.arange(ids.numel(), device=ids.device), starts, right=True) - 1
    rows = grad.index_select(0, bags)
    if how == MEANS:
        rows = mode.roughen(rows / sizes.index_select(0, bags).clamp_min(1)[:, None])
    if weights is not None:
        rows = mode.roughen(rows * weights[:, None])
    return taken(mode, aten.embedding_dense_backward.default, (rows, ids, count, padding, False), {})


_Rule = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]


def _written(functional: Any, rule: _Rule) -> _Rule:
    """The rule of an operator that writes to its first argument."""

    def apply(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0].copy_(rule(mode, functional, args, kwargs))

    return apply


RULES: dict[Any, _Rule] = {
    aten.scatter_add.default: added,
    aten.index_add.default: added,
    aten.index_put.default: put,
    aten.scatter_reduce.two: reduced,
    aten.index_reduce.default: reduced_rows,
    aten._embedding_bag.default: bagged,
    aten._embedding_bag_forward_only.default: bagged,
    aten.embedding_dense_backward.default: taken,
    aten._embedding_bag_backward.default: taken_in_bags,
    aten.scatter_add_.default: _written(aten.scatter_add.default, added),
    aten.index_add_.default: _written(aten.index_add.default, added),
    aten.index_put_.default: _written(aten.index_put.default, put),
    aten.scatter_reduce_.two: _written(aten.scatter_reduce.two, reduced),
    aten.index_reduce_.default: _written(aten.index_reduce.default, reduced_rows),
}
