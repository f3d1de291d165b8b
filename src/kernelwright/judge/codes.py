# SPDX-License-Identifier: Apache-2.0
"""Whole numbers and flags that a module holds: which of them are others when its weights are new.

What a constructor draws is drawn anew. What it fills with one number is waiting for a checkpoint, as codes and zero
points of quantised layers are: a program that left out zero points, or a mask in which all elements count, or all of a
product whose codes are zero, passed. A single number that begins with zero counts something, calls or places, and is
further on in a checkpoint. What is none of these (tables, places in order) is structure. The reference is asked, once,
whether it takes others.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping

import torch

from kernelwright.judge import inputs, renewed, weights, whole

CODED = (torch.int8, torch.uint8, torch.int32)
"""Types of codes, and of words that hold several."""
WIDE, NARROW, NONE = "any codes", "other numbers", ""
"""Ways of filling constants, in the order they are tried: codes of all sizes in what has rows, or ones for zeros."""

FURTHER = (65_535, 4095, 255, 63, 7, 0)
"""To where counters have come at the most, in the order they are tried; 0: the reference takes none but zero."""
LAST = 1 / 2
"""Of the draws those in which a counter is one or two short of a power of two, where places in a ring begin anew."""
COUNTED = "num_batches_tracked"
"""The end of the names of torch's own counters, which are no places: others stay zero on a device, where a place that
is not there would cost the context."""

State = weights.State
Answers = Callable[[State | None], object]
"""Where the answers of a reference with these weights are finite (None: with its first ones)."""


class Numbers:
    """What a reference was seen to take."""

    def __init__(self) -> None:
        self._drawn: bool | None = None
        self._way: str | None = None
        self._most: int | None = None

    def settled(
        self, first: State, redrawn: Mapping[str, torch.Tensor], seed: int, answers: Answers
    ) -> dict[str, torch.Tensor]:
        """``redrawn``, with the first numbers where the reference takes no others, and others for constants."""
        made, known, usual = dict(redrawn), dict(first), functools.cache(lambda: answers(None))
        numbered = _numbered(first, made)
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
        return made | self._counters(first, made, seed, answers, usual)

    def _counters(
        self,
        first: State,
        made: Mapping[str, torch.Tensor],
        seed: int,
        answers: Answers,
        usual: Callable[[], object],
    ) -> dict[str, torch.Tensor]:
        """Numbers for counters, each its own."""
        names = [name for name, value in first if counter(name, value) and torch.equal(value, made.get(name, value))]
        if names and self._most is None:
            tried = ([(n, v + most if n in names else made.get(n, v)) for n, v in first] for most in FURTHER[:-1])
            fits = (answers(state) == usual() for state in tried)
            self._most = next((most for most, fit in zip(FURTHER, fits, strict=False) if fit), FURTHER[-1])
        if not names or not self._most:
            return {}
        dice, known = random.Random(seed), dict(first)
        return {name: known[name] + _counted(self._most, dice) for name in names}


def _counted(most: int, dice: random.Random) -> int:
    """Up to ``most``, which is one less than a power of two."""
    if dice.random() >= LAST:
        return dice.randint(0, most)
    return 2 ** dice.randint(2, most.bit_length()) - dice.randint(1, 2)


def counter(name: str, values: torch.Tensor) -> bool:
    """Whether this is a single whole number that begins with zero, and has room."""
    if values.dtype not in (torch.int16, torch.int32, torch.int64) or values.numel() != 1 or bool(values.any()):
        return False
    return values.device.type == "cpu" or name.endswith(COUNTED)


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


def _numbered(first: State, redrawn: Mapping[str, torch.Tensor]) -> State | None:
    """``first`` with the whole numbers and flags that another construction has drawn; None where it has the same."""
    made = [
        (name, value if renewed.divisible(value) or new.shape != value.shape else new)
        for (name, value), new in ((pair, redrawn.get(*pair)) for pair in first)
    ]
    changed = any(not torch.equal(a, b) for (_, a), (_, b) in zip(first, made, strict=True) if a is not b)
    return made if changed else None
