# SPDX-License-Identifier: Apache-2.0
"""Draws that are equal but for what lies at an end of an input: who keeps its last answer by all but the last element,
row or column, or by all but the first, finds nothing new in them. One element changed by lot shows that to nobody."""

from __future__ import annotations

import random

import torch

LAST, END = "last", "end"
"""The last element alone, or by lot what lies at the end, or the beginning, of some axes."""


def replaced(leaf: torch.Tensor, where: str, seed: int, rng: torch.Generator) -> torch.Tensor:
    """A copy that has other elements of ``leaf`` there; ``seed`` says at which end, of which axes."""
    made = leaf.clone(memory_format=torch.contiguous_format)
    if leaf.numel() < 2:
        return made
    dice = random.Random(seed)
    end, axes = -1, frozenset(range(leaf.dim()))
    if where == END:
        end, axes = dice.choice((0, -1)), frozenset(dice.sample(sorted(axes), dice.randint(1, len(axes))))
    there = tuple(slice(end, end + 1 or None) if axis in axes else slice(None) for axis in range(leaf.dim()))
    places = torch.arange(leaf.numel(), device=leaf.device).view(leaf.shape)[there]
    away = torch.randint(1, leaf.numel(), places.shape, generator=rng, device=leaf.device)
    made[there] = leaf.reshape(-1)[(places + away) % leaf.numel()]
    return made
