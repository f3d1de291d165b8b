# SPDX-License-Identifier: Apache-2.0
"""What calls leave in parameters and buffers, read so that nothing is left to compute for whoever looks."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping

import torch

from kernelwright.judge import load, numerics
from kernelwright.judge.entrant import Entrant
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.program import Program

FLOOR_US, SLACK = 1000.0, 3.0
"""CPU time of a first look, and how many times that of a second one, that an honest program may use: its code is in no
cache and its pages are fresh (110 to 570 us of it were seen where OpenMP threads had just worked). A second look that
costs more than eager's does counts as eager's: one that does as much at each of three passed, for a gain of 9."""
ASLEEP_US = 5000.0
"""The same, besides, of the time in which it neither runs nor waits for a CPU: others of its own may work then."""
LOOKS = 3
CHANCES, PAUSE_SECONDS = 4, 0.05
"""So often in a row is work seen that calls left to a look, and how long the judge waits before the second one; three
times as long before each after it. A host that takes virtual CPUs away looks like it for some tens of milliseconds: of
2,476 judgements of honest programs one was refused for two looks in a row on 128 busy CPUs, and on an idle machine of
two a norm against itself for three (9.8 ms)."""
MANY, MANY_US, MANY_BYTES = 64, 20_000.0, 1 << 29
"""Calls, eager's time for them, and what they take in memory, after which somebody looks for what they left to do: the
look that FLOOR_US allows is half of a call of 2 ms. A program that left as much to it passed, for a gain of 1.9, where
the race was short."""


def usual(entrants: Mapping[str, Entrant]) -> float:
    """CPU time of a look at eager's state, in microseconds, measured once; endless where there is no eager to ask.

    Nor where it has ended: that is not the candidate's fault, and who races it next finds out and starts it anew.
    """
    eager = entrants.get("eager")
    if eager is None or eager.program is None:
        return math.inf
    if not eager.look_us:
        try:
            eager.look_us = max(1.0, min(_look(eager.program)[0] for _ in range(LOOKS)))
        except ChildFailure:
            return math.inf
    return eager.look_us


def read(program: Program, usual: float = math.inf) -> tuple[list[tuple[str, torch.Tensor]], str]:
    """The state as calls left it, and how it shows that calls did not; empty where they did.

    A program owns what runs when its state is read. So the inputs are gone while it is (they come back afterwards), and
    a first look may cost what a second does, but not over what is ``usual``: who has kept copies works then. On a
    device that work is not seen.
    """
    program.window([], keep=True)  # threads that still spin for work come to rest; results that are alive stay so
    given = [] if program.buffers is None else [leaf for leaves in program.buffers.inputs for leaf in leaves]
    kept = [leaf.clone() for leaf in given]
    for leaf in given:
        numerics.poison_(leaf)
    if program.device != "cpu":
        torch.cuda.synchronize(program.device)
    first, idle = _look(program)
    found = program.said_state()  # not in the look's time: 256 MB of it take the judge longer than ASLEEP_US
    again = min(usual, *(_look(program)[0] for _ in range(1, LOOKS)))
    for leaf, value in zip(given, kept, strict=True):
        leaf.copy_(value)
    if program.device != "cpu":
        return found, ""
    if first > FLOOR_US + SLACK * again:
        return found, f"calls leave work to whoever reads parameters and buffers: {first:.0f} us, usually {again:.0f}"
    if idle > ASLEEP_US:
        return found, f"calls leave work to whoever reads parameters and buffers: others worked for {idle:.0f} us"
    return found, ""


def _look(program: Program) -> tuple[float, float]:
    """CPU time that a look used and time in which the program neither ran nor waited, nor the judge waited, both in
    microseconds."""
    waited, before, began = _waited(program), program.clock(program.pid), program.clock(0)
    program.say_state()
    elapsed, used = (program.clock(0) - began) / 1e3, (program.clock(program.pid) - before) / 1e3
    return used, elapsed - used - (_waited(program) - waited)


def _waited(program: Program) -> float:
    return load.waited_us(program.pid, first=True) + load.waited_us(os.getpid())


def rest(looks: int) -> None:
    """Wait before one looks again, after so many looks in vain. The program stands still meanwhile."""
    if looks:
        time.sleep(PAUSE_SECONDS * 3.0 ** (looks - 1))


def many(call_us: float, call_bytes: int) -> int:
    """So many calls, that take eager ``call_us`` each."""
    return max(1, min(MANY, MANY_BYTES // max(call_bytes, 1), int(MANY_US / max(call_us, 1.0))))


def of_many(program: Program, calls: int, usual: float = math.inf, *, grad: bool) -> str:
    """How it shows, CHANCES times, that ``calls`` calls on what is bound leave work behind; empty where they do not."""
    found = ""
    for looks in range(CHANCES):
        rest(looks)
        program.window(list(range(calls)), grad=grad)
        _, found = read(program, usual)
        if not found:
            break
    return found
