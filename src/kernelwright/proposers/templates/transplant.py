# SPDX-License-Identifier: Apache-2.0
"""A cheap value of one region computed again inside another, instead of being written and read."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from kernelwright.proposers.templates.ir import READS
from kernelwright.proposers.templates.space import Growing, NotFusible


def _counterparts(source: Growing, target: Growing, pairs: Iterable[tuple[int, int]]) -> dict[int, frozenset[int]]:
    """Axes of one region to those of another, from the dimensions of one tensor in both."""
    found: dict[int, frozenset[int]] = {}
    for one, other in pairs:
        mine, theirs = source.real([one]), target.real([other])
        if len(mine) == 1:
            found[mine[0]] = frozenset(theirs)
        elif [source.sizes[a] for a in mine] == [target.sizes[a] for a in theirs]:
            found |= {a: frozenset({b}) for a, b in zip(mine, theirs, strict=True)}
        else:
            raise NotFusible("axes that are cut in another way")
    return found


def transplant(
    source: Growing,
    value: int,
    pairs: Iterable[tuple[int, int]],
    target: Growing,
    late: Collection[str],
    limit: int = 12,
) -> int:
    """Recompute a pointwise value of one region inside another; ``pairs`` are the axes of its dimensions in both.
    ``late``: tensors that are not there yet when the target runs, which a later region may read."""
    if source.float_type != target.float_type:
        raise NotFusible("computed in another type")
    axes = _counterparts(source, target, pairs)
    cone: set[int] = set()
    stack = [value]
    while stack:
        position = stack.pop()
        if position in cone:
            continue
        cone.add(position)
        grown = source.values[position]
        if grown.total or grown.op.startswith(("row_", "total_", "pick", "scan_", "bag")) or len(cone) > limit:
            raise NotFusible("too much to repeat")
        stack.extend(grown.args)
    placed: dict[int, int] = {}
    for position in sorted(cone):
        grown = source.values[position]
        index = grown.index
        if grown.op in READS | {"scalar"}:
            pool, names = (target.scalars, source.scalars) if grown.op == "scalar" else (target.inputs, source.inputs)
            if grown.op in READS and names[grown.index] in late:
                raise NotFusible("what it reads is ready too late")
            if names[grown.index] not in pool:
                pool.append(names[grown.index])
            index = pool.index(names[grown.index])
        if not grown.axes <= set(axes):
            raise NotFusible("an axis has no counterpart")
        over: frozenset[int] = frozenset().union(*(axes[x] for x in grown.axes))
        moved = replace(grown, args=tuple(placed[i] for i in grown.args), axes=over, index=index)
        placed[position] = target.add(moved)
    return placed[value]
