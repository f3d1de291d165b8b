# SPDX-License-Identifier: Apache-2.0
"""Energy and power from the system's own counters: NVML of an NVIDIA device, RAPL of a processor; nothing is set."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from kernelwright.judge import measure, nvml
from kernelwright.judge.calibration.facts import fact, missing
from kernelwright.machine import Fact

SECONDS = 2.0
SETTLE, BETWEEN, PATIENCE = 0.25, 4e-3, 1.0
"""Seconds of load before the first move of the counter counts, between two looks at it, and without one at most."""
NAMES = (
    ("power.idle_W", "W"), ("power.copy_W", "W"), ("power.gemm_W", "W"),
    ("energy.per_byte_pJ", "pJ/B"), ("energy.per_flop_pJ", "pJ/FLOP"),
)  # fmt: skip


class Meter(nvml.Device):
    """The energy counter of one device. Raises OSError where there is none."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.joules()


RAPL = Path("/sys/class/powercap")


def processor_joules(folder: Path = RAPL) -> float:
    """Energy of the processor packages since an unknown moment. Raises OSError where there is no readable counter."""
    zones = sorted(folder.glob("intel-rapl:[0-9]"))
    if not zones:
        raise OSError("there is no RAPL energy counter")
    try:
        return sum(int((zone / "energy_uj").read_text()) for zone in zones) / 1e6
    except PermissionError as error:
        raise OSError("the RAPL energy counter is readable by root alone") from error


def reading(device: str) -> dict[str, float | str | None]:
    """{"joules": the device's energy counter now, "note"}; None where there is none, and why."""
    try:
        return {"joules": processor_joules() if device == "cpu" else Meter(device).joules(), "note": ""}
    except OSError as error:
        return {"joules": None, "note": str(error)}


def absent(why: str) -> list[Fact]:
    """The facts of this file where there is no counter."""
    return [missing(name, unit, why) for name, unit in NAMES]


def spend(
    meter: Meter, device: str, action: Callable[[], object], seconds: float = SECONDS, settle: float = SETTLE
) -> tuple[float, float, int]:
    """(joules, seconds, calls) of ``action`` repeated without a pause, between two moves of the driver's counter.

    The counter stands still between its moves, 100 ms apart on an H200: read at any other moment, a window of half a
    second would be wrong by up to a fifth. ``settle`` seconds pass first, so that power and clocks are those of the
    load. A counter that has not moved ``PATIENCE`` seconds after it should is read as it stands.
    """
    action()
    torch.cuda.synchronize(device)
    start = measure.clock()
    action()
    torch.cuda.synchronize(device)
    together = max(1, min(4096, round(BETWEEN * 1e9 / max(1, measure.clock() - start))))
    calls = 0

    def moved(after: float) -> tuple[float, int, int]:
        """Joules, nanoseconds and calls so far at the counter's first move ``after`` seconds from now or later."""
        nonlocal calls
        began, last = measure.clock(), meter.joules()
        while True:
            for _ in range(together):
                action()
            torch.cuda.synchronize(device)
            calls += together
            now, joules = measure.clock(), meter.joules()
            waited = (now - began) * 1e-9 - after
            if waited >= 0 and (joules != last or waited > PATIENCE):
                return joules, now, calls
            last = joules

    first, begun, before = moved(settle)
    last, ended, done = moved(seconds)
    return last - first, (ended - begun) * 1e-9, done - before


def step(device: str) -> list[Fact]:
    """Idle power, power under a copy and a product, and energy per byte and per FLOP above idle."""
    try:
        meter = Meter(device)
    except OSError as error:
        return absent(str(error))
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
