# SPDX-License-Identifier: Apache-2.0
"""What a strategy says and hears when someone else writes the candidates (a model, an agent, a mutation)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request for a candidate."""

    number: int
    """Counts from 0; an answer refers to it."""
    edit: str
    """``fresh`` (from the task alone), ``revise`` (one parent), ``repair`` (a rejected parent), ``cross`` (two) or
    ``contrast`` (the examples, whose speeds differ)."""
    parents: tuple[str, ...]
    """Digests of the candidates to start from, best first."""
    examples: tuple[str, ...]
    """Digests of further candidates to show with their measured speeds."""
    place: str
    """Where the answer belongs: an island, a beam slot, an arm; empty when the strategy has only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What came of an ask."""

    candidate: str
    """Digest."""
    score: float | None
    """log2 of the speedup over the best baseline, higher is better; None: rejected."""
    features: tuple[tuple[str, str], ...]
    """Facts about the compiled candidate (memory path, fusion depth ...), for strategies that keep variety."""
    text: str
    """Normalised code, for strategies that refuse near-duplicates."""


class Strategy(Protocol):
    """Decides what to ask for next.

    Deterministic in its seed and the answers: replaying the answers restores the state. Several asks may be
    open at once; answers come in any order. ``ask`` returns None when the strategy wants nothing before the
    next answer, or is done.
    """

    def ask(self) -> Ask | None:
        """The next request, or None."""
        ...

    def tell(self, ask: Ask, told: Told) -> None:
        """The answer to an open ask. Raises KeyError for an ask that is not open."""
        ...

    def best(self) -> Told | None:
        """The best accepted answer so far."""
        ...
