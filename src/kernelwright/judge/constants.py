# SPDX-License-Identifier: Apache-2.0
"""Inputs that a task never changes: they come as others of their kind in every draw where the reference takes them.

Else every timed call had the same, and the last answer, kept as long as nothing changes, was the fastest program.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import as_drawn, inputs, whole
from kernelwright.judge.finite import pattern
from kernelwright.judge.inputs import Variant
from kernelwright.judge.renewed import permuted, rerandomise

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

WAYS = {"": rerandomise, "in another order": permuted}
"""How constant floats become others: the first that leaves the reference in its domain."""
SAME = "no input ever changes: what a program keeps of its last call counts as speed"


def settle(instance: Instance, seed: int) -> None:
    """Find out how constant inputs may be others, in draws from now on, and what is to be said of those that may not.

    Whole numbers stay as they are, for they mean something, but where nothing else changes from one call to another."""
    floats = {i for i in instance.constant if getattr(torch, instance.specs[i].dtype) in inputs.FLOATS}
    floats -= set(instance.contract.as_drawn)
    accepts = functools.partial(_accepts, instance, seed)
    if floats:
        way = next((way for way in WAYS if accepts(way) and _changes(instance, seed)), None)
        instance.renewing = way or ""
        instance.kept = set() if way is not None else floats
        first = instance._raw(seed)[0]
        endless = {index for index in floats if _endless(first[index])}
        instance.bounded = bool(endless)
        instance.bounded = instance.bounded and _accepts(instance, seed | 1, instance.renewing)
        instance.kept -= endless if instance.bounded else set()
    instance.kept |= set(instance.contract.as_drawn)
    instance.notes += as_drawn.said(instance)
    if floats & instance.kept:
        names = ", ".join(instance.names[i] or str(i) for i in sorted(floats))
        instance.notes.append(f"constant inputs kept as given (changing them leaves the domain): {names}")
    if len(instance.constant) == len(instance.specs) > 0 and not floats - instance.kept:
        instance.turned = True
        instance.turned = _changes(instance, seed) and accepts(instance.renewing)
        instance.notes += [] if instance.turned else [SAME]


def _endless(leaf: torch.Tensor) -> bool:
    """Whether it is a bound that there is not."""
    return leaf.dtype in inputs.FLOATS and leaf.numel() > 0 and bool(leaf.isinf().all())


def _accepts(instance: Instance, seed: int, way: str) -> bool:
    """Whether answers are finite where they were."""
    instance.renewing = way
    tried = (instance.draw(Variant(name="trial", required=True), seed), instance._raw(seed)[0])
    return len({pattern(instance.accepted(leaves)) for leaves in tried}) == 1


def _changes(instance: Instance, seed: int) -> bool:
    """Whether any constant input is another one now."""
    before = instance._raw(seed)[0]
    return any(not torch.equal(*pair) for pair in zip(before, renewed(instance, list(before), seed), strict=True))


def renewed(instance: Instance, leaves: list[torch.Tensor], base: int) -> list[torch.Tensor]:
    """A draw with other values for what is the same in all of them; bounds that are infinite are so in half of them, or
    programs that never looked at a bound passed."""
    able = instance.constant - set(instance.contract.as_drawn)
    for index in able - (set() if instance.bounded else instance.kept):
        rng = inputs.generator((base * 7919 + index) % 2**63, instance.device)
        if instance.bounded and base % 2 and _endless(leaves[index]):
            size = 0.25 + torch.rand(leaves[index].shape, generator=rng, device=instance.device)
            leaves[index] = (size * leaves[index].sign()).to(leaves[index].dtype)
        elif index in instance.kept:
            continue
        elif leaves[index].dtype in inputs.FLOATS:
            leaves[index] = WAYS[instance.renewing](leaves[index], rng)
        elif instance.turned:
            leaves[index] = whole.moved(leaves[index], rng)
    return leaves
