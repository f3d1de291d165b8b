# SPDX-License-Identifier: Apache-2.0
"""Records between the judge and a confined program: bounded, typed, checked; nothing received is ever evaluated.

One datagram per record on a SOCK_SEQPACKET pair. Control records are JSON objects; the three of a timed window
are fixed structs with a number drawn by the judge, because parsing must cost microseconds.
"""

from __future__ import annotations

import array
import json
import select
import socket
import struct
from collections.abc import Collection, Sequence
from typing import Any

LARGEST = 128 << 10
TEXT = 4000
MOST_CALLS = 16384
MOST_FDS = 4
_HEAD = struct.Struct("=cQ")
_GO = struct.Struct("=cQBI")
_DELIVERED = struct.Struct("=cQd")
GO, DONE, DELIVER, KEEP, TAKEN, TAKEN_KEEP, DELIVERED = b"G", b"D", b"V", b"K", b"T", b"U", b"W"
"""``KEEP``: deliver, and let the results live on beside those of the next window. ``TAKEN``, and ``TAKEN_KEEP``: the
same where the judge has read the results itself, so nothing is to be copied."""


def encode(record: dict[str, Any]) -> bytes:
    """A JSON record as bytes; texts are the writer's to bound. Raises ValueError when it is too large."""
    body = json.dumps(record).encode()
    if len(body) > LARGEST:
        raise ValueError(f"a record of {len(body)} bytes")
    return body


def decode(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``. Raises ValueError for anything else."""
    try:
        record = json.loads(body)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


def send(channel: socket.socket, body: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send one record, with open files. Raises OSError when the other side is gone."""
    if descriptors:
        socket.send_fds(channel, [body], list(descriptors))
    else:
        channel.send(body)


def readable(channel: socket.socket, seconds: float) -> bool:
    """Whether something is there to be received within ``seconds``."""
    return bool(select.select([channel], [], [], seconds)[0])


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """One record and the files that came with it; empty bytes at the end."""
    body, descriptors, _, _ = socket.recv_fds(channel, LARGEST + 1, MOST_FDS)
    return body, list(descriptors)


def go(
    number: int, order: Sequence[int], *, grad: bool, at_once: bool = False, looked_at: Collection[int] = ()
) -> bytes:
    """Start a window: run these sets, and copy each result before the next call is made where that is wanted.
    ``looked_at``: places in the order; see ``amid``."""
    said = [~index if place in looked_at else index for place, index in enumerate(order)]
    return _GO.pack(GO, number, grad + 2 * at_once, len(order)) + array.array("i", said).tobytes()


def at_once(body: bytes) -> bool:
    """Whether a go record wants each result copied before the next call."""
    return bool(_GO.unpack_from(body)[2] & 2)


def parse_go(body: bytes) -> tuple[int, bool, list[int]]:
    """(number, grad, order) of a go record."""
    _, number, manner, count = _GO.unpack_from(body)
    said = _said(body)
    if len(said) != count:
        raise ValueError("a go record of the wrong length")
    return number, bool(manner & 1), [~index if index < 0 else index for index in said]


def looked_at(body: bytes) -> list[int]:
    """The places in the order of a go record that are looked at."""
    return [place for place, index in enumerate(_said(body)) if index < 0]


def _said(body: bytes) -> array.array[int]:
    order = array.array("i")
    order.frombytes(body[_GO.size :])
    return order


def mark(kind: bytes, number: int) -> bytes:
    """A DONE record, or one that asks for delivery."""
    return _HEAD.pack(kind, number)


def asking(number: int, *, taken: bool, keep: bool) -> bytes:
    """The record that asks for delivery; see ``KEEP``."""
    return mark((TAKEN_KEEP if keep else TAKEN) if taken else (KEEP if keep else DELIVER), number)


def parse_mark(body: bytes) -> int:
    """The number of such a record."""
    return int(_HEAD.unpack(body)[1])


def delivered(number: int, own_us: float, aliases: Sequence[tuple[int, int]]) -> bytes:
    """End of a window: the program's own claim of its time, and which outputs share storage with which inputs."""
    pairs = array.array("i", [value for pair in aliases for value in pair])
    return _DELIVERED.pack(DELIVERED, number, own_us) + pairs.tobytes()


def parse_delivered(body: bytes) -> tuple[int, float, tuple[tuple[int, int], ...]]:
    """(number, own time in microseconds, alias pairs). Raises ValueError or struct.error when malformed."""
    _, number, own_us = _DELIVERED.unpack_from(body)
    pairs = array.array("i")
    pairs.frombytes(body[_DELIVERED.size :])
    if len(pairs) % 2:
        raise ValueError("half an alias pair")
    return number, own_us, tuple(zip(pairs[::2], pairs[1::2], strict=True))
