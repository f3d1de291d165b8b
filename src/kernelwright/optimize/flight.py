# SPDX-License-Identifier: Apache-2.0
"""Requests on their way: what one carries until it is settled, and where its candidate is judged then."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kernelwright.candidate import Candidate
from kernelwright.errors import KernelwrightError
from kernelwright.llm import Meter
from kernelwright.proposers.agent import AgentProposer, Evidence, Malformed
from kernelwright.proposers.agent import Ask as Request
from kernelwright.search import Ask
from kernelwright.trial import Outcome, Rejected

T = TypeVar("T")
Facts = Mapping[str, float | str]
GRACE_S = 5.0
"""How long requests in flight are waited for when the time is over."""
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

    def test_with(self, source: str) -> tuple[str, ...]:
        """From now on candidates must also pass the cases that this source makes; which count and which do not."""
        ...

    def seconds_left(self) -> float:
        """Budget left for searching."""
        ...


class Late(Exception):
    """The time is over and a request is still in flight."""


def begun(call: Callable[[], T], name: str) -> concurrent.futures.Future[T]:
    """Start ``call`` in a daemon thread of its own: a request that hangs must not keep a finished run from ending."""
    found: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            found.set_result(call())
        except (KernelwrightError, Malformed) as error:
            found.set_exception(error)
        finally:
            if not found.done():  # a defect of ours: not lost, whoever waits for the result raises it
                found.set_exception(sys.exc_info()[1] or AssertionError("no result"))

    threading.Thread(target=run, name=name, daemon=True).start()
    return found


def waited(found: concurrent.futures.Future[T], seconds_left: Callable[[], float]) -> T:
    """The result. Raises ``Late`` when the time is over and some more."""
    while True:
        try:
            return found.result(timeout=0.25)
        except concurrent.futures.TimeoutError:
            if found.done():
                raise  # the call's own
            if seconds_left() < -GRACE_S:
                raise Late from None


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
