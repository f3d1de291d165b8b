# SPDX-License-Identifier: Apache-2.0
"""A model with its manners: budget before the wire, retries with backoff, a record of everything said."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence

from kernelwright import wire
from kernelwright.errors import ModelError
from kernelwright.llm.budget import Budget
from kernelwright.llm.messages import Message, Model, ModelFailure, Reply, estimate_tokens, request_digest
from kernelwright.llm.record import Recorder

ATTEMPTS = 6
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0


class Speaker:
    """Safe to share between threads. Each attempt is one request against the budget, failed ones too."""

    def __init__(
        self, model: Model, budget: Budget, recorder: Recorder | None = None, *, patience: float = 1.0
    ) -> None:
        self.model, self.budget, self.recorder = model, budget, recorder
        self._patience = patience
        self._random = random.Random(0)
        self._lock = threading.Lock()

    def say(
        self, messages: Sequence[Message], *, role: str, max_tokens: int = 8192, temperature: float = 0.7, seed: int = 0
    ) -> Reply:
        """The reply to ``messages``. ``role`` names the speaker in the record.

        Raises ``BudgetSpent`` before a request that could overrun a limit, ``ModelError`` when the model cannot
        be used or fails ``ATTEMPTS`` times."""
        key = request_digest(self.model.name, messages, max_tokens=max_tokens, temperature=temperature, seed=seed)
        input_tokens = estimate_tokens(messages)
        for attempt in range(1, ATTEMPTS + 1):
            held = self.budget.reserve(
                input_tokens + max_tokens, self.model.price(input_tokens, max_tokens)
            )
            try:
                reply = self.model.complete(messages, max_tokens=max_tokens, temperature=temperature, seed=seed)
            except ModelFailure as failure:
                # A request that failed may still have been billed for what was sent; the budget assumes it was.
                self.budget.settle(held, input_tokens, self.model.price(input_tokens, 0))
                self._record(key, role, messages, attempt, None, failure.reason)
                if not failure.temporary or attempt == ATTEMPTS:
                    raise ModelError(
                        f"{self.model.name} gave no answer in {attempt} attempt(s)",
                        failure.reason,
                        "an answer",
                        "check the key, the model's name and --base-url; the run can be resumed",
                    ) from failure
                self._wait(attempt, failure.wait_s)
                continue
            except BaseException:
                self.budget.settle(held, input_tokens + max_tokens, held.usd)
                raise
            self.budget.settle(held, reply.input_tokens + reply.output_tokens, reply.usd)
            self._record(key, role, messages, attempt, reply, "")
            return reply
        raise AssertionError("the loop returns or raises")

    def _wait(self, attempt: int, asked_s: float) -> None:
        with self._lock:
            jitter = 0.5 + self._random.random()
        wait = min(LONGEST_WAIT_S, max(asked_s, FIRST_WAIT_S * 2 ** (attempt - 1) * jitter))
        time.sleep(wait * self._patience)

    def _record(
        self, key: str, role: str, messages: Sequence[Message], attempt: int, reply: Reply | None, failure: str
    ) -> None:
        if self.recorder is None:
            return
        self.recorder.write(
            {
                "request": key,
                "model": self.model.name,
                "role": role,
                "attempt": attempt,
                "messages": wire.to_data(tuple(messages)),
                "reply": None if reply is None else wire.to_data(reply),
                "failure": failure,
                "at": time.time(),
            }
        )
