# SPDX-License-Identifier: Apache-2.0
"""A request, a speaker on the scripted server, and a model with a price."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelwright.llm import Budget, Limits, Message, ModelFailure, Recorder, Reply, Speaker
from kernelwright.model_server import ScriptedServer

ASK = (Message(role="system", text="You write kernels."), Message(role="user", text="A faster relu, please."))
CODE = "class ModelNew:\n    pass"


def speaker(server: ScriptedServer, limits: Limits, path: Path | None = None, fault: str = "") -> Speaker:
    """A speaker on the scripted server that does not really wait between attempts. It gives up on an answer after a
    second where the server hangs alone: on a busy machine an honest one was not there by then."""
    from kernelwright.llm.provider import ProviderModel

    model = ProviderModel(
        "local:scripted", key=None, base_url=server.base_url, timeout_s=1.0 if fault == "hang" else 30.0
    )
    return Speaker(model, Budget(limits), Recorder(path) if path else None, patience=0.0)


class Priced:
    """A model that costs a dollar per thousand tokens and fails when told to."""

    name = "test:priced"

    def __init__(self, *outcomes: str) -> None:
        self.outcomes, self.calls = list(outcomes), 0

    def complete(self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int) -> Reply:
        """The next outcome: "ok" answers in full length, anything else is a failure of that name."""
        self.calls += 1
        outcome = self.outcomes.pop(0) if self.outcomes else "ok"
        if outcome != "ok":
            raise ModelFailure(outcome, temporary=outcome == "busy")
        usd = self.price(10, max_tokens)
        return Reply(text="x", model=self.name, input_tokens=10, output_tokens=max_tokens, usd=usd, finish="length")

    def price(self, input_tokens: int, output_tokens: int) -> float | None:
        """A dollar per thousand tokens."""
        return (input_tokens + output_tokens) / 1000
