# SPDX-License-Identifier: Apache-2.0
"""The deterministic search: every structure at its default, then tuning where it pays (ask and tell)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tuning import Space, Tuner, Value, key

WORTH_TUNING = 2.5
"""Structures up to this factor slower than the best are tuned: defaults are often 2x from their optimum."""
SHARE = (3, 2, 1)
"""Tuning asks per round for the best, second and third structure; the rest wait until these are used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One structure as the search sees it."""

    key: str
    """``proposer/structure``."""
    order: float
    """Expected time relative to eager; lower is tried first."""
    space: Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One point to judge: an arm and the values of its parameters."""

    arm: str
    values: tuple[tuple[str, Value], ...]


class _State:
    def __init__(self, arm: Arm, seed: int) -> None:
        self.arm = arm
        self.tuner = Tuner(arm.space, seed)
        self.asked = 0
        self.rejected = 0
        self.done = False

    @property
    def cost(self) -> float | None:
        return self.tuner.best[0] if self.tuner.best else None


class StructureSearch:
    """Greedy over structures, neighbour descent within each.

    First every arm once, in order of expected time; then the arms within ``WORTH_TUNING`` of the best share the
    asks 3:2:1 by rank; at last the arms whose default was rejected get up to two more points. Deterministic in
    arms, seed and answers.
    """

    def __init__(self, arms: Sequence[Arm], seed: int = 0) -> None:
        if len({arm.key for arm in arms}) != len(arms):
            raise ValueError("two arms have the same key")
        self._states = {arm.key: _State(arm, seed) for arm in sorted(arms, key=lambda arm: (arm.order, arm.key))}
        self._round: list[str] = []

    @property
    def first_pass_over(self) -> bool:
        """True when every arm was asked for once."""
        return all(state.asked or state.done for state in self._states.values())

    def ask(self) -> Choice | None:
        """The next point, or None when everything worth trying was tried."""
        for state in self._states.values():
            if not state.asked and not state.done:
                choice = self._take(state)
                if choice is not None:
                    return choice
        while True:
            chosen = self._next_to_tune()
            if chosen is None:
                return None
            choice = self._take(chosen)
            if choice is not None:
                return choice

    def tell(self, choice: Choice, cost: float | None) -> None:
        """Microseconds per call of a choice, or None when it was rejected. Raises KeyError for an unknown arm."""
        state = self._states[choice.arm]
        state.tuner.tell(dict(choice.values), cost)
        if cost is None:
            state.rejected += 1

    def ranking(self) -> list[tuple[str, float]]:
        """(arm, best cost) of arms that were accepted at least once, best first."""
        known = [(name, state.cost) for name, state in self._states.items() if state.cost is not None]
        return sorted(((name, cost) for name, cost in known if cost is not None), key=lambda pair: pair[1])

    def expectations(self) -> list[str]:
        """A line for each arm whose trials a model ordered: which model, its own error, and its error here."""
        lines = []
        for name, state in self._states.items():
            known, error = state.arm.space.expected, state.tuner.expectation_error()
            if known is not None and state.asked:
                here = "too few points to say here" if error is None else f"{error:.0%} here, relative to the default"
                lines.append(f"{name}: tuned in the order of {known.source} (median error {known.error:.0%}; {here})")
        return lines

    def _take(self, state: _State) -> Choice | None:
        values = state.tuner.ask()
        state.asked += 1
        if values is None:
            state.done = True
            return None
        return Choice(arm=state.arm.key, values=key(values))

    def _next_to_tune(self) -> _State | None:
        ranking = self.ranking()
        limit = ranking[0][1] * WORTH_TUNING if ranking else 0.0
        open_arms = [name for name, cost in ranking if cost <= limit and not self._states[name].done]
        if open_arms:
            if not any(name in open_arms for name in self._round):
                self._round = [name for name, share in zip(open_arms, SHARE, strict=False) for _ in range(share)]
            while self._round:
                name = self._round.pop(0)
                if name in open_arms:
                    return self._states[name]
        revivable = [s for s in self._states.values() if s.cost is None and not s.done and s.rejected < 3]
        return revivable[0] if revivable else None
