# SPDX-License-Identifier: Apache-2.0
"""How much of everything a device has: limits of blocks and multiprocessors, caches of a core. Read, never measured.

The CUDA driver is asked for its device attributes (CUDA driver API, ``CUdevice_attribute``), a Linux kernel for what it
knows of caches and cores. It takes no time, so facts of a device that was measured before are completed by it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelwright.judge.calibration.facts import fact, missing
from kernelwright.machine import Fact

ATTRIBUTES: Mapping[str, tuple[int, str]] = {
    "limit.block.threads": (1, ""),
    "limit.block.shared_bytes": (8, "B"),
    "limit.block.registers": (12, ""),
    "limit.block.shared_most_bytes": (97, "B"),
    "limit.block.shared_reserved_bytes": (111, "B"),
    "limit.processor.threads": (39, ""),
    "limit.processor.shared_bytes": (81, "B"),
    "limit.processor.registers": (82, ""),
    "limit.processor.blocks": (106, ""),
    "count.warp_threads": (10, ""),
}
"""Fact to (number of the attribute, unit). ``shared_most``: to a kernel that asks for more than ``shared``."""
SYSTEM = Path("/sys/devices/system/cpu")


def counted(device: str, system: Path = SYSTEM, driver: Any = None) -> list[Fact]:
    """Every such fact of ``device``; those that nobody would tell say why. ``driver`` stands for libcuda in tests."""
    if device == "cpu":
        return [*_caches(system), *_cores(system)]
    try:
        driver = ctypes.CDLL("libcuda.so.1") if driver is None else driver
        handle = _handle(driver, int(device.partition(":")[2] or 0))
    except OSError as error:
        return [missing(name, unit, str(error)) for name, (_, unit) in ATTRIBUTES.items()]
    return [_attribute(driver, handle, name) for name in ATTRIBUTES]


def completed(facts: tuple[Fact, ...], device: str) -> tuple[Fact, ...]:
    """``facts`` with those of ``counted`` that they lack."""
    known = {one.name for one in facts}
    return (*facts, *(one for one in counted(device) if one.name not in known))


def _handle(driver: Any, ordinal: int) -> ctypes.c_int:
    handle = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), ordinal)
    if status:
        raise OSError(f"the driver knows no device {ordinal} (status {status})")
    return handle


def _attribute(driver: Any, handle: ctypes.c_int, name: str) -> Fact:
    (number, unit), value = ATTRIBUTES[name], ctypes.c_int()
    status = driver.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
    if status:
        return missing(name, unit, f"the driver does not say (status {status})")
    return fact(name, unit, [float(value.value)], "as the driver reports")


def _caches(system: Path) -> Iterator[Fact]:
    """Data caches of the first processor that is ours, and how many of ours share the last one."""
    own = os.sched_getaffinity(0)
    levels: dict[int, Path] = {}
    for place in sorted((system / f"cpu{min(own)}" / "cache").glob("index*")):
        if _text(place / "type") in ("Data", "Unified") and _text(place / "level").isdigit():
            levels[int(_text(place / "level"))] = place
    for level, name in ((1, "cache.first_level_bytes"), (2, "cache.second_level_bytes")):
        size = _bytes(_text(levels[level] / "size")) if level in levels else 0
        yield _said(name, "B", size)
    yield _said("cache.line_bytes", "B", _number(_text(levels[min(levels)] / "coherency_line_size")) if levels else 0)
    sharing = _listed(_text(levels[max(levels)] / "shared_cpu_list")) if levels else set()
    yield _said("count.last_level_sharers", "", len(own & sharing))


def _cores(system: Path) -> Iterator[Fact]:
    own = os.sched_getaffinity(0)
    cores = {_text(system / f"cpu{number}" / "topology" / "thread_siblings_list") for number in own}
    yield _said("count.cores", "", 0 if "" in cores else len(cores))


def _said(name: str, unit: str, value: int) -> Fact:
    if value <= 0:
        return missing(name, unit, "the kernel does not say")
    return fact(name, unit, [float(value)], "as the kernel reports")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _bytes(text: str) -> int:
    """``48K``, ``2M``, ``1G`` or a plain number; 0 for anything else."""
    width = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 0)
    return _number(text[:-1]) * width if width else _number(text)


def _listed(text: str) -> set[int]:
    """``0-3,8`` as numbers."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return found
