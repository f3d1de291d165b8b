# SPDX-License-Identifier: Apache-2.0
"""Answers that miss what is allowed by little, and so seldom that it is chance.

A proof asks some hundred answers, each held against draws of the honest error. An honest program whose errors are 1.5
times as large as these misses the double in one answer of thousands: of 474 proofs of honest programs two were refused
so, at 2.0 and 2.09 times the honest error. A program that loses more than the bit that is allowed misses it in most of
its answers, and one that is wrong, or rounds to fewer bits, misses by far more.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from kernelwright.judge.numerics import bits_lost
from kernelwright.trial import CaseResult

NEAR = 0.5
"""Bits beyond those allowed that such an answer may lose."""
MOST = 2
"""Such answers of one proof."""


@dataclass(slots=True)
class ByChance:
    """Those of one program. ``allowed``: bits that the contract lets it lose."""

    allowed: float
    seen: int = 0
    worst: float = 0.0

    def passed(self, result: CaseResult) -> CaseResult:
        """The same result, or that it passed after all; then its detail still says by how much it missed."""
        if result.passed or self.seen == MOST or bits_lost(result.error_ratio) > self.allowed + NEAR:
            return result
        self.seen, self.worst = self.seen + 1, max(self.worst, result.error_ratio)
        return dataclasses.replace(result, passed=True)

    def words(self) -> list[str]:
        """What a proof says of them."""
        if not self.seen:
            return []
        return [f"{self.seen} checked calls missed by little, up to {self.worst:.3g} times the honest error"]
