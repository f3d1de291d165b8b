# SPDX-License-Identifier: Apache-2.0
"""Flags that several comparisons decide together, each of which may fall to either side by itself.

A ray meets a triangle where u >= 0, u + v <= 1 and t > 1e-6 all hold. Where it starts from a corner all of them lie
within rounding of their borders, and what one draw in three crosses each is crossed together by one draw in thirty. And
what is zero in an honest program, a product less the same product, is noise in each draw, whose sides hang together: of
points in a line noise had two signs always unlike, and a program to which both were those of zero was refused.

So each comparison is remembered, and once draws have had it on both sides it is on either by lot.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.judge.borders import named
from kernelwright.judge.rounding import Rounded

ORDERED = {"gt", "ge", "lt", "le"}
"""Comparisons that noise has on both sides of a border; of == and != it has one."""


PATTERNS = 64
"""Draws at the most in which all sides are taken together: of six comparisons each pattern once. By lot a fifth of what
five decide was still met by none of 24."""


class Sides:
    """What the comparisons of a reference said in its draws so far, by their order, and which elements both."""

    def __init__(self) -> None:
        self._said: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._open = False

    def patterns(self) -> int:
        """How many draws take all sides together, or PATTERNS by lot where that is more; none where no side is open."""
        return min(PATTERNS, 1 << len(self._said)) if self._open else 0

    def fallen(self, number: int, out: torch.Tensor, rng: torch.Generator, pattern: int | None) -> torch.Tensor:
        """The result ``out`` of comparison ``number`` of one draw, remembered; where it may be either, as ``pattern``
        has it."""
        if pattern is None and number == len(self._said):
            self._said.append((out.clone(), torch.zeros_like(out)))
        if number >= len(self._said) or self._said[number][0].shape != out.shape:
            return out  # shapes, and what is run at all, may hang on values
        first, either = self._said[number]
        either |= out != first
        self._open = self._open or bool(either.any())
        if pattern is None:
            return out
        if 1 << len(self._said) > PATTERNS:
            return torch.where(either, torch.rand(out.shape, generator=rng, device=out.device) < 0.5, out)
        bits = ~(pattern // 2) if pattern % 2 else pattern // 2  # all and none first: dear calls have few draws
        return out | either if bits >> number & 1 else out & ~either


class Sided(Rounded):
    """A draw of honest rounding whose comparisons are noted in ``sides``, or fall as a ``pattern`` of them does."""

    def __init__(self, unit: float, rng: torch.Generator, sides: Sides, pattern: int | None) -> None:
        super().__init__(unit, rng, few=True)
        self._sides, self._pattern, self._number = sides, pattern, 0

    def apply(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One operator, perturbed, or a comparison."""
        out = super().apply(func, args, kwargs)
        if func._schema.is_mutable or named(func) not in ORDERED or not args[0].is_floating_point():
            return out
        self._number += 1
        return self._sides.fallen(self._number - 1, out, self.rng, self._pattern)
