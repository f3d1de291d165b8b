# SPDX-License-Identifier: Apache-2.0
"""What a run still has time for: one more candidate, a proof, and how long a program that compiles is waited for.

A run is over with its budget, or, where the budget is too small for that, once its task was admitted, one candidate
was judged and, if that one promises something, proved. Nothing is begun that is not expected to end by then.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.optimize.judging import Judging
from kernelwright.optimize.pace import Pace

FEWEST = 3
"""Candidates tried although the budget is over, where nothing promises anything yet: at most so many, and where all
were rejected only in the time that a proof was to take."""
TOLERATED = 0.2
"""Share of a run's time by which a candidate and its proof, where nothing before promised anything, or a second proof,
where the first failed, may overrun it."""
LATE_PROOFS = 2
"""Proofs tried after the budget is over when none has succeeded: the first may fail where the second does not."""
EARLY_PROOF = 4.0
"""Times what a proof is expected to take that must be left for proving the best so far early."""
SHARED_S = 1.0
"""Seconds of waiting for another judge from which it is counted with."""
TURNS = 2.0
"""Times longer that judgements may take where another judge has the device in turn."""
SANITIZING_S, SANITIZED_SHARE = 16.0, 0.3
"""What sanitizers get once a proof has a winner (10 s seen for an RMSNorm), and the largest share of a budget that is
kept for them: none of less than 53 s."""
HANGING_SHARE = 0.5
"""Of what is left of a budget: one that never answers must leave time for others."""
COMPILING_S = 25.0
"""What judging a torch.compile candidate takes on 2 cores (17 to 20 s seen): not begun when less is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """What the search has done so far."""

    asked: int
    """Candidates judged in this session, remembered ones not counted."""
    accepted: bool
    promising: bool
    """One was accepted that a proof should be begun for, even a late one."""


class Schedule:
    """Decides by a run's clock and by what judgements took; ``given`` kernels are all judged, whatever that takes."""

    def __init__(self, pace: Pace, judging: Judging, given: int = 0) -> None:
        self._pace, self._judging, self._given = pace, judging, given
        self._announced = False

    def left(self) -> float:
        """Seconds until the budget is over."""
        return self._pace.left()

    def reserve(self) -> float:
        """Seconds kept for the proof and, of larger budgets, for sanitizers after it."""
        sanitizing = SANITIZING_S if SANITIZING_S <= SANITIZED_SHARE * self._pace.budget else 0.0
        return self._proof() + sanitizing

    def spare(self) -> float:
        """Seconds of the budget that a proof begun now is expected to leave."""
        return self.left() - self._proof()

    def _proof(self) -> float:
        return self._judging.expected_seconds("precise")

    def least(self) -> float:
        """Seconds from the admission on that no budget can shorten: the kernels given, one of ours, a proof."""
        return (1 + self._given) * self._judging.expected_seconds("coarse") + self._proof()

    def news(self, *, proving: bool = False) -> str:
        """``words`` where nothing was said of it before."""
        text = "" if self._announced else self.words(proving=proving)
        self._announced = self._announced or bool(text)
        return text

    def words(self, *, proving: bool = False) -> str:
        """What to expect where the budget is too small; empty where it is not. ``proving``: the proof begins."""
        least, left = self._proof() if proving else self.least(), self.left()
        what = "the proof takes" if proving else "one candidate and its proof take"
        shared = self._pace.spent().get("waiting", 0.0) > SHARED_S
        if least * (TURNS if shared else 1.0) <= left:
            return ""
        have = f"{left:.0f} s are left of the budget" if left >= 0.5 else "the budget is over"
        turns = ", and another judge takes turns on this device" if shared else ""
        return f"{have}, {what} about {least:.0f} s{turns}: the run may take longer for {'it' if proving else 'them'}"

    def fits(self, seconds: float | None = None, kept: float = 0.0) -> bool:
        """Whether one more candidate leaves what the proof needs of the budget. ``seconds``: what the candidate takes;
        ``kept``: seconds that are somebody else's."""
        takes = self._judging.expected_seconds("coarse") if seconds is None else seconds
        return self.left() - takes > max(self.reserve(), kept)

    def may_try(self, tries: Tries, kept: float = 0.0) -> bool:
        """Whether one more candidate is judged."""
        if self.fits(kept=kept):
            return True
        if tries.promising:
            return False  # its proof comes first
        if tries.asked <= self._given:
            return True
        if tries.asked >= FEWEST + self._given and self.left() <= 0:
            return False
        least = self.least()
        spare = self._pace.room(least) - self._judging.expected_seconds("coarse")
        return spare + TOLERATED * self._pace.whole(least) > self._proof() if tries.accepted else spare > 0.0

    def may_compile(self, tries: Tries) -> bool:
        """Whether there is time for a candidate that is compiled by torch while it is judged."""
        if self.fits(COMPILING_S) or tries.asked == 0 and not tries.accepted:
            return True
        return not tries.accepted and self._pace.room(self.least()) > COMPILING_S

    def early_proof(self) -> bool:
        """Whether there is time to prove the best so far and to go on searching."""
        return self.left() > EARLY_PROOF * self._proof()

    def in_budget(self) -> bool:
        """Whether a proof is expected to end within the budget."""
        return self.left() >= self._proof()

    def may_prove_late(self, made: int, proved: bool) -> bool:
        """Whether a proof is begun although the budget does not hold it. ``made``: proofs that were made at the end."""
        if proved or made >= LATE_PROOFS:
            return False
        least = self.least()
        return made == 0 or self._pace.room(least) + TOLERATED * self._pace.whole(least) >= self._proof()

    def hanging(self) -> float:
        """Seconds that a candidate which compiles nothing is waited for: half of what is left, or the judge's least."""
        return max(HANGING_SHARE * self.left(), 0.0)

    def patience(self) -> float:
        """Seconds that a candidate which may be compiling itself is waited for: the time for the search, or, where
        there is none, that of a proof which then will not be made. The judge never waits less than it does for others.
        """
        return max(self.left() - self.reserve(), self._pace.room(self.least()))
