# SPDX-License-Identifier: Apache-2.0
"""Requests on their way: what one carries until it is settled, and where its candidate is judged then."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kernelwright.candidate import Candidate
from kernelwright.llm import Meter
from kernelwright.proposers.agent import AgentProposer, Evidence
from kernelwright.proposers.agent import Ask as Request
from kernelwright.search import Ask
from kernelwright.trial import Outcome, Rejected

Facts = Mapping[str, float | str]
Guess = tuple[bool, float, str]
"""(will fail, confidence, why)."""


class Trier(Protocol):
    """Where candidates are judged: the run's loop with its tiers, or their record."""

    def consider(self, candidate: Candidate, structure: str) -> Outcome | None:
        """Judge coarsely and remember; None when the judge itself failed on it."""
        ...

    def build_ahead(self, candidate: Candidate) -> None:
        """Start compiling, beside whatever is being judged."""
        ...

    def static(self, candidate: Candidate) -> Facts | None:
        """Facts of the compiled object, without a device; None where it does not compile."""
        ...

    def profile(self, candidate: Candidate) -> Facts:
        """Facts of a run of an accepted candidate under observation; empty where there was no time for it."""
        ...

    def sanitized(self, candidate: Candidate) -> Rejected | None:
        """What sanitizers found in a C++ candidate: a race, a read out of bounds; None for nothing."""
        ...

    def test_with(self, source: str) -> None:
        """From now on candidates must also pass the cases that this source makes."""
        ...

    def seconds_left(self) -> float:
        """Budget left for searching."""
        ...


class Late(Exception):
    """The time is over and a request is still in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a writing thread hands over."""

    candidate: Candidate
    advice: tuple[str, float]
    """(what the adviser asked for, the gain it expected)."""
    guess: Guess | None
    """The verifier's prediction."""


@dataclass(slots=True)
class Open:
    """One ask on its way: who writes it, what was asked, and the candidate to come."""

    ask: Ask
    arm: str
    voice: AgentProposer
    request: Request | None
    """None for a candidate to start from, which no model wrote."""
    found: concurrent.futures.Future[Draft]

    @property
    def shown(self) -> Evidence | None:
        """The program that was to be edited."""
        return self.request.parent if self.request is not None else None

    @property
    def meter(self) -> Meter:
        """What this ask took so far."""
        return self.voice.speaker.meter
