# SPDX-License-Identifier: Apache-2.0
"""What was advised in one search and what the judge measured of it: for those who advise next, never an opinion."""

from __future__ import annotations

from kernelwright.proposers.agent import Evidence, describe_difference, describe_result
from kernelwright.proposers.agent.effects import shortened
from kernelwright.trial import Timed

SHOWN = 4
"""Pieces of advice that a prompt lists: the latest."""
LONGEST = 200
"""Characters of one that are quoted."""


class Advised:
    """Advice in the order in which its programs were settled."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._missed: list[str] = []

    def add(self, advice: str, expected: float, before: Evidence, after: Evidence | None) -> None:
        """``before``: the program that was advised on; ``after``: the one made from it, None where there was none."""
        if not advice:
            return
        # The last line is the change itself; the ones before it are what the adviser saw.
        change = shortened(advice.splitlines()[-1].removeprefix("change: ").strip(), LONGEST)
        one, two = before.outcome, after.outcome if after is not None else None
        both = isinstance(one, Timed) and isinstance(two, Timed)
        promise = f"expected {expected:.2f} times as fast, " if isinstance(one, Timed) else ""
        if after is None:
            became = "no program came of it"
        elif after.candidate.digest() == before.candidate.digest():
            became = "the program came back as it was"
        elif isinstance(one, Timed) and isinstance(two, Timed):
            became = f"measured: {describe_difference(one, two)}"
        else:
            became = describe_result(two)
        self._lines.append(f"{change}: {promise}{became}")
        if both and after is not None and after.candidate.digest() != before.candidate.digest():
            self._missed.append(self._lines[-1])

    def lines(self) -> tuple[str, ...]:
        """The latest pieces of advice with what came of each, oldest first."""
        return tuple(self._lines[-SHOWN:])

    def predictions(self, most: int) -> list[str]:
        """Those whose promise met a measurement, oldest first."""
        return self._missed[-most:]
