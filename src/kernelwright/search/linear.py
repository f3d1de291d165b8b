# SPDX-License-Identifier: Apache-2.0
"""Strategies that keep one line of work or none: best-of-n, and the chain with or without rollback to the best."""

from __future__ import annotations

from kernelwright.search.book import Book
from kernelwright.search.protocol import Ask, Told


class BestOfN:
    """``most`` independent tries from the task alone: the yardstick for every other strategy."""

    def __init__(self, most: int, seed: int = 0) -> None:
        self._book = Book(most, seed)

    def ask(self) -> Ask | None:
        """A fresh try, whatever came of the others."""
        return None if self._book.full else self._book.request("fresh")

    def tell(self, ask: Ask, told: Told) -> None:
        """Only the best is kept."""
        self._book.file(ask, told)

    def best(self) -> Told | None:
        """The best accepted answer so far."""
        return self._book.best


class Chain:
    """One program, edited step after step (CudaForge, section 3: coder and judge in turn).

    ``rollback``: a step that ends worse than the best starts again from the best; without it the chain goes on
    from wherever it is, as the published system does. A rejected program is repaired up to ``repairs`` times in
    a row, then abandoned.
    """

    def __init__(self, most: int, seed: int = 0, *, rollback: bool = True, repairs: int = 3) -> None:
        self._book = Book(most, seed)
        self._rollback, self._repairs = rollback, repairs
        self._at: Told | None = None
        self._broken: Told | None = None
        self._mended = 0

    def ask(self) -> Ask | None:
        """The next step; None while a step is open, because each depends on the one before."""
        if self._book.full or self._book.open:
            return None
        if self._broken is not None and self._mended < self._repairs:
            self._mended += 1
            return self._book.request("repair", (self._broken.candidate,))
        self._broken, self._mended = None, 0
        if self._at is None:
            return self._book.request("fresh")
        return self._book.request("revise", (self._at.candidate,))

    def tell(self, ask: Ask, told: Told) -> None:
        """Move, stay or go back."""
        better = self._book.file(ask, told)
        if told.score is None:
            self._broken = told
            return
        self._broken, self._mended = None, 0
        if better or not self._rollback or self._at is None:
            self._at = told

    def best(self) -> Told | None:
        """The best accepted answer so far."""
        return self._book.best
