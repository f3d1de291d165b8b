# SPDX-License-Identifier: Apache-2.0
"""At what clock rate a race was run, and what held the device back: readings between windows, for the record."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kernelwright.judge import nvml

REASONS = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost", 0x20: "heat (software)", 0x40: "heat (hardware)",
    0x80: "power brake",
}  # fmt: skip
"""Bits of nvmlClocksEventReasons that take speed away; idleness and clocks that somebody set are none of them."""
SET_CLOCKS = 0x2
MOST = 16
"""Processors that are asked: a reading may interrupt each of them."""
_CPUS, _CPUINFO = Path("/sys/devices/system/cpu"), Path("/proc/cpuinfo")


class Clocks:
    """Readings of one device during a race. ``look`` is called while nothing is timed."""

    def __init__(self, device: torch.device, open_device: Callable[[str], nvml.Device] = nvml.Device) -> None:
        self._device = device
        self._nvml: nvml.Device | None = None
        self._why = ""
        self._rates: dict[str, list[float]] = {}
        self._held: Counter[str] = Counter()
        self._looks, self._set = 0, False
        if device.type == "cuda":
            try:
                self._nvml = open_device(str(device))
            except OSError as error:
                self._why = str(error)

    def look(self) -> None:
        """Take one reading."""
        if self._nvml is not None:
            self._look_at_device(self._nvml)
        elif self._device.type == "cpu":
            found = processor_mhz()
            if found:
                self._file("processor", sum(found) / len(found))
            else:
                self._why = "the system gives no clock rate"

    def _look_at_device(self, device: nvml.Device) -> None:
        try:
            rates, reasons = device.clocks_mhz(), device.held_back()
        except OSError as error:
            self._why = str(error)
            return
        for name, value in rates.items():
            self._file(name, value)
        self._looks += 1
        self._held.update(name for bit, name in REASONS.items() if reasons & bit)
        self._set = self._set or bool(reasons & SET_CLOCKS)

    def _file(self, name: str, value: float) -> None:
        self._rates.setdefault(name, []).append(value)

    def words(self) -> str:
        """For the conditions of a proof."""
        if not self._rates:
            return f"clocks: not measured ({self._why or 'nobody looked'})"
        parts = [f"{name} {_range(values)}" for name, values in self._rates.items()]
        text = f"clocks in {max(map(len, self._rates.values()))} readings: " + ", ".join(parts)
        if not self._looks:
            return text
        held = ", ".join(f"{name} in {count} of {self._looks}" for name, count in sorted(self._held.items()))
        return text + f"; held back by {held or 'nothing'}" + ("; set by somebody" if self._set else "")


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{high:.0f} MHz" if round(low) == round(high) else f"{low:.0f} to {high:.0f} MHz"


def processor_mhz(cpus: Path = _CPUS, info: Path = _CPUINFO) -> list[float]:
    """The present rates of the processors that are ours (MOST of them), as cpufreq or else /proc/cpuinfo says."""
    found = []
    for number in sorted(os.sched_getaffinity(0))[:MOST]:
        file = cpus / f"cpu{number}" / "cpufreq" / "scaling_cur_freq"
        try:
            found.append(int(file.read_text(encoding="ascii")) / 1e3)
        except (OSError, ValueError):
            continue
    if found:
        return found
    try:
        text = info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [float(value) for value in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", text, flags=re.MULTILINE)]
