# SPDX-License-Identifier: Apache-2.0
"""Servers that only stream: the pieces are put together as they arrive, below the client library.

The library builds an object for each piece, 0.3 ms apiece while the judge is timing beside it; here a piece costs a
few microseconds, and the library sees one whole answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
"""Fields of a piece that are joined; the others are kept as they came last."""


MIDWAY = "x-kernelwright-midway"
"""Header of an answer that says that a part of the text had come when the server failed."""


class Broken(Exception):
    """A stream that is not one, or ended before it said that it did."""


class Joined:
    """A completion in the making."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {"object": "chat.completion"}
        self._texts: dict[str, list[str]] = {}
        self._finish: str | None = None
        self.failed: dict[str, Any] | None = None
        """What the server sent in place of a piece when it failed midway."""
        self.done = False

    @property
    def begun(self) -> bool:
        """Whether a part of the text has come."""
        return bool(self._texts)

    def take(self, line: str) -> None:
        """One line of the stream. Raises ``Broken`` for data that is no JSON object."""
        if not line.startswith("data:"):
            return
        data = line[5:].strip()
        if data == "[DONE]":
            self.done = True
            return
        try:
            event = json.loads(data)
        except ValueError as error:
            raise Broken(f"a piece of the stream is not JSON: {data}") from error
        if not isinstance(event, dict):
            raise Broken(f"a piece of the stream is no object: {data}")
        if event.get("error"):
            self.failed = event
            return
        self._head |= {name: event[name] for name in ("id", "created", "model", "usage") if event.get(name)}
        for choice in event.get("choices") or ():
            self._piece(choice)

    def _piece(self, choice: dict[str, Any]) -> None:
        if choice.get("index"):
            return
        self._finish = choice.get("finish_reason") or self._finish
        for name, value in (choice.get("delta") or {}).items():
            if name in TEXTS and value:
                self._texts.setdefault(name, []).append(value if isinstance(value, str) else _said(value))

    def answer(self) -> tuple[int, dict[str, Any]]:
        """(status, body) as a server that does not stream would have sent them. Raises ``Broken`` for half of one."""
        if self.failed is not None:
            return 500, self.failed
        if not self.done and self._finish is None:
            raise Broken("the stream ended before the answer did")
        message = {name: "".join(pieces) for name, pieces in self._texts.items()}
        choice = {"index": 0, "finish_reason": self._finish or "stop", "message": {"role": "assistant", **message}}
        return 200, {"id": "stream", "created": 0, "model": "", **self._head, "choices": [choice]}


async def joined(lines: AsyncIterator[str]) -> Joined:
    """All of a stream."""
    made = Joined()
    async for line in lines:
        made.take(line)
        if made.done or made.failed is not None:
            break
    return made


def asked(body: bytes) -> bytes:
    """The same request for a stream that ends with what it took."""
    return json.dumps(json.loads(body) | {"stream": True, "stream_options": {"include_usage": True}}).encode()


def _said(parts: Any) -> str:
    """Text given as a list of parts."""
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "".join(text for text in texts if isinstance(text, str))
