# SPDX-License-Identifier: Apache-2.0
"""Windows that look like those that are timed, with other values in them than timed ones have.

What is timed gets the task's own values, and a program can tell that time has come: windows grow long. One that
leaves out then what the task's own values never need (the maximum of a softmax, the branch for negative numbers) is
right in every timed call and no program of the task. So in rounds drawn in secret the candidate has one more turn,
which is not timed, in which some calls are of other variants; they are compared in full when the race is over.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge import variants
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.inputs import Variant
from kernelwright.judge.spot_checks import Leaves, Mismatch, Suspect
from kernelwright.judge.variants import AS_GIVEN, HEAVY

if TYPE_CHECKING:
    from kernelwright.judge.bench import Point


@dataclass(frozen=True, slots=True)
class _Kept:
    variant: Variant
    leaves: Leaves
    state: Any
    outputs: Leaves
    inputs: Leaves


@dataclass(slots=True)
class OddCalls:
    """The odd windows of one race: ``windows`` of them, over which all variants are dealt. On a dear case, and where
    there are too few calls for that, each holds one call with all changes of value."""

    point: Point
    dice: random.Random
    windows: int
    _deck: list[Variant] = field(default_factory=list)
    """Variants whose turn is still to come."""
    _hand: int = 0
    """How many of them a window takes."""
    _chosen: dict[int, tuple[Variant, Leaves]] = field(default_factory=dict)
    _kept: list[_Kept] = field(default_factory=list)

    def rounds(self, least: int, sets: int, first: int = 0) -> frozenset[int]:
        """In which of at least so many rounds of ``sets`` calls, from ``first`` on; none where there is nothing to
        vary."""
        if self.point.instance.contract.random or self.point.instance.work > HEAVY:
            return frozenset()
        self._deck = self._offered(self.windows * sets) if self.windows else []
        self.dice.shuffle(self._deck)
        if not self._deck:
            return frozenset()
        self._hand = -(-len(self._deck) // self.windows)
        chosen = range(first, least)
        return frozenset(self.dice.sample(chosen, min(self.windows, len(chosen))))

    def values(self, sets: int, draw: Callable[[], Leaves]) -> list[Leaves]:
        """Inputs of one window: odd ones in places drawn by lot, the task's own in the others."""
        hand = min(self._hand, sets, len(self._deck))
        some, self._deck = self._deck[:hand], [*self._deck[hand:], *self._deck[:hand]]
        places = self.dice.sample(range(sets), len(some))
        seeds = [self.dice.getrandbits(62) for _ in some]
        draws = [self.point.instance.draw(variant, seed) for variant, seed in zip(some, seeds, strict=True)]
        self._chosen = dict(zip(places, zip(some, draws, strict=True), strict=True))
        return [self._chosen[call][1] if call in self._chosen else draw() for call in range(sets)]

    def keep(self, buffers: Buffers, state: Any) -> None:
        """Copy what the odd calls of the window that has just run left behind."""
        for call, (variant, leaves) in self._chosen.items():
            outputs = [tensor.clone() for tensor in buffers.answers(call)]
            inputs = [tensor.clone() for tensor in buffers.inputs[call]]
            self._kept.append(_Kept(variant, leaves, state, outputs, inputs))
        self._chosen = {}

    def conclude(self, suspect: Suspect) -> None:
        """Compare what was kept. Raises Mismatch."""
        kept, self._kept = self._kept, []
        for call in kept:
            result = self.point.checker.check(call.variant, call.leaves, call.state, call.outputs, call.inputs)
            suspect.checks.append(result)
            if not result.passed:
                raise Mismatch(result)

    def _offered(self, calls: int) -> list[Variant]:
        """Changes of value that the reference accepts: layouts have buffers of their own. On a dear case, or where
        there are fewer ``calls`` than changes (long calls are timed one to a window), all in one draw.
        """
        if self.point.dear:
            return self._strewn()
        offered = (v for v in self.point.offered if v.name != AS_GIVEN and v.layout == "contiguous")
        deck = [v for v in offered if (v.change or v.special or v.scale != 1.0) and self.point.usable(v)]
        return deck if calls >= len(deck) else self._strewn() or deck

    def _strewn(self) -> list[Variant]:
        """Few odd rows: those of ``mixed``, which checks before the race have, any sample shows."""
        some = variants.mixed(self.point.instance.contract, few=True)
        return [v for v in some if self._floats() and self.point.usable(v)][:1]

    def _floats(self) -> bool:
        return any(getattr(torch, spec.dtype).is_floating_point for spec in self.point.instance.specs)
