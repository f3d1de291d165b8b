# SPDX-License-Identifier: Apache-2.0
"""What calls leave in parameters and buffers, read so that nothing is left to compute for whoever looks."""

from __future__ import annotations

import torch

from kernelwright.judge import numerics
from kernelwright.judge.child import Program

FLOOR_US, SLACK = 1000.0, 3.0
"""CPU time of a first look, and how many times that of a second one, that an honest program may use: its code is in no
cache and its pages are fresh (110 to 570 us of it were seen where OpenMP threads had just worked)."""
LOOKS = 3
MANY, MANY_US, MANY_BYTES = 64, 20_000.0, 1 << 29
"""Calls, eager's time for them, and what they take in memory, after which somebody looks for what they left to do: the
look that FLOOR_US allows is half of a call of 2 ms. A program that left as much to it passed, for a gain of 1.9, where
the race was short."""


def read(program: Program) -> tuple[list[tuple[str, torch.Tensor]], str]:
    """The state as calls left it, and how it shows that calls did not; empty where they did.

    A program owns what runs when its state is read. So the inputs are gone while it is (they come back afterwards), and
    a first look may cost what a second does: who has kept copies works then. On a device that work is not seen.
    """
    program.window([], keep=True)  # threads that still spin for work come to rest; results that are alive stay so
    given = [] if program.buffers is None else [leaf for leaves in program.buffers.inputs for leaf in leaves]
    kept = [leaf.clone() for leaf in given]
    for leaf in given:
        numerics.poison_(leaf)
    if program.device != "cpu":
        torch.cuda.synchronize(program.device)
    used: list[float] = []
    found: list[tuple[str, torch.Tensor]] = []
    for look in range(LOOKS):
        began = program.clock(program.pid)
        found = program.read_state(copied=not look) or found
        used.append((program.clock(program.pid) - began) / 1e3)
    for leaf, value in zip(given, kept, strict=True):
        leaf.copy_(value)
    first, again = used[0], min(used[1:])
    late = program.device == "cpu" and first > FLOOR_US + SLACK * again
    words = f"calls leave work to whoever reads parameters and buffers: {first:.0f} us at first, then {again:.0f}"
    return found, words if late else ""


def many(call_us: float, call_bytes: int) -> int:
    """So many calls, that take eager ``call_us`` each."""
    return max(1, min(MANY, MANY_BYTES // max(call_bytes, 1), int(MANY_US / max(call_us, 1.0))))


def of_many(program: Program, calls: int, *, grad: bool) -> str:
    """How it shows, twice, that ``calls`` calls on what is bound leave work behind; empty where they do not."""
    found = ""
    for _ in range(2):
        program.window(list(range(calls)), grad=grad)
        _, found = read(program)
        if not found:
            break
    return found
