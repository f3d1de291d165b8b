# SPDX-License-Identifier: Apache-2.0
"""Measure one device once: bandwidth by working-set size, peaks by dtype and unit, latencies, launch, energy.

What to look at follows the published dissections of processors and GPUs (pointer chase for latency, independent
chains for peaks, the bandwidth staircase); every number is the best of several runs on this device.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kernelwright.errors import NoSuchDevice
from kernelwright.judge.calibration import capacity, cpu, cuda
from kernelwright.machine import Fact, Machine, fingerprint

BANDWIDTH = "memory bandwidth"
"""Label of the step that both kinds of device begin with."""
Progress = Callable[[str, float], None]


def identity(device: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """(name, versions) of a device without measuring it: what its facts are cached under.

    Raises ``NoSuchDevice``."""
    versions = [("python", platform.python_version()), ("torch", torch.__version__)]
    if device == "cpu":
        name = cpu.processor_name()
        versions += [("threads", str(len(os.sched_getaffinity(0)))), ("kernel", platform.release())]
        versions.append(("kernels", cpu.source_digest()))  # what was measured with others is measured again
        return name, tuple(versions)
    index = int(device.partition(":")[2] or 0)
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        found = f"{torch.cuda.device_count()} CUDA devices" if torch.cuda.is_available() else "no CUDA device"
        raise NoSuchDevice(f"There is no device {device}", found, "a device that exists", "use --device cpu")
    properties = torch.cuda.get_device_properties(index)
    versions += [("cuda", str(torch.version.cuda)), ("driver", cuda.driver_version())]
    return properties.name, tuple(versions)


def refreshed(machine: Machine, cache: Path) -> Machine:
    """``machine`` with its memory bandwidth measured again, each rate the better of the two readings.

    A device that is shared, as a virtual machine's memory is, may have been slow when it was measured.
    """
    source = cpu if machine.device == "cpu" else cuda
    again = next(step for label, step in source.steps(machine.device, cache) if label == BANDWIDTH)()
    found = {fact.name: fact for fact in machine.facts}
    for new in again:
        old = found.get(new.name)
        if old is None or old.value is None or (new.value is not None and new.value > old.value):
            found[new.name] = new
    return dataclasses.replace(machine, facts=tuple(found.values()))


def calibrate(device: str, cache: Path, progress: Progress | None = None) -> Machine:
    """Measure every fact of ``device`` (``cpu`` or ``cuda:N``), in under 90 s. ``cache`` holds compiled kernels.

    ``progress`` hears (what is being measured, share done). Raises ``NoSuchDevice``."""
    name, versions = identity(device)
    source = cpu if device == "cpu" else cuda
    steps = list(source.steps(device, cache))
    facts: list[Fact] = []
    for done, (label, step) in enumerate(steps):
        if progress:
            progress(label, done / len(steps))
        facts += step()
    if progress:
        progress("done", 1.0)
    return Machine(
        device=device,
        name=name,
        fingerprint=fingerprint(device, name, versions),
        versions=versions,
        facts=capacity.completed(tuple(facts), device),
        measured_at=time.time(),
    )
