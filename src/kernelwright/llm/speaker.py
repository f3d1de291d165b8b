# SPDX-License-Identifier: Apache-2.0
"""A model with its manners: budget before the wire, retries with backoff, a record of everything said."""

from __future__ import annotations

import copy
import dataclasses
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright import wire
from kernelwright.errors import BudgetSpent, ModelError
from kernelwright.llm.budget import Budget
from kernelwright.llm.messages import Message, Model, ModelFailure, Reply, estimate_tokens, request_digest
from kernelwright.llm.record import Memory, Recorder

ATTEMPTS = 6
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0


@dataclass(slots=True)
class Meter:
    """What one speaker's requests took, recorded ones included. ``usd`` None: some price was not known."""

    requests: int = 0
    tokens: int = 0
    usd: float | None = 0.0

    def add(self, requests: int, tokens: int, usd: float | None) -> None:
        """Count some more."""
        self.requests += requests
        self.tokens += tokens
        self.usd = None if self.usd is None or usd is None else self.usd + usd


def whole(text: str) -> str:
    """The text with U+FFFD in place of halves of characters, which no file can hold."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


class Speaker:
    """Safe to share between threads (each with its own ``metered`` copy where the cost per thread matters).

    Each attempt is one request against the budget, failed ones too. ``memory``: requests in it are answered from it,
    at no cost; one that failed, and whose model answered nothing since, is asked anew where the budget allows it (the
    key may be right by now). ``offline``: nothing is sent; what the record does not answer raises ``BudgetSpent``, so
    that a replay ends where its record does. ``clean`` goes over every text that comes back, before anyone sees it."""

    def __init__(
        self, model: Model, budget: Budget, recorder: Recorder | None = None, *, patience: float = 1.0,
        memory: Memory | None = None, offline: bool = False, clean: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        self.model, self.budget, self.recorder = model, budget, recorder
        self.meter = Meter()
        self._memory, self._offline, self._clean = memory, offline, clean
        self._patience = patience
        self._failed: list[str] = []
        """Why attempts failed, of this speaker and its copies, since the last reply; the latest is at the end."""
        self._random = random.Random(0)
        self._lock = threading.Lock()

    def metered(self) -> Speaker:
        """The same speaker with a meter of its own."""
        twin = copy.copy(self)
        twin.meter = Meter()
        return twin

    def say(
        self, messages: Sequence[Message], *, role: str, max_tokens: int = 8192, temperature: float = 0.7, seed: int = 0
    ) -> Reply:
        """The reply to ``messages``. ``role`` names the speaker in the record.

        Raises ``BudgetSpent`` before a request that could overrun a limit, ``ModelError`` when the model cannot
        be used or fails ``ATTEMPTS`` times."""
        key = request_digest(self.model.name, messages, max_tokens=max_tokens, temperature=temperature, seed=seed)
        before = self._memory.take(key) if self._memory is not None else None
        if before is not None:
            self.meter.add(before.attempts, before.tokens, before.usd)
            if before.reply is not None:
                return before.reply
            if self._offline or before.depended_on:
                raise self._silent(before.attempts, before.failure)
        if self._offline:
            if self._memory is not None:
                self._memory.missed(seed, role, messages)
            raise BudgetSpent("The record ends here", f"request {key} was never answered", "a recorded reply")
        settings = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        try:
            return self._ask(messages, key, role, settings, {} if before is None else {"anew": before.place})
        except BudgetSpent as spent:
            if before is None:
                raise
            # It stays as it was, and what came after it is answered from the record all the same.
            raise self._silent(before.attempts, before.failure) from spent

    def _ask(
        self, messages: Sequence[Message], key: str, role: str, settings: Mapping[str, Any], marks: Mapping[str, int]
    ) -> Reply:
        """The reply, in up to ``ATTEMPTS`` requests. ``marks`` is recorded with each. Raises as ``say``."""
        input_tokens, most = estimate_tokens(messages), settings["max_tokens"]
        worst = input_tokens + most
        for attempt in range(1, ATTEMPTS + 1):
            held = self.budget.reserve(worst, self.model.price(input_tokens, most))
            number = self._announce(key, worst, held.usd)
            try:
                reply = self.model.complete(messages, **settings)
            except ModelFailure as failure:
                # A refusal may have been billed for what was sent, a reply that got lost for all of it.
                tokens, usd = (worst, held.usd) if failure.billed else (input_tokens, self.model.price(input_tokens, 0))
                reason, final = self._clean(failure.reason), not failure.temporary or attempt == ATTEMPTS
                self._failed.append(reason)
                self.budget.settle(held, tokens, usd)
                self.meter.add(1, tokens, usd)
                outcome = {"reply": None, "failure": reason, "final": final, "tokens": tokens, "usd": usd}
                self._record(key, number, role, messages, attempt, {**outcome, **marks})
                if final:
                    raise self._silent(attempt, reason) from failure
                self._wait(attempt, failure.wait_s)
                continue
            except BaseException:
                self.budget.settle(held, worst, held.usd)
                raise
            text, thoughts = (self._clean(whole(said)) for said in (reply.text, reply.thoughts))
            reply = dataclasses.replace(reply, text=text, thoughts=thoughts)
            self._failed.clear()
            # A server that does not say what it took may have taken all it was allowed.
            tokens = reply.input_tokens + reply.output_tokens if reply.counted else worst
            usd = reply.usd if reply.counted and (reply.usd or 0.0) >= 0.0 else held.usd
            usd = held.usd if usd is None else usd  # counts that no price list can follow
            self.budget.settle(held, tokens, usd)
            self.meter.add(1, tokens, usd)
            outcome = {"reply": wire.to_data(reply), "failure": "", "final": True, "tokens": tokens, "usd": usd}
            self._record(key, number, role, messages, attempt, {**outcome, **marks})
            return reply
        raise AssertionError("the loop returns or raises")

    def trouble(self) -> ModelError | None:
        """Why there is no reply yet, where attempts failed and none has succeeded since."""
        return self._silent(len(self._failed), self._failed[-1]) if self._failed else None

    def _silent(self, attempts: int, reason: str) -> ModelError:
        mend = "check the key, the model's name and --base-url"
        if self.model.name.startswith("agent:"):
            mend = "run the command by hand in a folder of its own, or give it longer (--agent-seconds)"
        return ModelError(
            f"{self.model.name} gave no answer in {attempts} attempt(s)",
            reason,
            "an answer",
            f"{mend}; the run can be resumed",
        )

    def _wait(self, attempt: int, asked_s: float) -> None:
        with self._lock:
            jitter = 0.5 + self._random.random()
        wait = min(LONGEST_WAIT_S, max(asked_s, FIRST_WAIT_S * 2 ** (attempt - 1) * jitter))
        time.sleep(wait * self._patience)

    def _announce(self, key: str, tokens: int, usd: float | None) -> str:
        """Write down that a request goes out: if this process dies now, its cost is still counted."""
        number = uuid.uuid4().hex[:16]
        if self.recorder is not None:
            self.recorder.write({"sent": number, "request": key, "tokens": tokens, "usd": usd, "at": time.time()})
        return number

    def _record(
        self, key: str, number: str, role: str, messages: Sequence[Message], attempt: int, outcome: Mapping[str, object]
    ) -> None:
        if self.recorder is None:
            return
        self.recorder.write(
            {
                "id": number,
                "request": key,
                "model": self.model.name,
                "role": role,
                "attempt": attempt,
                "messages": wire.to_data(tuple(messages)),
                "at": time.time(),
                **outcome,
            }
        )
