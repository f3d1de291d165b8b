# SPDX-License-Identifier: Apache-2.0
"""The budget of one run: what is left of it, and, where it was overrun, what for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

TOLERATED_SHARE, TOLERATED_S = 0.1, 1.0
"""An overrun up to the larger of these is not worth a sentence."""
STEPS = {
    "start": "starting and admitting the task",
    "search": "the search",
    "proof": "the proof, which is never skipped",
    "waiting": "waiting for another judge of the device",
}
"""What a run's time goes into, in words."""


class Pace:
    """Seconds of one run that began at ``began`` of the monotonic clock; what passed since then was its start."""

    def __init__(self, budget_seconds: float, began: float) -> None:
        self.budget = budget_seconds
        self._began = began
        self._until = began + budget_seconds
        self._searching: float | None = None
        self._spent = dict.fromkeys(STEPS, 0.0) | {"start": time.monotonic() - began}
        self._granted = False
        self._promised = began

    def left(self) -> float:
        """Until the budget is over; negative when it is."""
        return self._until - time.monotonic()

    def admitted(self) -> None:
        """From now on candidates can be judged: what came before is the start, which no budget shortens."""
        self._searching = time.monotonic()

    def room(self, least: float) -> float:
        """Until the run should be over: when its budget is, or, where that is later, once what cannot be left out was
        done, which takes ``least`` seconds from the admission on."""
        return self._end(least) - time.monotonic()

    def whole(self, least: float) -> float:
        """How long the run should take in all, by the same rule."""
        return self._end(least) - self._began

    def _end(self, least: float) -> float:
        searching = time.monotonic() if self._searching is None else self._searching
        return max(self._until, searching + least)

    def grant(self, seconds: float) -> None:
        """Move the end so that at least this much is left."""
        moved = time.monotonic() + seconds
        if moved > self._until:
            self._until, self._granted = moved, True

    def promise(self, seconds: float) -> None:
        """Give the search at least this much from now on, whatever a proof after it will take."""
        self._promised = time.monotonic() + seconds

    def promised(self) -> float:
        """What is left of that; not above 0 where there was none, or it is over."""
        return self._promised - time.monotonic()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """What is done inside counts as this one of STEPS, and not as the one around it."""
        before, began = sum(self._spent.values()), time.monotonic()
        try:
            yield
        finally:
            inside = sum(self._spent.values()) - before
            self._spent[name] += time.monotonic() - began - inside

    def waited(self, seconds: float) -> None:
        """So much of the step around this was waiting for another judge, and counts as that."""
        self._spent["waiting"] += max(seconds, 0.0)

    def spent(self) -> dict[str, float]:
        """Seconds of each step so far, those it needed."""
        return {name: seconds for name, seconds in self._spent.items() if seconds > 0}

    def words(self) -> str:
        """A sentence on a budget that was overrun; empty where it was kept, or where more time was granted."""
        taken = time.monotonic() - self._began
        if self._granted or taken <= self.budget + max(TOLERATED_S, TOLERATED_SHARE * self.budget):
            return ""
        parts = ", ".join(f"{seconds:.0f} s for {STEPS[name]}" for name, seconds in self.spent().items())
        return f"The budget of {self.budget:g} s was overrun, {taken:.0f} s in all: {parts}."
