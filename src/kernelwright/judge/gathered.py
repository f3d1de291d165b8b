# SPDX-License-Identifier: Apache-2.0
"""Changes of value that are asked for together: a few calls each, in one window, of buffers that are bound once.

Binding takes 6 ms on two slow cores and a window 11, beside the 12 in which one small answer is compared: of a proof
of softmax with nine cases they were a third of the checks. And a program that keeps something from one call to the
next meets other values there at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kernelwright.judge.slices import ITSELF
from kernelwright.judge.taken import IN_A_WINDOW

if TYPE_CHECKING:
    import torch

    from kernelwright.judge.bench import Point
    from kernelwright.judge.inputs import Variant

BYTES = 16 << 20
"""Inputs and outputs of one window: pages nobody had cost 2 ms for each of them."""
FEW = 4
"""Draws of a variant that come in one window with others; of more, the first comes alone."""


class Gathered:
    """Calls of one case that wait for others, each with its variant and inputs that the reference takes."""

    def __init__(self, point: Point, dice: random.Random) -> None:
        self._point, self._dice = point, dice
        self._most = min(IN_A_WINDOW, BYTES // max(point.call_bytes, 1))
        self._waiting: list[tuple[Variant, list[torch.Tensor]]] = []
        self._wanted = self._lot()

    def takes(self, variant: Variant) -> bool:
        """Whether it is a few calls of other values and nothing else: no other layout, weights, arguments or gradients.
        The task's own values come alone, and so does what a program may fail on."""
        return (
            self._most > 1
            and not self._point.dear
            and variant is not self._point.as_given
            and variant.draws <= min(FEW, self._most)
            and variant.required
            and variant.layout == "contiguous"
            and variant.name != ITSELF
            and not (variant.fresh_weights or variant.special or variant.apart or variant.roots)
        )

    def add(self, variant: Variant, drawn: Iterable[list[torch.Tensor]]) -> None:
        """Its calls, in this order."""
        self._waiting += [(variant, leaves) for leaves in drawn]

    @property
    def ready(self) -> bool:
        """Whether there are as many as a lot decided."""
        return len(self._waiting) >= self._wanted

    def take(self) -> list[tuple[Variant, list[torch.Tensor]]]:
        """Those that waited. Calls of one variant are never parted: what was kept of the first would be forgotten over
        others before the second is asked, and a memo by the sum of an input passed one proof in eight."""
        taken, self._waiting, self._wanted = self._waiting, [], self._lot()
        return taken

    def _lot(self) -> int:
        return self._dice.randint(max(1, self._most // 2), max(1, self._most))
