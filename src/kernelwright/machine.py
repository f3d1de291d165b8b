# SPDX-License-Identifier: Apache-2.0
"""Measured facts of one device, and what identifies it."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright import wire

UNSTEADY = 0.2
"""Spread of the samples from which a fact says that the device was not its own, or not steady."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One measured number. ``value`` None means "not measured" and ``note`` says why."""

    name: str
    """Dotted, unit last: ``bandwidth.copy.dram_GBps``, ``peak.gemm.bf16_TFLOPs``, ``latency.launch_us``."""
    value: float | None
    unit: str
    spread: float
    """(90th - 10th percentile) / median of the samples; 0.0 for counted facts."""
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One device as measured. No table of device names decides anything."""

    device: str
    """``cpu`` or ``cuda:N``."""
    name: str
    """What the driver or /proc/cpuinfo calls it."""
    fingerprint: str
    """Content address of device, driver, core count, versions; facts are cached under it."""
    versions: tuple[tuple[str, str], ...]
    facts: tuple[Fact, ...]
    measured_at: float

    def value(self, name: str) -> float | None:
        """The fact's value, or None where it was not measured."""
        return next((fact.value for fact in self.facts if fact.name == name), None)

    def unsteady(self) -> str:
        """A sentence on how many measured facts spread too far for a device of one's own, "" where none does."""
        measured = [fact for fact in self.facts if fact.value is not None]
        wide = [fact for fact in measured if fact.spread > UNSTEADY]
        if not wide:
            return ""
        worst = max(wide, key=lambda fact: fact.spread)
        return (
            f"This device is shared, or its clocks change: the samples of {len(wide)} of {len(measured)} facts spread "
            f"by more than {UNSTEADY:.0%} (most: {worst.name}, {worst.spread:.0%}). Each is the best of its samples."
        )


def fingerprint(device: str, name: str, versions: tuple[tuple[str, str], ...]) -> str:
    """Identity of a device and its software: 16 hex digits."""
    return wire.digest(device, name, versions)[:16]
