# SPDX-License-Identifier: Apache-2.0
"""How finely each output of a reference is computed, where one of them is float64.

Float64's unit roundoff was that of all outputs then: beside a count in float64 the floor of moments in float32 was 0,
and what eager's own luck had left of an error was all that an honest program could err by. Of a skewness of 32 columns
one of which has an outlier a cube of the root instead of cubes of quotients was refused in 3 of 3 judgements.

An output in float32 that is float64's, rounded once, in every element, was computed in float64, and is still held to
that: it is compared with the oracle of each call. Of fewer than CHANCE elements that may be luck.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from kernelwright.judge.buffers import TensorSpec

DOUBLE, SINGLE = 2.0**-53, 2.0**-24
CHANCE = 16
"""One float32 in three or so is float64's, rounded, after a few operators."""
_WIDE = ("float64", "complex128")
_EACH = TypeVar("_EACH")


def unit_of(specs: Sequence[TensorSpec]) -> float:
    """The unit roundoff that outputs are made with: float64's where one is of it, else float32's (halves sum in it)."""
    return DOUBLE if any(spec.dtype in _WIDE for spec in specs) else SINGLE


class Units:
    """The unit roundoff of each output. ``specs`` are those of the outputs alone, which decide for gradients too."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self.usual = unit_of(specs)
        self._coarse: set[int] = set()
        """Narrower outputs that were seen to be computed in what they are, or are too few to tell."""

    @property
    def single(self) -> bool:
        """Whether all outputs are made with float32's."""
        return self.usual == SINGLE

    def look(self, eager: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> None:
        """Compare an answer with the oracle's."""
        for index, (out, true) in enumerate(() if self.single else zip(eager, exact, strict=True)):
            if index in self._coarse or not out.is_floating_point() and not out.is_complex() or _wide(out):
                continue
            if out.numel() < CHANCE or not torch.allclose(out, true.to(out.dtype), rtol=0.0, atol=0.0, equal_nan=True):
                self._coarse.add(index)

    def of(self, output: int) -> float:
        """Of an output, a gradient, or an input that is written to."""
        return SINGLE if output in self._coarse else self.usual

    def each(self, count: int, draw: Callable[[float], Sequence[_EACH]]) -> list[_EACH]:
        """What ``draw`` makes with its own unit at each of so many outputs."""
        made = {unit: draw(unit) for unit in dict.fromkeys(map(self.of, range(count)))}
        return [made[self.of(index)][index] for index in range(count)]


def _wide(out: torch.Tensor) -> bool:
    return str(out.dtype).removeprefix("torch.") in _WIDE
