# SPDX-License-Identifier: Apache-2.0
"""Every request and reply, one JSON line each, flushed before it is used; and a model that answers from such a file."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelwright import wire
from kernelwright.llm.messages import Message, ModelFailure, Reply, request_digest


class Recorder:
    """Appends to ``path``. Safe to share between threads; a line is whole on disk before ``write`` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def write(self, entry: dict[str, Any]) -> None:
        """Append one entry and make it durable."""
        line = json.dumps(entry, sort_keys=True) + "\n"
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def read_record(path: Path) -> Iterator[dict[str, Any]]:
    """The entries in order; a last line cut off by a crash is passed over."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue


class Replayer:
    """Answers each request with the reply recorded for exactly that request; equal requests in recorded order.

    Raises ``ModelFailure`` (permanent) for a request that was never made: the run would no longer be the same.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._replies: dict[str, list[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        for entry in read_record(path):
            if entry.get("reply") is not None:
                self._replies.setdefault(entry["request"], []).append(entry["reply"])

    def complete(self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int) -> Reply:
        """The recorded reply."""
        key = request_digest(self.name, messages, max_tokens=max_tokens, temperature=temperature, seed=seed)
        with self._lock:
            waiting = self._replies.get(key, [])
            if not waiting:
                raise ModelFailure(f"no recorded reply for request {key}", temporary=False)
            return wire.from_data(Reply, waiting.pop(0))

    def price(self, input_tokens: int, output_tokens: int) -> float | None:
        """A replay costs nothing."""
        return 0.0
