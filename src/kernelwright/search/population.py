# SPDX-License-Identifier: Apache-2.0
"""Strategies that keep a population: MAP-Elites with islands, evolution with novelty, contrastive selection."""

from __future__ import annotations

import re

from kernelwright.search.book import Book
from kernelwright.search.protocol import Ask, Told


class MapElites:
    """The best program of each cell, on ``islands`` that exchange their best now and then (KernelFoundry, section 3).

    A cell is the value of ``axes`` among a program's features: facts of the compiled program (memory path, tensor
    cores, fusion depth, decomposition), so that cells do not drift as code length would. Parents are drawn evenly
    over the occupied cells of the asking island, the best cell with probability ``exploit``.
    """

    def __init__(
        self, most: int, seed: int = 0, *, axes: tuple[str, ...], islands: int = 2, migrate: int = 20,
        start: int = 4, exploit: float = 0.5, cross: float = 0.2,
    ) -> None:  # fmt: skip
        self._book = Book(most, seed)
        self._axes, self._count, self._migrate = axes, islands, migrate
        self._start, self._exploit, self._cross = start, exploit, cross
        self.cells: list[dict[tuple[str, ...], Told]] = [{} for _ in range(islands)]
        self._broken: list[tuple[Told, str]] = []

    def ask(self) -> Ask | None:
        """A repair first; else a fresh program while an island is young; else an edit or a cross of elites."""
        book = self._book
        if book.full:
            return None
        if self._broken:
            told, place = self._broken.pop(0)
            return book.request("repair", (told.candidate,), place=place)
        dice, island = book.dice(), book.asked % self._count
        place = str(island)
        elites = sorted(self.cells[island].values(), key=lambda told: (-(told.score or 0.0), told.candidate))
        if book.asked < self._start * self._count or not elites:
            return book.request("fresh", place=place)
        if len(elites) > 1 and dice.random() < self._cross:
            pair = dice.sample(elites, 2)
            return book.request("cross", tuple(told.candidate for told in pair), place=place)
        parent = elites[0] if dice.random() < self._exploit else dice.choice(elites)
        return book.request("revise", (parent.candidate,), place=place)

    def tell(self, ask: Ask, told: Told) -> None:
        """Settle the program in its cell if it is better than who lives there; migrate when it is time."""
        self._book.file(ask, told)
        if told.score is None:
            if ask.edit != "repair":
                self._broken.append((told, ask.place))
            return
        self._settle(self.cells[int(ask.place or 0)], told)
        if len(self._book.answers) % self._migrate == 0 and self._count > 1:
            bests = [max(cell.values(), key=lambda t: t.score or 0.0, default=None) for cell in self.cells]
            for index, emigrant in enumerate(bests):
                if emigrant is not None:
                    self._settle(self.cells[(index + 1) % self._count], emigrant)

    def best(self) -> Told | None:
        """The best accepted answer so far."""
        return self._book.best

    def _settle(self, cells: dict[tuple[str, ...], Told], told: Told) -> None:
        features = dict(told.features)
        cell = tuple(features.get(axis, "") for axis in self._axes)
        holder = cells.get(cell)
        if holder is None or (told.score or 0.0) > (holder.score or 0.0):
            cells[cell] = told


class Evolution:
    """Tournaments, crossover, and no room for copies (robust-kbench and ShinkaEvolve keep novelty the same way).

    A program whose normalised code shares more than ``similar`` of its shingles with a better member is not
    admitted to the population."""

    def __init__(
        self, most: int, seed: int = 0, *, size: int = 8, tournament: int = 3, cross: float = 0.3, similar: float = 0.95
    ) -> None:
        self._book = Book(most, seed)
        self._size, self._tournament, self._cross, self._similar = size, tournament, cross, similar
        self.members: list[Told] = []
        self.refused = 0
        self._shingles: dict[str, frozenset[str]] = {}
        self._broken: list[Told] = []

    def ask(self) -> Ask | None:
        """A repair, a fresh start for the first generation, a cross or an edit of tournament winners."""
        book = self._book
        if book.full:
            return None
        if self._broken:
            return book.request("repair", (self._broken.pop(0).candidate,))
        dice = book.dice()
        if book.asked < self._size // 2 or not self.members:
            return book.request("fresh")
        first = self._winner(dice.sample(self.members, min(self._tournament, len(self.members))))
        others = [told for told in self.members if told is not first]
        if others and dice.random() < self._cross:
            second = self._winner(dice.sample(others, min(self._tournament, len(others))))
            return book.request("cross", (first.candidate, second.candidate))
        return book.request("revise", (first.candidate,))

    def tell(self, ask: Ask, told: Told) -> None:
        """Admit, refuse as a copy, or displace the worst."""
        self._book.file(ask, told)
        if told.score is None:
            if ask.edit != "repair":
                self._broken.append(told)
            return
        mine = self._shingles[told.candidate] = shingles(told.text)
        for member in list(self.members):
            if jaccard(mine, self._shingles[member.candidate]) > self._similar:
                if (told.score or 0.0) <= (member.score or 0.0):
                    self.refused += 1
                    return
                self.members.remove(member)
        self.members.append(told)
        if len(self.members) > self._size:
            self.members.remove(min(self.members, key=lambda member: member.score or 0.0))

    def best(self) -> Told | None:
        """The best accepted answer so far."""
        return self._book.best

    @staticmethod
    def _winner(entrants: list[Told]) -> Told:
        return max(entrants, key=lambda told: (told.score or 0.0, told.candidate))


