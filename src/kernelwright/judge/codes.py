# SPDX-License-Identifier: Apache-2.0
"""Whole numbers and flags that a module holds: which of them are others when its weights are new.

What a constructor draws is drawn anew. What it fills with one number is waiting for a checkpoint, as codes and zero
points of quantised layers are: a program that left out zero points, or a mask in which all elements count, or all of a
product whose codes are zero, passed. What is neither (tables, places in order, a single counter) is structure. The
reference is asked, once, whether it takes others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch

from kernelwright.judge import inputs, weights, whole

CODED = (torch.int8, torch.uint8, torch.int32)
"""Types of codes, and of words that hold several."""
WIDE, NARROW, NONE = "any codes", "other numbers", ""
"""Ways of filling constants, in the order they are tried: codes of all sizes in what has rows, or ones for zeros."""

State = weights.State
Answers = Callable[[State | None], object]
"""Where the answers of a reference with these weights are finite (None: with its first ones)."""


class Numbers:
    """What a reference was seen to take."""

    def __init__(self) -> None:
        self._drawn: bool | None = None
        self._way: str | None = None

    def settled(
        self, first: State, redrawn: Mapping[str, torch.Tensor], seed: int, answers: Answers
    ) -> dict[str, torch.Tensor]:
        """``redrawn``, with the first numbers where the reference takes no others, and others for constants."""
        made, known, usual = dict(redrawn), dict(first), functools.cache(lambda: answers(None))
        numbered = weights.numbered(first, made)
        if numbered is not None:
            self._drawn = answers(numbered) == usual() if self._drawn is None else self._drawn
            if not self._drawn:
                made |= {name: known[name] for name, value in numbered if value is not known[name]}
        names = [name for name, value in first if constant(value) and torch.equal(value, made.get(name, value))]
        if names and self._way is None:
            tried = ({name: filled(known[name], way, seed) for name in names} for way in (WIDE, NARROW))
            fits = (answers([(name, new.get(name, value)) for name, value in first]) == usual() for new in tried)
            self._way = next((way for way, fit in zip((WIDE, NARROW), fits, strict=True) if fit), NONE)
        if names and self._way:
            made |= {name: filled(known[name], self._way, seed * 31 + at) for at, name in enumerate(names)}
        return made


def constant(values: torch.Tensor) -> bool:
    """Whether these are whole numbers or flags, several, and all the same."""
    if values.dtype not in (*whole.INTEGERS, torch.bool) or values.numel() < 2:
        return False
    flat = values.reshape(-1)
    return bool((flat[:64] == flat[0]).all()) and bool((flat == flat[0]).all())  # most are told by the first ones


def filled(values: torch.Tensor, way: str, seed: int) -> torch.Tensor:
    """Others in the place of a constant. On a device zeros stay: a place that is not there would cost the context."""
    rng = inputs.generator(seed % 2**63, values.device)
    wide = way == WIDE and values.dtype in CODED and values.dim() > 1 and values.device.type == "cpu"
    if not wide or bool(values.any()):
        return whole.renumbered(values, rng)
    ends = torch.iinfo(values.dtype)
    return torch.randint(ends.min, ends.max + 1, values.shape, generator=rng, dtype=values.dtype)
