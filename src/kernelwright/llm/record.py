# SPDX-License-Identifier: Apache-2.0
"""Every request and reply, one JSON line each, flushed before it is used; and what such a file can answer again."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kernelwright import wire
from kernelwright.llm.budget import Spent
from kernelwright.llm.messages import Message, Reply


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
class Unheard:
    """A request that the record does not answer, beside the first recorded one that nobody made again, of its role
    (of its kind, where there is none of the role: another coder's)."""

    number: int
    """Its seed: of a program's request the number of the ask."""
    role: str
    messages: tuple[Message, ...]
    recorded_role: str
    """Empty: every recorded request of that kind was made again."""
    recorded: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request that was brought to its end: the reply, or why there was none, and what all its attempts took."""

    reply: Reply | None
    failure: str
    attempts: int
    tokens: int
    usd: float | None
    place: int = 0
    """Its place among the exchanges of equal requests."""
    depended_on: bool = True
    """Whether what came after took it as given: its model answered a request that was first sent later. A failure of
    which that is not so may be asked anew, and nothing that was paid for is lost."""


class Memory:
    """Answers requests from a record, equal requests in recorded order. Safe to share between threads.

    A request that was asked anew after it had failed has one exchange, its last, which took what all of them took."""

    def __init__(self, path: Path) -> None:
        self._ended: dict[str, list[Exchange]] = {}
        self._lock = threading.Lock()
        self._path = path
        self._missed: list[tuple[int, str, tuple[Message, ...]]] = []
        self._read(path)

    def _read(self, path: Path) -> None:
        attempts: dict[str, list[dict[str, Any]]] = {}
        sent: dict[str, int] = {}
        answered: dict[str, int] = {}
        """Model to the line at which the latest of its answered requests was first sent."""
        failed: list[tuple[str, int, int, str]] = []
        """(request, place among its exchanges, line, model) of each."""
        for line, entry in enumerate(read_record(path)):
            if "sent" in entry:
                sent[entry["sent"]] = line
            if "attempt" not in entry:
                continue
            key, model = entry["request"], str(entry.get("model", ""))
            tried = attempts.setdefault(key, [])
            tried.append(entry)
            if entry.get("reply") is None and not entry.get("final"):
                continue
            place = self._file(key, _exchange(tried), tried[0].get("anew"))
            if entry.get("reply") is None:
                failed.append((key, place, line, model))
            else:
                answered[model] = max(answered.get(model, 0), sent.get(tried[0].get("id", ""), line))
            attempts[key] = []
        for key, place, line, model in failed:
            if self._ended[key][place].reply is None and answered.get(model, 0) < line:
                self._ended[key][place] = dataclasses.replace(self._ended[key][place], depended_on=False)

    def _file(self, key: str, found: Exchange, anew: int | None) -> int:
        """Where an exchange is put: behind those of its request, or in place of the failure that it was asked for."""
        exchanges = self._ended.setdefault(key, [])
        if anew is None or anew >= len(exchanges):
            exchanges.append(dataclasses.replace(found, place=len(exchanges)))
            return len(exchanges) - 1
        before = exchanges[anew]
        exchanges[anew] = dataclasses.replace(
            found,
            place=anew,
            attempts=before.attempts + found.attempts,
            tokens=before.tokens + found.tokens,
            usd=None if before.usd is None or found.usd is None else before.usd + found.usd,
        )
        return anew

    def take(self, key: str) -> Exchange | None:
        """The next recorded exchange of this request, once; None where there is none left."""
        with self._lock:
            waiting = self._ended.get(key, [])
            return waiting.pop(0) if waiting else None

    def missed(self, number: int, role: str, messages: Sequence[Message]) -> None:
        """Remember a request that was not in the record."""
        with self._lock:
            self._missed.append((number, role, tuple(messages)))

    def unheard(self) -> list[Unheard]:
        """Requests that were not in the record, in the order of their numbers, each beside what was asked there."""
        with self._lock:
            open_keys = {key for key, waiting in self._ended.items() if waiting}
            missed = sorted(self._missed, key=lambda one: one[:2])
        left = {
            entry["request"]: (str(entry["role"]), tuple(wire.from_data(Message, said) for said in entry["messages"]))
            for entry in read_record(self._path)
            if entry.get("request") in open_keys and "attempt" in entry
        }
        found = []
        for number, role, messages in missed:
            same = [key for key, (by, _) in left.items() if by == role]
            alike = [key for key, (by, _) in left.items() if by.partition(".")[0] == role.partition(".")[0]]
            by, recorded = left.pop([*same, *alike][0]) if alike else ("", ())
            found.append(Unheard(number=number, role=role, messages=messages, recorded_role=by, recorded=recorded))
        return found


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
