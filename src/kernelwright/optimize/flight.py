# SPDX-License-Identifier: Apache-2.0
"""Requests on their way: what one carries until it is settled, and where its candidate is judged then."""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass
from typing import Protocol

from kernelwright.candidate import Candidate
from kernelwright.llm import Meter
from kernelwright.proposers.agent import AgentProposer, Evidence
from kernelwright.search import Ask
from kernelwright.trial import Outcome


class Trier(Protocol):
    """Where candidates are judged: the run's loop."""

    def consider(self, candidate: Candidate, structure: str) -> Outcome | None:
        """Judge coarsely and remember; None when the judge itself failed on it."""
        ...

    def build_ahead(self, candidate: Candidate) -> None:
        """Start compiling, beside whatever is being judged."""
        ...

    def seconds_left(self) -> float:
        """Budget left for searching."""
        ...


class Late(Exception):
    """The time is over and a request is still in flight."""


@dataclass(slots=True)
class Open:
    """One ask on its way: who writes it, what was shown, and the candidate to come."""

    ask: Ask
    arm: str
    voice: AgentProposer
    shown: Evidence | None
    found: concurrent.futures.Future[tuple[Candidate, tuple[str, float]]]
    asked: bool
    """False for a candidate to start from, which no model wrote."""

    @property
    def meter(self) -> Meter:
        """What this ask took so far."""
        return self.voice.speaker.meter
