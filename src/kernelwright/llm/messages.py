# SPDX-License-Identifier: Apache-2.0
"""The nouns of a conversation, and the protocol a model speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kernelwright import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn. ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back. Counts are the provider's; ``usd`` None means the price of this model is not known."""

    text: str
    model: str
    input_tokens: int
    output_tokens: int
    usd: float | None
    finish: str
    """``stop``, ``length`` (cut off), or the provider's own word."""
    thoughts: str = ""
    """Reasoning that came beside the text, in a field of its own."""
    counted: bool = True
    """False: the server did not say what it took, and the counts above are no counts."""


class ModelFailure(Exception):
    """One request failed. ``temporary`` failures are worth another try, after ``wait_s`` if the server said so.

    ``billed``: the reply was on its way, or may have been, and was lost: all of it may have to be paid for."""

    def __init__(self, reason: str, temporary: bool, wait_s: float = 0.0, *, billed: bool = False) -> None:
        super().__init__(reason, temporary, wait_s, billed)
        self.reason, self.temporary, self.wait_s, self.billed = reason, temporary, wait_s, billed


class Model(Protocol):
    """A language model. Safe to share between threads. One call is one request on the wire: no hidden retries."""

    name: str

    def complete(self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int) -> Reply:
        """The model's answer. Raises ``ModelFailure``."""
        ...

    def price(self, input_tokens: int, output_tokens: int) -> float | None:
        """US dollars for so many tokens, or None where the price is not known."""
        ...


def request_digest(model: str, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int) -> str:
    """Identity of a request by everything that is sent: the key under which its reply is recorded."""
    return wire.digest(model, tuple(messages), max_tokens, temperature, seed)


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Upper estimate of the input tokens: one per two bytes plus framing (source code runs at 2.5 to 4 bytes each)."""
    return sum(len(message.text.encode()) // 2 + 16 for message in messages)
