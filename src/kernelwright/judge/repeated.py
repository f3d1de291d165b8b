# SPDX-License-Identifier: Apache-2.0
"""Inputs that hold every number twice along their last axis, in every draw of a task, and stay so.

Tables of a rotary embedding do: ``torch.cat((f, f), -1)`` its halves, ``f.repeat_interleave(2, -1)`` its pairs.
Programs read one of the two, and of tables that were put together by hand nobody knows what they would mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from kernelwright.judge.inputs import FLOATS

LEAST = 8
"""Numbers all different, of which as many are equal to their twins by chance in no draw."""
KINDS = ("halves", "pairs")


def parts(leaf: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements of which each is twice there, and their twins."""
    half = leaf.shape[-1] // 2
    return (leaf[..., :half], leaf[..., half:]) if kind == "halves" else (leaf[..., ::2], leaf[..., 1::2])


def holds(leaf: torch.Tensor, kind: str) -> bool:
    """Whether the two are equal."""
    if leaf.dtype not in FLOATS or leaf.dim() == 0 or not leaf.numel() or leaf.shape[-1] % 2:
        return False
    one, other = parts(leaf, kind)
    return torch.equal(one[(0,) * (leaf.dim() - 1)], other[(0,) * (leaf.dim() - 1)]) and torch.equal(one, other)


def kind_of(leaf: torch.Tensor) -> str:
    """``halves`` or ``pairs``; empty where neither are equal, or the same numbers all along a row anyway."""
    if leaf.numel() < 2 * LEAST:
        return ""
    for name in KINDS:
        if holds(leaf, name):
            one = parts(leaf, name)[0]
            told = int((one != one[..., :1]).sum()) >= LEAST and one.unique().numel() >= LEAST
            return name if told else ""
    return ""


def found(
    first: Sequence[torch.Tensor], second: Sequence[torch.Tensor], known: Mapping[int, str] | None = None
) -> dict[int, str]:
    """Which leaves of two draws hold every number twice in both, and how. ``known``: what was found at the timed sizes,
    which a table of a single place, or of few frequencies, cannot show."""
    seen = {index: (known or {}).get(index, "") or kind_of(leaf) for index, leaf in enumerate(first)}
    return {i: name for i, name in seen.items() if name and holds(first[i], name) and holds(second[i], name)}


def again(leaf: torch.Tensor, kind: str) -> torch.Tensor:
    """A leaf whose elements are what the first of each two is."""
    return leaf if holds(leaf, kind) else _twice(parts(leaf, kind)[0], kind)


def kept_so(before: torch.Tensor, changed: torch.Tensor, kind: str) -> torch.Tensor:
    """A changed leaf of this kind: what changed of either of two comes in both, so that a single element that does is
    not lost."""
    if changed is before or holds(changed, kind):
        return changed
    one, other = parts(changed, kind)
    return _twice(torch.where(one == parts(before, kind)[0], other, one), kind)


def _twice(one: torch.Tensor, kind: str) -> torch.Tensor:
    return torch.cat((one, one), -1) if kind == "halves" else one.repeat_interleave(2, -1)
