# SPDX-License-Identifier: Apache-2.0
"""A few real draws of a task whose draws are dear, and others made of them, as freely as the reference takes that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernelwright.judge.finite import pattern
from kernelwright.judge.inputs import Variant
from kernelwright.judge.recombined import Recombiner
from kernelwright.judge.variants import LIGHT

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

COUNT = 3
EACH, TOGETHER, WHOLE = "each by itself", "those of one shape together", "whole"
"""How whole numbers, and flags, are mixed: inputs of one shape that say where something begins and where it ends come
of the same draw at each place, where the reference has no answer else, and where it has none then, all of one."""
TRIED = 3
"""Draws of each manner that the reference is asked about, where its calls are light."""


class Stock:
    """``COUNT`` real draws under seeds from ``seed`` on."""

    def __init__(self, instance: Instance, as_given: Variant, seed: int, recombiner: Recombiner) -> None:
        self._instance, self._recombiner = instance, recombiner
        self.drawn = [instance.draw(as_given, seed + number) for number in range(COUNT)]
        numbers = any(not leaf.is_floating_point() and leaf.numel() > 1 for leaf in self.drawn[0])
        numbers = numbers or bool(instance.bonds.flags or instance.bonds.far)
        self._manner = EACH if not numbers else next((how for how in (EACH, TOGETHER) if self._takes(how, seed)), WHOLE)
        self.taken = self._manner == WHOLE or self._accepts(seed)
        """Whether the reference takes such draws at all: who asks that rows add up to one within 1e-5 refuses them."""

    @property
    def free(self) -> bool:
        """Whether many may be made at once, each input by itself."""
        return self._manner == EACH and self._instance.bonds.free(self.drawn[0])

    def made(self, dice: torch.Generator, manner: str = "") -> list[torch.Tensor]:
        """The inputs of another draw."""
        first, second = torch.randperm(COUNT, generator=dice)[:2].tolist()
        instance, manner, seed = self._instance, manner or self._manner, int(torch.randint(2**60, (), generator=dice))

        def mix(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            if one.is_floating_point() or one.is_complex() or manner == EACH:
                return self._recombiner.of(one, other, dice)
            lots = torch.Generator().manual_seed(seed)  # the same ones for all of one shape
            return one.clone() if manner == WHOLE else self._recombiner.of(one, other, lots)

        pairs = enumerate(zip(self.drawn[first], self.drawn[second], strict=True))
        kept, sorts = instance.kept, instance.searches
        return [a.clone() if i in kept else instance.bonds.mixed(i, a, b, mix, dice, sorts) for i, (a, b) in pairs]

    def _accepts(self, seed: int) -> bool:
        """Whether it takes one, where it takes a real one."""
        made = self._instance.given(self.made(torch.Generator().manual_seed((seed + 1) % 2**63)), seed)
        return self._instance.accepted(made) is not None or self._instance.accepted(self.drawn[0]) is None

    def _takes(self, manner: str, seed: int) -> bool:
        """Whether the reference has answers to such draws that are as finite as those to real ones."""
        dice = torch.Generator().manual_seed(seed % 2**63)
        tried = TRIED if self._instance.work <= LIGHT else 1
        usual = {pattern(self._instance.accepted(leaves)) for leaves in self.drawn[:tried]}
        found = (self._instance.given(self.made(dice, manner), seed + number) for number in range(tried))
        return all(pattern(self._instance.accepted(leaves)) in usual for leaves in found)
