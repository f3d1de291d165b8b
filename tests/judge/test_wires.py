# SPDX-License-Identifier: Apache-2.0
"""Records keep their meaning, and malformed ones are refused."""

from __future__ import annotations

import struct

import pytest

from kernelwright.judge import wires


@pytest.mark.parametrize("order", [[], [3], list(range(5000))])
def test_a_go_record_keeps_number_mode_and_order(order: list[int]) -> None:
    """What the judge packs is what the runner reads."""
    assert (2**62 + 1, True, order) == wires.parse_go(wires.go(2**62 + 1, order, grad=True))
    places = [place for place in (0, 2, 77) if place < len(order)]
    said = wires.go(2**62 + 1, order, grad=True, looked_at=places)
    assert ((2**62 + 1, True, order), places) == (wires.parse_go(said), wires.looked_at(said))
    assert not wires.at_once(said) and wires.at_once(wires.go(1, order, grad=False, at_once=True))


def test_a_delivered_record_keeps_time_and_aliases() -> None:
    """Claims of the program, as data."""
    assert (5, 1.25, ((0, 1), (2, 0))) == wires.parse_delivered(wires.delivered(5, 1.25, [(0, 1), (2, 0)]))


@pytest.mark.parametrize("body", [b"", b"W", b"W" + bytes(15), b"W" + bytes(20), b"W" + bytes(17)])
def test_a_malformed_delivered_record_is_refused(body: bytes) -> None:
    """Too short, or half a pair."""
    with pytest.raises((struct.error, ValueError)):
        wires.parse_delivered(body)


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"\xff", b"1"])
def test_only_json_objects_are_records(body: bytes) -> None:
    """Nothing else is decoded."""
    with pytest.raises(ValueError):
        wires.decode(body)


def test_a_go_record_of_the_wrong_length_is_refused() -> None:
    """The count in the head must fit the body."""
    with pytest.raises(ValueError, match="wrong length"):
        wires.parse_go(wires.go(1, [1, 2], grad=False)[:-4])


def test_a_record_too_large_is_refused() -> None:
    """Before it is sent, not by the socket."""
    with pytest.raises(ValueError, match="a record of"):
        wires.encode({"text": "x" * wires.LARGEST})
