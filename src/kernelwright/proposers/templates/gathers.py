# SPDX-License-Identifier: Apache-2.0
"""What aten's ways of taking rows of a table mean: an embedding, a selection by index along the first dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from kernelwright.proposers.templates.ir import I64
from kernelwright.proposers.templates.rules import Lowering, Rule, region, registrar
from kernelwright.proposers.templates.scans import Compound, base
from kernelwright.proposers.templates.space import Handle, NotFusible

RULES: dict[str, Rule] = {}
rule = registrar(RULES)

MOST_ROWS = 2**24
"""Of a table: its height is handed over as a float32, in which larger integers are not exact."""


def _parts(node: torch.fx.Node) -> tuple[Any, Any]:
    """(table, index) of a node."""
    name = str(node.target)
    if "index_select" in name:
        if node.args[1] not in (0, -node.args[0].meta["val"].dim()):  # type: ignore[union-attr]
            raise NotFusible("rows of another dimension")
        return node.args[0], node.args[2]
    if "index.Tensor" in name:
        indices = node.args[1]
        if not isinstance(indices, (list, tuple)) or len(indices) != 1:
            raise NotFusible("an index in several dimensions")
        return node.args[0], indices[0]
    return node.args[0], node.args[1]


@rule("embedding", "index_select", "index.Tensor")
def _take(low: Lowering, node: torch.fx.Node) -> Handle:
    """The axes of the index come first, then those of the table but its first."""
    table, index = _parts(node)
    if not low.is_tensor(table) or not low.is_tensor(index) or not table.meta["val"].is_floating_point():
        raise NotFusible("no table of floats, or no index")
    r, out = region(low), low.shape_of(node)
    if [size for size in out if size != "1"] != list(r.sizes):
        raise NotFusible("another space")
    axes: Iterator[int] = iter(range(len(r.sizes)))
    logical = tuple(None if size == "1" else next(axes) for size in out)
    rank = len(low.shape(index))
    at = low.placed(index, logical[:rank])
    if r.values[at.value].dtype not in (I64, "i32") or int(table.meta["val"].shape[0]) >= MOST_ROWS:
        raise NotFusible("an index of another type, or a table too high")
    count = r.scalar(f"float({low.shape(table)[0]})")
    return r.take(low.table(table), at, count, logical)


def bag(low: Lowering, node: torch.fx.Node) -> Handle:
    """The sum or mean of an embedding over the last dimension of its index."""
    table, index = _parts(node.args[0])  # type: ignore[arg-type]
    r, out = region(low), low.shape_of(node)
    if not low.is_tensor(table) or not low.is_tensor(index) or out != tuple(r.sizes) or "1" in out:
        raise NotFusible("another space")
    if index.meta["val"].dtype != torch.int64 or int(table.meta["val"].shape[0]) >= MOST_ROWS:
        raise NotFusible("an index of another type, or a table too high")
    length = r.scalar(f"float({low.shape(index)[-1]})")
    count = r.scalar(f"float({low.shape(table)[0]})")
    logical = tuple(range(len(out)))
    summed = r.bag(low.table(table), low.table(index), length, count, logical)
    return r.apply("div", summed, length) if "mean" in str(node.target) else summed


def bags(graph: torch.fx.Graph) -> dict[torch.fx.Node, Compound]:
    """Sums and means of embeddings that nothing else reads, by their last node."""
    found = {}
    for node in graph.nodes:
        if base(node) not in ("sum.dim_IntList", "mean.dim") or base(node.args[0]) != "embedding":
            continue
        rows = node.args[0]
        table, index = rows.args[0], rows.args[1]
        rank = index.meta["val"].dim()
        plain = len(node.args) == 2 and not node.kwargs and set(rows.users) == {node}
        if plain and rank >= 2 and [d % (rank + 1) for d in node.args[1]] == [rank - 1]:
            found[node] = Compound(table, frozenset({rows}), bag, (index,))
    return found


OF_RESULT = (*RULES.values(), bag)
"""Rules whose region is over what they make, not over what they read."""
