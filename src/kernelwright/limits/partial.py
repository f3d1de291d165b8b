# SPDX-License-Identifier: Apache-2.0
"""How many elements of its operands an operator cannot do without, where that may be fewer than there are.

What is not known counts as nothing: these numbers may void a time as impossible, so they are never too high.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kernelwright.limits import counting
from kernelwright.limits.demand import EVEN, LARGEST_MASK, PLACED, WHOLE, Read, View
from kernelwright.limits.names import GATHERS, MASKED, OVERWRITING, PARTIAL, PLACING, SOURCES, UNEVEN, WINDOWS


@dataclass(frozen=True, slots=True)
class Leaf:
    """One external storage. ``index``: its values where it holds integers that may name elements of others."""

    position: int
    tensor: torch.Tensor
    index: np.ndarray | None = None


@dataclass(slots=True)
class Reader:
    """What is known of the inputs, and the reasons why some of their bytes were left out."""

    leaves: dict[int, Leaf] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    """Storages that were written after they were made."""
    makers: dict[int, str] = field(default_factory=dict)
    """The operator that made each storage."""
    conditional: set[str] = field(default_factory=set)

    def reads(
        self, func: Any, name: str, operands: list[torch.Tensor], results: list[torch.Tensor], args: Any, kwargs: Any
    ) -> tuple[Read, ...]:
        """What an operator reads of each of its operands."""
        left_out = partly(func, name, args, kwargs)
        found = []
        for position, tensor in enumerate(operands):
            seen, how = float(distinct(tensor)), WHOLE if name in UNEVEN else PLACED if name in PLACING else EVEN
            if any(tensor is value for value in left_out):
                self.conditional.add(f"{name} may read few of its operand's elements")
                seen, how = 0.0, WHOLE
            elif name in GATHERS and position == 0 and results:
                seen, how = min(seen, self._named(name, operands, args)), WHOLE
            elif name in ("tril", "triu"):
                seen *= counting.triangle(
                    tensor, name, int(args[1]) if len(args) > 1 else int(kwargs.get("diagonal", 0))
                )
            elif position in MASKED.get(name, ()):
                seen = min(seen, self._behind(name, position, operands))
            elif name in OVERWRITING and position == 0:
                seen = max(0.0, seen - self.replaced(name, operands, args))
            elif name in SOURCES and tensor is operands[-1] and position:
                self.conditional.add("of elements written to the same place one may be enough")
                seen = 0.0
            elif name in WINDOWS and results:
                share = counting.window_coverage(name, position, operands, results, args)
                seen, how = seen * share, EVEN if share == 1.0 else WHOLE
            found.append(Read(key_of(tensor), view_of(tensor), seen, tensor.itemsize, how))
        return tuple(found)

    def replaced(self, name: str, operands: list[torch.Tensor], args: Any) -> float:
        """At most how many elements of its first operand an operator replaces, whether in place or in a copy."""
        target, kind = operands[0], name.rstrip("_")
        if kind in ("slice_scatter", "select_scatter", "diagonal_scatter", "index_copy"):
            return float(operands[-1].numel())
        if kind in ("tril", "triu"):
            return float(target.numel())
        if kind == "scatter":
            return float(operands[1].numel())
        if kind in ("index_put", "_index_put_impl"):
            self.conditional.add("elements that are replaced where an index or a mask says so need not be read")
            indices = [index for index in args[1] if index is not None]
            if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
                return float(target.numel())
            places = math.prod(torch.broadcast_shapes(*(index.shape for index in indices)))
            inner = [
                n for n, index in zip(target.shape, [*args[1], *[None] * target.ndim], strict=False) if index is None
            ]
            return float(places * math.prod(inner))
        if kind in ("masked_fill", "masked_scatter", "index_fill"):
            self.conditional.add("elements behind a mask (where) may never be read")
            return float(target.numel())
        return 0.0

    def _values(self, tensor: torch.Tensor) -> np.ndarray | None:
        """The values of an operand, where it is an input as it was given."""
        key = key_of(tensor)
        leaf = self.leaves.get(key)
        if leaf is None or leaf.index is None or key in self.changed or tensor.dtype != leaf.tensor.dtype:
            return None
        given = leaf.tensor
        plain = tensor.is_contiguous() and given.is_contiguous() and tensor.numel() == given.numel()
        same = tuple(tensor.shape) == tuple(given.shape) and tensor.stride() == given.stride()
        if not (plain or same) or tensor.storage_offset() != given.storage_offset():
            return None
        return leaf.index.reshape(tuple(tensor.shape))

    def _behind(self, name: str, position: int, operands: list[torch.Tensor]) -> float:
        """Elements that a mask lets through: counted where its values are an input's, else none."""
        tensor, mask = operands[position], operands[0 if name == "where" else 1]
        known = self._values(mask)
        shape = tuple(tensor.shape)
        broadcast = tensor.numel() <= LARGEST_MASK and torch.broadcast_shapes(shape, mask.shape) == tensor.shape
        if known is not None and known.dtype == bool and broadcast:
            wanted = np.broadcast_to(known, shape).reshape(-1)
            if (name, position) != ("where", 1) and name != "masked_select":
                wanted = ~wanted
            return counting.fetched(wanted, tensor, stored=key_of(tensor) in self.leaves)
        self.conditional.add("elements behind a mask (where) may never be read")
        return 0.0

    def _named(self, name: str, operands: list[torch.Tensor], args: Any) -> float:
        """Elements of the first operand that the index names; none where its values are not an input's."""
        table, index = operands[0], operands[1] if len(operands) > 1 else operands[0]
        values = self._values(index)
        if values is None or len(operands) > 2 + (1 if name.startswith("nll_loss") else 0):
            self.conditional.add("elements that a computed index names may be few")
            return 0.0
        shape, stored = tuple(table.shape), key_of(table) in self.leaves
        if name.startswith("nll_loss"):
            counted = float(np.count_nonzero(values != (args[4] if len(args) > 4 else -100)))
            classes = shape[1] if len(shape) > 1 else shape[0]
            # Of log-probabilities one of a row is taken, and each of them depends on the whole row.
            return counted * (classes if self.makers.get(key_of(table)) == "_log_softmax" else 1)
        if name == "take":
            return counting.fetched(counting.named(values, table.numel()), table, stored=stored)
        if name == "gather":
            places: list[np.ndarray] = list(np.indices(values.shape, sparse=True))
            places[int(args[1])] = values
            steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
            flat = np.asarray(sum(at * step for at, step in zip(places, steps, strict=True)))
            return counting.fetched(counting.named(flat, table.numel()), table, stored=stored)
        across = 0 if name == "embedding" else int(args[1]) if name == "index_select" else _indexed(args[1])
        rows = int(counting.named(values, shape[across]).sum()) if values.dtype != bool else int(values.sum())
        covered = math.prod(shape[across : across + (values.ndim if values.dtype == bool else 1)])
        return float(rows * table.numel() / max(1, covered))


