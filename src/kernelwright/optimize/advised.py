# SPDX-License-Identifier: Apache-2.0
"""What was advised in one search and what the judge measured of it: for those who advise next, never an opinion."""

from __future__ import annotations

from kernelwright.proposers.agent import Evidence, describe_difference, describe_result
from kernelwright.proposers.agent.effects import faster, shortened
from kernelwright.trial import Timed

SHOWN = 4
"""Pieces of advice that a prompt lists: the latest."""
LONGEST = 200
"""Characters of one that are quoted."""
NOTE = 80
"""Characters of what the program made from it says of itself: a coder may have done something else."""


class Advised:
    """Advice in the order in which its programs were settled."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._told: list[str] = []

    def add(self, advice: str, expected: float, before: Evidence, after: Evidence | None, *, again: bool) -> None:
        """``before``: the program that was advised on; ``after``: the one made from it, None where there was none.
        ``again``: that one had been tried before, so the advice brought nothing new."""
        if not advice:
            return
        # The last line is the change itself; the ones before it are what the adviser saw.
        change = shortened(advice.splitlines()[-1].removeprefix("change: ").strip(), LONGEST)
        one, two = before.outcome, after.outcome if after is not None else None
        promise = f"expected {expected:.2f} times as fast, " if isinstance(one, Timed) else ""
        told = False
        if after is None:
            became = "no program came of it"
        elif again:
            became = "what was made of it had been tried before"
        else:
            if isinstance(one, Timed) and isinstance(two, Timed):
                became, told = f"measured: {describe_difference(one, two)}", bool(faster(one, two))
            else:
                became = describe_result(two)
            note = shortened(after.candidate.note, NOTE).rstrip(" .:")
            became += f" (made of it: {note})" if note else ""
        self._lines.append(f"{change}: {promise}{became}")
        if told:
            self._told.append(self._lines[-1])

    def lines(self) -> tuple[str, ...]:
        """The latest pieces of advice with what came of each, oldest first."""
        return tuple(self._lines[-SHOWN:])

    def predictions(self, most: int) -> list[str]:
        """The latest whose effect could be told from noise, oldest first: nothing follows from the others."""
        return self._told[-most:]
