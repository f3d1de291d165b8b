# SPDX-License-Identifier: Apache-2.0
"""The bookkeeping every strategy shares: numbered asks, open ones, answers in the order they came, the best of them."""

from __future__ import annotations

import random

from kernelwright.search.protocol import Ask, Told


class Book:
    """Knows what was asked and answered; decides nothing."""

    def __init__(self, most: int, seed: int) -> None:
        self.most = most
        self.seed = seed
        self.asked = 0
        self.open: dict[int, Ask] = {}
        self.answers: list[tuple[Ask, Told]] = []
        self.best: Told | None = None

    @property
    def full(self) -> bool:
        """True when every ask this strategy may make has been made."""
        return self.asked >= self.most

    def dice(self) -> random.Random:
        """Random numbers for the next ask: they depend on the seed and the ask's number alone."""
        return random.Random(f"{self.seed}/{self.asked}")

    def request(self, edit: str, parents: tuple[str, ...] = (), examples: tuple[str, ...] = (), place: str = "") -> Ask:
        """A new open ask."""
        ask = Ask(number=self.asked, edit=edit, parents=parents, examples=examples, place=place)
        self.asked += 1
        self.open[ask.number] = ask
        return ask

    def file(self, ask: Ask, told: Told) -> bool:
        """Record an answer; True when it is the best so far. Raises KeyError for an ask that is not open."""
        del self.open[ask.number]
        self.answers.append((ask, told))
        better = told.score is not None and (self.best is None or told.score > (self.best.score or 0.0))
        if self.best is None or self.best.score is None:
            better = told.score is not None
        if better:
            self.best = told
        return better

    def accepted(self) -> list[Told]:
        """Distinct accepted answers, best first; ties in the order they came."""
        seen: dict[str, Told] = {}
        for _, told in self.answers:
            if told.score is not None:
                seen.setdefault(told.candidate, told)
        return sorted(seen.values(), key=lambda told: -(told.score or 0.0))
