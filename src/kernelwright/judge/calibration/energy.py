# SPDX-License-Identifier: Apache-2.0
"""Energy and power from the system's own counters: NVML of an NVIDIA device, RAPL of a processor; nothing is set."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright import energy
from kernelwright.judge import measure, nvml
from kernelwright.judge.calibration.facts import fact, missing
from kernelwright.machine import Fact

SECONDS = 2.0
SETTLE, TICK, BETWEEN = 0.25, 0.12, 10e-3
"""Seconds of load before a move of the counter counts, from one move to the next, and of calls given at a time."""
NAMES = (
    ("power.idle_W", "W"), ("power.copy_W", "W"), ("power.gemm_W", "W"),
    ("energy.per_byte_pJ", "pJ/B"), ("energy.per_flop_pJ", "pJ/FLOP"),
)  # fmt: skip


class Meter(nvml.Device):
    """The energy counter of one device. Raises OSError where there is none."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.joules()


def reading(device: str) -> dict[str, Any]:
    """{"joules": the device's energy counter now, "note"} and a processor's "zones", as ``kernelwright.energy`` reads
    them; joules None where there is no counter, and why."""
    try:
        if device != "cpu":
            return {"joules": Meter(device).joules(), "note": ""}
        zones = energy.packages()
        return {"joules": sum(zone["joules"] for zone in zones), "note": "", "zones": zones}
    except OSError as error:
        return {"joules": None, "note": str(error)}


def absent(why: str) -> list[Fact]:
    """The facts of this file where there is no counter."""
    return [missing(name, unit, why) for name, unit in NAMES]


class Watch(threading.Thread):
    """Notes when a counter moves, beside the work: a reading takes milliseconds, in which the device must not rest."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(daemon=True)
        self._meter = meter
        self._ended = threading.Event()
        self.moves: list[tuple[int, float]] = []
        """(nanoseconds, joules) where it stood at first, then of each move."""

    def run(self) -> None:
        """Read until told to stop; a counter that fails gives no more moves."""
        try:
            while not self._ended.is_set():
                joules = self._meter.joules()
                if not self.moves or joules != self.moves[-1][1]:
                    self.moves.append((measure.clock(), joules))
        except OSError:
            return

    def stop(self) -> None:
        """End the reading."""
        self._ended.set()
        self.join()


def between(moves: Sequence[tuple[int, float]], begun: int) -> tuple[float, float]:
    """(joules, seconds) between the first move at ``begun`` nanoseconds or later and the last. Raises OSError where
    there are not two."""
    known = [move for move in moves[1:] if move[0] >= begun]  # the first is no move: it stood there before
    if len(known) < 2:
        raise OSError("the energy counter did not move under load")
    return known[-1][1] - known[0][1], (known[-1][0] - known[0][0]) * 1e-9


def spend(
    meter: Meter, device: str, action: Callable[[], object], seconds: float = SECONDS, settle: float = SETTLE
) -> tuple[float, float, float]:
    """(joules, seconds, calls) of ``action`` repeated without a pause, between two moves of the driver's counter.

    The counter stands still between its moves, 100 ms apart on an H200: read at any other moment, a window of half a
    second would be wrong by up to a fifth. ``settle`` seconds pass first, so that power and clocks are those of the
    load. Raises OSError where the counter does not move.
    """
    action()
    torch.cuda.synchronize(device)
    watch, start = Watch(meter), measure.clock()
    watch.start()
    try:
        calls = _repeat(device, action, start, settle + seconds + TICK)
    finally:
        watch.stop()
    rate = calls / ((measure.clock() - start) * 1e-9)
    joules, length = between(watch.moves, start + round(settle * 1e9))
    return joules, length, rate * length


def _repeat(device: str, action: Callable[[], object], start: int, seconds: float) -> int:
    """How often ``action`` ran; the device always has the next calls before it has done the last."""
    stream, calls, together = torch.cuda.current_stream(device), 0, 1
    queued = stream.record_event()
    while (took := (measure.clock() - start) * 1e-9) < seconds:
        if calls:
            together = max(1, min(4096, round(BETWEEN * calls / took)))
        for _ in range(together):
            action()
        calls += together
        queued.synchronize()  # the calls before these
        queued = stream.record_event()
    torch.cuda.synchronize(device)
    return calls


def step(device: str) -> list[Fact]:
    """Idle power, power under a copy and a product, and energy per byte and per FLOP above idle."""
    try:
        return _measured(Meter(device), device)
    except OSError as error:
        return absent(str(error))


def _measured(meter: Meter, device: str) -> list[Fact]:
    time.sleep(1.0)
    idle = [meter.watts() for _ in range(3)]
    base = min(idle)
    count = 1 << 28
    one, two = torch.ones(count, device=device), torch.zeros(count, device=device)
    copied, copying, copies = spend(meter, device, lambda: two.copy_(one))
    side = 8192
    left = torch.randn(side, side, device=device).bfloat16()
    spent, working, products = spend(meter, device, lambda: torch.mm(left, left))
    note = "energy above idle, driver's counter over two seconds"
    moved, done = 8.0 * count * copies, 2.0 * side**3 * products
    return [
        fact("power.idle_W", "W", idle, "driver's reading after one second of rest"),
        fact("power.copy_W", "W", [copied / copying], "large copy"),
        fact("power.gemm_W", "W", [spent / working], "bfloat16 product of 8192 cubed, random data"),
        fact("energy.per_byte_pJ", "pJ/B", [(copied - base * copying) / moved * 1e12], note),
        fact("energy.per_flop_pJ", "pJ/FLOP", [(spent - base * working) / done * 1e12], note + ", bfloat16"),
    ]
