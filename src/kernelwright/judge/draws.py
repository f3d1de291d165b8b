# SPDX-License-Identifier: Apache-2.0
"""What one program's random outputs show only over several calls: numbers that repeat, and a law a little off."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.judge import distribution


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
        return distribution.drifted(self._tilts.get(index, [])) or self._repeats(index, look)

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
