# SPDX-License-Identifier: Apache-2.0
"""What one program's random outputs show only over several calls: numbers that repeat, and a law a little off."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernelwright.judge import agreement, distribution

DRIFT = 8.0
"""Standard errors by which the mean rank over all calls may be off: of normal numbers one in 10^15 is, and of Student's
with RUNS + HELD_OUT - 1 degrees of freedom, as a first call's is, one in 10^9."""
FEW_DRIFT = 24.0
"""-log of how often an honest program's mean rank may be off by ``limit_of_few``, to one side: 4 in 10^11."""


class Draws:
    """The random outputs of one program so far. Not thread-safe."""

    def __init__(self) -> None:
        self._drawn: dict[int, list[distribution.Drawn]] = {}
        self._tilts: dict[int, list[tuple[float, ...]]] = {}
        self._firsts: dict[int, distribution.Drawn] = {}
        """What the first process drew in its first call."""
        self._begun: set[int] = set()
        """Outputs of which this process's first call was seen."""

    def forget(self) -> None:
        """Another program answers from here on: what the last one drew is not held against it."""
        self._drawn.clear()
        self._tilts.clear()
        self._firsts.clear()
        self._begun.clear()

    def another_process(self) -> None:
        """A second process of the program answers from here on. It was constructed under the seeds of the first, and
        given others after that: numbers that were made by its constructor are those of the first again."""
        self._begun.clear()

    def told(self, index: int, value: torch.Tensor, column: Sequence[torch.Tensor]) -> str:
        """Empty where output ``index`` may be one more of ``column``, runs of the reference on equal inputs."""
        look = distribution.look(value, column)
        if look.detail:
            return look.detail
        if look.tilts:
            self._tilts.setdefault(index, []).append(look.tilts)
        few = value.numel() < distribution.SLICE_LEAST
        return drifted(self._tilts.get(index, []), few) or self._repeats(index, look)

    def _repeats(self, index: int, look: distribution.Look) -> str:
        if look.mine is None:
            return ""
        if index not in self._begun:
            self._begun.add(index)
            first = self._firsts.setdefault(index, look.mine)
            if first is not look.mine and distribution.repeated(first, look.mine, look.theirs):
                return "the random numbers of its first call are those of another process, which was seeded otherwise"
        before = self._drawn.get(index, [])
        self._drawn[index] = [look.mine, *before[: distribution.REMEMBERED - 1]]
        same = any(distribution.repeated(one, look.mine, look.theirs) for one in before)
        return "the same random numbers as in an earlier call" if same else ""


def settled(column: Sequence[torch.Tensor]) -> bool:
    """Whether all runs of the reference gave the same: such an output is as little random as any other task's."""
    return all(agreement.same_bits(column[0], one) for one in column[1:])


def drifted(calls: Sequence[Sequence[float]], few: bool) -> str:
    """Empty unless the ``tilts`` of all calls together lie further from 0 than chance explains."""
    limit = limit_of_few(len(calls)) if few else DRIFT
    for name, column in zip(("value", "size", "scatter"), zip(*calls, strict=True), strict=bool(calls)):
        off = sum(column) / math.sqrt(len(column))
        if abs(off) > limit:
            return f"another distribution ({name}: {abs(off):.1f} standard errors off over {len(column)} calls)"
    return ""


def limit_of_few(calls: int) -> float:
    """Bernstein's: standard errors by which the mean rank of an output of few elements may be off.

    Among RUNS + HELD_OUT + 1 runs one lies sqrt(RUNS + HELD_OUT) deviations from their mean at the most, and is as
    likely to be any of them. A rank that is always the first shows after 80 calls or so.
    """
    reach = FEW_DRIFT * math.sqrt(distribution.RUNS + distribution.HELD_OUT) / (3 * math.sqrt(max(calls, 1)))
    return reach + math.sqrt(reach * reach + 2 * FEW_DRIFT)