def partly(func: Any, name: str, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Operands that an operator reads at places which depend on values, or of which it stops reading early."""
    places = PARTIAL.get(name, ())
    if name.startswith(("upsample_", "_upsample_", "grid_sampler", "_embedding_bag")):
        places = (0,)
    if name == "constant_pad_nd" and min(args[1], default=0) < 0:
        places = (0,)
    found = [args[place] for place in places if place < len(args) and isinstance(args[place], torch.Tensor)]
    if "scaled_dot_product" in name and "attention" in name:
        given = dict(zip((about.name for about in func._schema.arguments), args, strict=False)) | kwargs
        masked = given.get("attn_mask") is not None or given.get("attn_bias") is not None
        short = given.get("is_causal") and given["query"].shape[-2] < given["key"].shape[-2]
        if masked or short:
            found += [given["key"], given["value"]]
    return found


def _indexed(indices: Sequence[Any]) -> int:
    """The dimension that the one index of ``x[:, i]`` stands for."""
    return next(place for place, index in enumerate(indices) if index is not None)


def key_of(tensor: torch.Tensor) -> int:
    """The storage of a tensor; of a sparse one, which has none, itself."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else -id(tensor)


def distinct(tensor: torch.Tensor) -> int:
    """Elements with distinct addresses: expanded (stride 0) dimensions count once. Of sparse ones none is counted."""
    if tensor.layout is not torch.strided:
        return 0
    return math.prod(size for size, step in zip(tensor.shape, tensor.stride(), strict=True) if step or size <= 1)


def view_of(tensor: torch.Tensor) -> View:
    """The part of its storage that a tensor shows; expanded dimensions have one element, sparse ones show nothing."""
    if tensor.layout is not torch.strided:
        return 0, (), ()
    kept = [(n, step) if step else (1, 1) for n, step in zip(tensor.shape, tensor.stride(), strict=True)]
    return int(tensor.storage_offset()), tuple(n for n, _ in kept), tuple(step for _, step in kept)
