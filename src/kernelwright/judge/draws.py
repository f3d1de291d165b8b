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

    def forget(self) -> None:
        """Another program answers from here on: what the last one drew is not held against it."""
        self._drawn.clear()
        self._tilts.clear()

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
        before = self._drawn.get(index, [])
        self._drawn[index] = [look.mine, *before[: distribution.REMEMBERED - 1]]
        same = any(distribution.repeated(one, look.mine, look.theirs) for one in before)
        return "the same random numbers as in an earlier call" if same else ""