class Contrast:
    """Each request shows past programs whose speeds differ (CUDA-L1, section 3.3: contrastive prompts).

    The ``shown`` examples are the best and others spread evenly over the range of scores below it."""

    def __init__(self, most: int, seed: int = 0, *, start: int = 3, shown: int = 3) -> None:
        self._book = Book(most, seed)
        self._start, self._shown = start, shown
        self._broken: list[Told] = []

    def ask(self) -> Ask | None:
        """Fresh programs until there is something to contrast."""
        book = self._book
        if book.full:
            return None
        if self._broken:
            return book.request("repair", (self._broken.pop(0).candidate,))
        known = book.accepted()
        if book.asked < self._start or len(known) < 2:
            return book.request("fresh")
        return book.request("contrast", (known[0].candidate,), tuple(told.candidate for told in self._spread(known)))

    def tell(self, ask: Ask, told: Told) -> None:
        """File the answer; a first failure is repaired once."""
        self._book.file(ask, told)
        if told.score is None and ask.edit != "repair":
            self._broken.append(told)

    def best(self) -> Told | None:
        """The best accepted answer so far."""
        return self._book.best

    def _spread(self, known: list[Told]) -> list[Told]:
        best, worst = known[0].score or 0.0, known[-1].score or 0.0
        chosen = [known[0]]
        for step in range(1, self._shown):
            aim = best - (best - worst) * step / max(self._shown - 1, 1)
            rest = [told for told in known if told not in chosen]
            if rest:
                chosen.append(min(rest, key=lambda told: (abs((told.score or 0.0) - aim), told.candidate)))
        return chosen


DIRECTIVE = (
    r"#(?:define|include|undef|if|ifdef|ifndef|elif|else|endif|error)\b|#[ \t]*pragma\b|"
    r"#[ \t]*include[ \t]*[<\"]|#[ \t]*define[ \t]+[A-Z_]"
)
PYTHON_COMMENT = re.compile(rf"^([ \t]*(?:{DIRECTIVE}).*)|#[^\n]*", re.M)
"""Its group is no comment but a directive of C, which a program may hold in its strings or beside its Python."""
C_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def normalise(text: str, *, keep_numbers: bool = False, python: bool = True) -> list[str]:
    """Tokens of code with comments gone and numbers as 0 unless kept: what a copy leaves unchanged.

    ``python``: which comments to drop; ``//`` divides in Python and ``#`` begins a directive in C."""
    text = PYTHON_COMMENT.sub(lambda found: found[1] or " ", text) if python else C_COMMENT.sub(" ", text)
    tokens = re.findall(r"[A-Za-z_]\w*|\d[\w.]*|[^\s\w]", text)
    return tokens if keep_numbers else [re.sub(r"^\d[\w.]*$", "0", token) for token in tokens]


def shingles(text: str, width: int = 4) -> frozenset[str]:
    """Every run of ``width`` tokens of the normalised code."""
    tokens = normalise(text)
    return frozenset(" ".join(tokens[at : at + width]) for at in range(max(1, len(tokens) - width + 1)))


def jaccard(one: frozenset[str], two: frozenset[str]) -> float:
    """Shared share of two sets; 1.0 for two empty ones."""
    union = one | two
    return len(one & two) / len(union) if union else 1.0
