# SPDX-License-Identifier: Apache-2.0
"""Hard limits on money, tokens, requests and time that count what is in flight, so that no request can overrun them."""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass

from kernelwright.errors import BudgetSpent


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings; None means none."""

    usd: float | None = None
    tokens: int | None = None
    requests: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What was used so far. ``usd`` None: at least one request had no known price."""

    usd: float | None
    tokens: int
    requests: int
    seconds: float
    overruns: int = 0
    """Requests that took more tokens than their worst case: the server ignored the reply limit it was given."""


@dataclass(slots=True)
class Reservation:
    """Worst case of one request in flight."""

    tokens: int
    usd: float | None


class Budget:
    """Reserve the worst case, send, settle the truth. Safe to share between threads. Once closed, nothing is sent.

    Its clock starts with ``begin``: what a run does before it asks anyone is no model's time.

    A request whose worst case does not fit is refused with ``BudgetSpent`` before it is sent. A model without a
    known price cannot be held to a dollar limit, so with ``limits.usd`` set it is refused too. After a reply longer
    than its worst case no further request is sent under a limit of tokens or dollars.
    """

    def __init__(self, limits: Limits, already: Spent | None = None) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._tokens = already.tokens if already else 0
        self._requests = already.requests if already else 0
        self._usd = (already.usd or 0.0) if already else 0.0
        self._unpriced = bool(already) and already is not None and already.usd is None and already.requests > 0
        self._before = already.seconds if already else 0.0
        self._overruns = already.overruns if already else 0
        self._held_tokens, self._held_usd, self._in_flight, self._held_unpriced = 0, 0.0, 0, 0
        self._closed = ""
        self._started: float | None = None

    def begin(self) -> None:
        """Start the clock; once started it goes on."""
        with self._lock:
            self._started = time.monotonic() if self._started is None else self._started

    def reserve(self, tokens: int, usd: float | None) -> Reservation:
        """Room for a request of at most ``tokens`` tokens and ``usd`` dollars. Raises ``BudgetSpent``."""
        with self._lock:
            if self._closed:
                raise BudgetSpent("No more requests are sent", self._closed, "a search that is under way")
            self._check_time()
            limits = self.limits
            if self._overruns and (limits.tokens is not None or limits.usd is not None):
                raise BudgetSpent(
                    "The server ignores the limit on the length of a reply: no limit on tokens or dollars can be kept",
                    f"{self._overruns} reply(s) longer than asked for",
                    "a server that keeps to max_tokens",
                    "use --max-requests or --max-candidates instead",
                )
            if limits.requests is not None and self._requests + self._in_flight + 1 > limits.requests:
                raise _spent("requests", self._requests + self._in_flight, limits.requests)
            if limits.tokens is not None and self._tokens + self._held_tokens + tokens > limits.tokens:
                raise _spent("tokens", self._tokens + self._held_tokens, limits.tokens, f"the next may take {tokens}")
            if limits.usd is not None:
                if usd is None:
                    raise BudgetSpent(
                        "A dollar limit cannot be kept for a model without a known price",
                        "no price",
                        "a model with a known price, or --price IN,OUT",
                        "use --max-tokens or --max-candidates instead of --max-usd",
                    )
                if self._usd + self._held_usd + usd > limits.usd:
                    used = round(self._usd + self._held_usd, 6)
                    raise _spent("dollars", used, limits.usd, f"the next may cost {usd:.4f}")
            self._held_tokens += tokens
            self._held_usd += usd or 0.0
            self._held_unpriced += usd is None
            self._in_flight += 1
            return Reservation(tokens, usd)

    def settle(self, held: Reservation, tokens: int, usd: float | None) -> None:
        """Replace a reservation by what the request really took (a failed one took its input at most)."""
        with self._lock:
            self._held_tokens -= held.tokens
            self._held_usd -= held.usd or 0.0
            self._held_unpriced -= held.usd is None
            self._in_flight -= 1
            self._requests += 1
            self._tokens += tokens
            self._usd += usd or 0.0
            self._unpriced = self._unpriced or usd is None
            self._overruns += tokens > held.tokens

    def close(self, why: str) -> None:
        """Refuse every further request: a thread that still waits to try again must not outlive its search."""
        with self._lock:
            self._closed = why

    def spent(self) -> Spent:
        """What has been settled so far."""
        with self._lock:
            usd = None if self._unpriced else self._usd
            return Spent(
                usd=usd, tokens=self._tokens, requests=self._requests, seconds=self._seconds(), overruns=self._overruns
            )

    def committed(self) -> Spent:
        """What has been settled and what is held: requests that nobody waits for any more are paid for all the same."""
        settled = self.spent()
        with self._lock:
            unpriced = settled.usd is None or self._held_unpriced > 0
            return dataclasses.replace(
                settled,
                usd=None if unpriced else self._usd + self._held_usd,
                tokens=self._tokens + self._held_tokens,
                requests=self._requests + self._in_flight,
            )

    def _seconds(self) -> float:
        return self._before + (0.0 if self._started is None else time.monotonic() - self._started)

    def _check_time(self) -> None:
        used = self._seconds()
        if self.limits.seconds is not None and used >= self.limits.seconds:
            raise _spent("seconds", round(used, 1), self.limits.seconds)


def _spent(what: str, used: float, limit: float, extra: str = "") -> BudgetSpent:
    got = f"{used:g} {what} used or in flight" + (f", and {extra}" if extra else "")
    return BudgetSpent(f"The budget of {what} is spent", got, f"at most {limit:g}", "raise the limit and --resume")
