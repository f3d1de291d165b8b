# SPDX-License-Identifier: Apache-2.0
"""Measured machines as files of a state folder, found again by fingerprint: another driver is another machine."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

from kernelwright import wire
from kernelwright.judge.calibration import Progress, calibrate, capacity, identity
from kernelwright.machine import Machine, fingerprint


def known(device: str, state: Path) -> Machine:
    """The device as measured before under its present versions, else without facts. Raises NoSuchDevice.

    What can be read at once is added where the measurement did not hold it."""
    name, versions = identity(device)
    key = fingerprint(device, name, versions)
    try:
        found = wire.from_data(Machine, json.loads(_file(key, state).read_text()))
        return dataclasses.replace(found, facts=capacity.completed(found.facts, device)) if found.facts else found
    except (OSError, ValueError):
        return Machine(device=device, name=name, fingerprint=key, versions=versions, facts=(), measured_at=time.time())


def keep(machine: Machine, state: Path) -> None:
    """Remember it."""
    path = _file(machine.fingerprint, state)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(wire.dumps(machine))


def _file(key: str, state: Path) -> Path:
    return state / "machines" / f"{key}.json"


def measured(device: str, state: Path, cache: Path, progress: Progress) -> Machine:
    """As measured before, by another judge perhaps while this one waited for the device; else measured, and kept."""
    found = known(device, state)
    if not found.facts:
        found = calibrate(device, cache / "calibration", progress)
        keep(found, state)
    return found
