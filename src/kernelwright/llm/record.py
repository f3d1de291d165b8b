# SPDX-License-Identifier: Apache-2.0
"""Every request and reply, one JSON line each, flushed before it is used; and what such a file can answer again."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kernelwright import wire
from kernelwright.llm.budget import Spent
from kernelwright.llm.messages import Message, ModelFailure, Reply, request_digest


class Recorder:
    """Appends to ``path``. Safe to share between threads; a line is whole on disk before ``write`` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def write(self, entry: dict[str, Any]) -> None:
        """Append one entry and make it durable."""
        line = json.dumps(entry, sort_keys=True) + "\n"
        with self._lock, self.path.open("a+b") as file:
            if file.tell() and not self._whole(file):
                line = "\n" + line  # a killed run left half a line; without this the next one would be lost with it
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def _whole(file: IO[bytes]) -> bool:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request that was brought to its end: the reply, or why there was none, and what all its attempts took."""

    reply: Reply | None
    failure: str
    attempts: int
    tokens: int
    usd: float | None


class Memory:
    """Answers requests from a record, equal requests in recorded order. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._ended: dict[str, list[Exchange]] = {}
        self._lock = threading.Lock()
        attempts: dict[str, list[dict[str, Any]]] = {}
        for entry in read_record(path):
            if "attempt" not in entry:
                continue
            key = entry["request"]
            tried = attempts.setdefault(key, [])
            tried.append(entry)
            if entry.get("reply") is not None or entry.get("final"):
                self._ended.setdefault(key, []).append(_exchange(tried))
                attempts[key] = []

    def take(self, key: str) -> Exchange | None:
        """The next recorded exchange of this request, once; None where there is none left."""
        with self._lock:
            waiting = self._ended.get(key, [])
            return waiting.pop(0) if waiting else None


def _exchange(tried: Sequence[dict[str, Any]]) -> Exchange:
    last = tried[-1]
    costs = [entry.get("usd") for entry in tried]
    return Exchange(
        reply=None if last.get("reply") is None else wire.from_data(Reply, last["reply"]),
        failure=str(last.get("failure", "")),
        attempts=len(tried),
        tokens=sum(int(entry.get("tokens", 0)) for entry in tried),
        usd=None if any(cost is None for cost in costs) else sum(float(cost) for cost in costs if cost is not None),
    )


def spent(path: Path) -> Spent:
    """What a record says was used; a request that was sent and never heard of again counts at its worst case."""
    open_requests: dict[str, dict[str, Any]] = {}
    settled: list[dict[str, Any]] = []
    seconds, began, last, overruns = 0.0, 0.0, 0.0, 0
    for entry in read_record(path):
        at = float(entry.get("at", last))
        if "session" in entry:
            seconds, began = seconds + max(0.0, last - began), at
        elif "sent" in entry:
            open_requests[entry["sent"]] = entry
        elif "attempt" in entry:
            sent = open_requests.pop(entry.get("id", ""), None)
            overruns += sent is not None and int(entry.get("tokens", 0)) > int(sent.get("tokens", 0))
            settled.append(entry)
        last = at
    settled += open_requests.values()
    costs = [entry.get("usd") for entry in settled]
    known = [float(cost) for cost in costs if cost is not None]
    return Spent(
        usd=sum(known) if len(known) == len(costs) else None,
        tokens=sum(int(entry.get("tokens", 0)) for entry in settled),
        requests=len(settled),
        seconds=seconds + max(0.0, last - began),
        overruns=overruns,
    )


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
