# SPDX-License-Identifier: Apache-2.0
"""Strategies that keep a tree of programs: beam search and Monte-Carlo tree search."""

from __future__ import annotations

import math

from kernelwright.search.book import Book
from kernelwright.search.protocol import Ask, Told

PROXY = "proxy:"
"""Features named so carry a number in [0, 1]: how good the program looks by its counters (higher is better)."""


class Beam:
    """Keep the ``width`` best, edit each ``branch`` times, keep the best of all (best-first when width is 1).

    Rejected programs are repaired once, so that a good idea with a slip is not lost."""

    def __init__(self, most: int, seed: int = 0, *, width: int = 3, branch: int = 2) -> None:
        self._book = Book(most, seed)
        self._width, self._branch = width, branch
        self._edits: dict[str, int] = {}
        self._broken: list[Told] = []

    def ask(self) -> Ask | None:
        """Fill the beam with fresh programs first, then edit the least-edited of the best."""
        book = self._book
        if book.full:
            return None
        if self._broken:
            return book.request("repair", (self._broken.pop(0).candidate,))
        beam = book.accepted()[: self._width]
        pending = sum(1 for ask in book.open.values() if ask.edit == "fresh")
        if len(beam) + pending < self._width and book.asked < 4 * self._width:
            return book.request("fresh")
        for told in beam:
            if self._edits.get(told.candidate, 0) < self._branch:
                self._edits[told.candidate] = self._edits.get(told.candidate, 0) + 1
                return book.request("revise", (told.candidate,))
        if book.open:
            return None
        # Every program of the beam had its edits and none was displaced: another round for the best of them.
        self._edits = {}
        return book.request("revise", (beam[0].candidate,)) if beam else book.request("fresh")

    def tell(self, ask: Ask, told: Told) -> None:
        """File the answer; a fresh or revised program that was rejected waits for its one repair."""
        self._book.file(ask, told)
        if told.score is None and ask.edit != "repair":
            self._broken.append(told)

    def best(self) -> Told | None:
        """The best accepted answer so far."""
        return self._book.best


class Mcts:
    """Monte-Carlo tree search over edits (OptiML, section 4): each node a program, each child an edit of it.

    Reward of a node: its score (log2) plus ``proxy_weight`` times the mean of its ``proxy:`` features. The value of
    a node is the best reward below it, scaled to [0, 1] over what was seen: the aim is one fast program, not a good
    average, and the mean of a subtree buries it (ladder landscape, 50 seeds: 3.7 against 2.5).
    Regression guard: a child worse than its parent by more than ``guard`` (log2) is never expanded.
    Selection by UCT with exploration ``explore``; progressive widening (children <= 1 + visits ** 0.4).
    """

    def __init__(
        self, most: int, seed: int = 0, *, roots: int = 2, explore: float = 0.25, proxy_weight: float = 0.1,
        guard: float = 1.0,
    ) -> None:  # fmt: skip
        self._book = Book(most, seed)
        self._roots, self._explore, self._weight, self._guard = roots, explore, proxy_weight, guard
        self._children: dict[str, list[str]] = {"": []}
        self._parent: dict[str, str] = {}
        self._visits: dict[str, int] = {"": 0}
        self._value: dict[str, float] = {}
        self._range = (0.0, 0.0)
        self._told: dict[str, Told] = {}
        self._pending: dict[str, int] = {}
        self._broken: list[Told] = []

    def ask(self) -> Ask | None:
        """Descend by UCT to a node with room for another child and ask for an edit of it."""
        book = self._book
        if book.full:
            return None
        if self._broken:
            return book.request("repair", (self._broken.pop(0).candidate,))
        node = ""
        while True:
            children = self._children.get(node, [])
            open_here = self._pending.get(node, 0)
            room = self._roots if node == "" else 1 + int(self._visits[node] ** 0.4)
            if len(children) + open_here < room:
                break
            viable = [child for child in children if not self._worse(child)]
            if not viable:
                if open_here:
                    return None
                break
            node = max(viable, key=lambda child: (self._uct(child), child))
        self._pending[node] = self._pending.get(node, 0) + 1
        return book.request("fresh" if node == "" else "revise", (node,) if node else (), place=node)

    def tell(self, ask: Ask, told: Told) -> None:
        """Hang the program under the node it came from and send its reward up."""
        self._book.file(ask, told)
        if ask.edit == "repair":
            node = self._parent.get(ask.parents[0], "")
        else:
            node = ask.place
            self._pending[node] -= 1
        if told.candidate in self._told:
            self._send_up(node, None)
            return
        self._parent[told.candidate] = node
        if told.score is None:
            if ask.edit != "repair":
                self._broken.append(told)
            self._send_up(node, None)
            return
        self._told[told.candidate] = told
        self._children.setdefault(node, []).append(told.candidate)
        self._visits[told.candidate] = 0
        reward = self.reward(told)
        low, high = self._range
        self._range = (min(low, reward), max(high, reward))
        self._send_up(told.candidate, reward)

    def best(self) -> Told | None:
        """The best accepted answer so far."""
        return self._book.best

    def reward(self, told: Told) -> float:
        """The score plus the weighted mean of the proxies."""
        proxies = [float(value) for name, value in told.features if name.startswith(PROXY)]
        bonus = self._weight * sum(proxies) / len(proxies) if proxies else 0.0
        return (told.score or 0.0) + bonus

    def _worse(self, child: str) -> bool:
        parent = self._told.get(self._parent[child])
        return parent is not None and (self._told[child].score or 0.0) < (parent.score or 0.0) - self._guard

    def _uct(self, child: str) -> float:
        visits = self._visits[child]
        above = self._visits[self._parent[child]]
        low, high = self._range
        value = (self._value[child] - low) / (high - low) if high > low else 0.5
        return value + self._explore * math.sqrt(math.log(above + 1) / max(visits, 1))

    def _send_up(self, node: str, reward: float | None) -> None:
        while True:
            self._visits[node] = self._visits.get(node, 0) + 1
            if reward is not None:
                self._value[node] = max(self._value.get(node, reward), reward)
            if node == "":
                return
            node = self._parent.get(node, "")
