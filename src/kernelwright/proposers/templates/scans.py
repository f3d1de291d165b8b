# SPDX-License-Identifier: Apache-2.0
"""Running sums and products, and compounds: several nodes of a graph that mean one thing together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.proposers.templates.rules import Lowering, Rule, arg, region
from kernelwright.proposers.templates.space import Handle, NotFusible

SCANNED = {"cumsum": "scan_sum", "cumprod": "scan_prod"}


@dataclass(frozen=True)
class Compound:
    """What the last of several nodes means when none of the others is read elsewhere."""

    source: torch.fx.Node
    """The tensor that is read."""
    inner: frozenset[torch.fx.Node]
    """Nodes that need not be computed."""
    rule: Rule
    others: tuple[torch.fx.Node, ...] = ()
    """Further tensors that are read."""


def compounds(graph: torch.fx.Graph) -> dict[torch.fx.Node, Compound]:
    """Every compound of a graph by its last node."""
    found: dict[torch.fx.Node, Compound] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        one = _flipped(node) if base(node) == "flip" else _shifted(node) if base(node) == "cat" else None
        if one is not None and all(set(n.users) <= one.inner | {node} for n in one.inner):
            found[node] = one
    return found


def base(node: Any) -> str:
    """The operation's name without ``aten.`` and ``.default``; empty for anything that is not one."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_function":
        return ""
    return str(node.target).removeprefix("aten.").removesuffix(".default")


def _scan(op: str, source: torch.fx.Node, dim: int) -> Rule:
    def emit(low: Lowering, node: torch.fx.Node) -> Handle:
        (x,) = low.operands(source)
        return region(low).scan(op, x, dim)

    return emit


@dataclass(frozen=True)
class _Running:
    kind: str
    source: torch.fx.Node
    dim: int


def _running(node: Any) -> _Running | None:
    """A cumsum or cumprod of a floating type in that type."""
    kind = SCANNED.get(base(node))
    if kind is None:
        return None
    source, dim = node.args[0], node.args[1]
    dtype = source.meta["val"].dtype
    floats = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    if dtype not in floats or node.kwargs.get("dtype") not in (None, dtype) or source.meta["val"].dim() == 0:
        return None
    return _Running(kind, source, dim % source.meta["val"].dim())


def _flipped(node: torch.fx.Node) -> Compound | None:
    """flip(scan(flip(x))) along one dimension: a scan from the other end."""
    middle = node.args[0]
    running = _running(middle)
    if running is None or base(running.source) != "flip":
        return None
    rank = node.meta["val"].dim()
    turns = [[d % rank for d in n.args[1]] for n in (node, running.source)]  # type: ignore[union-attr]
    if turns != [[running.dim], [running.dim]]:
        return None
    source = running.source.args[0]
    assert isinstance(source, torch.fx.Node) and isinstance(middle, torch.fx.Node)
    rule = _scan(f"{running.kind}_back", source, running.dim)
    return Compound(source, frozenset({middle, running.source}), rule)


def _shifted(node: torch.fx.Node) -> Compound | None:
    """cat([zeros, cumsum(all but the last)]): the sum of the elements before each one."""
    parts, dim = node.args[0], arg(node, 1, "dim", 0)
    if not isinstance(parts, (list, tuple)) or len(parts) != 2:
        return None
    zeros, middle = parts
    running = _running(middle)
    rank = node.meta["val"].dim()
    if running is None or running.kind != "scan_sum" or running.dim != dim % rank:
        return None
    part = running.source
    if base(part) not in ("narrow", "slice.Tensor") or base(zeros) not in ("zeros_like", "zeros"):
        return None
    source = part.args[0]
    if not isinstance(source, torch.fx.Node) or not isinstance(zeros, torch.fx.Node):
        return None
    start = arg(part, 2, "start", 0)
    whole = source.meta["val"].shape == node.meta["val"].shape
    one = zeros.meta["val"].shape[running.dim] == 1 and zeros.meta["val"].dtype == node.meta["val"].dtype
    if arg(part, 1, "dim", 0) % rank != running.dim or start not in (0, None) or not whole or not one:
        return None
    assert isinstance(middle, torch.fx.Node)
    inner = {middle, part, zeros, *_made_of(zeros, source)}
    return Compound(source, frozenset(inner), _scan("scan_sum_before", source, running.dim))


def _made_of(node: torch.fx.Node, stop: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Views between ``stop`` and what only lends its shape."""
    for source in node.all_input_nodes:
        if source is not stop and base(source) in ("select.int", "unsqueeze", "narrow", "slice.Tensor"):
            yield source
            yield from _made_of(source, stop)


def _alone(low: Lowering, node: torch.fx.Node) -> Handle:
    running = _running(node)
    if running is None:
        raise NotFusible("a scan of another type")
    return _scan(running.kind, running.source, running.dim)(low, node)


RULES: dict[str, Rule] = dict.fromkeys(SCANNED, _alone)
