# SPDX-License-Identifier: Apache-2.0
"""Faults of the machine, told from those of a program: a lost device, a full disk, no memory, clocks that disagree."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kernelwright.errors import ClockJumped, DeviceLost, DiskFull, KernelwrightError, NotEnoughMemory
from kernelwright.judge import measure

NO_ROOM_BYTES = 64 << 20
"""A disk with less left than this is believed to be full when something says so: a compiler needs tens of MiB."""
_FULL = "No space left on device"
_DEVICE = ("CUDA error", "CUDA driver error", "cudaError", "device-side assert", "cuMem", "CUDA call failed")
_ABSENT = "invalid device ordinal"
_MEMORY = ("out of memory", "can't allocate memory", "CUDA_ERROR_OUT_OF_MEMORY")


def fault(error: BaseException) -> KernelwrightError | None:
    """The machine's fault behind an exception in the judge's own code, or None where it is something else."""
    text = (str(error).strip().splitlines() or [""])[0][:300]
    if isinstance(error, KernelwrightError):
        return error
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and is_full(text)):
        return NotEnoughMemory(
            "The judge ran out of memory.", f"{type(error).__name__}: {text}", "room for several copies of a call",
            "give the timed case smaller sizes, or use a machine with more memory",
        )  # fmt: skip
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return full(str(error))
    if isinstance(error, RuntimeError) and any(sign in text for sign in _DEVICE) and _ABSENT not in text:
        return DeviceLost(
            "The device does not answer any more.", text, "a device whose context works",
            "see the system's log (dmesg, nvidia-smi); a driver may have to be restarted",
        )  # fmt: skip
    return None


def is_full(text: str) -> bool:
    """Whether these are the words for memory that is used up, a host's or a device's."""
    return any(sign in text for sign in _MEMORY)


def left_on(device: torch.device) -> int:
    """Bytes of a GPU that are free once this process has given back what it keeps in reserve."""
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])


def make_room(device: torch.device) -> None:
    """Give back what this process keeps of a GPU in reserve, where that is more than is free: on an H200 with 16 GiB
    left the oracle's reserve left no room for the context of a program."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if kept > torch.cuda.mem_get_info(device)[0]:
        torch.cuda.empty_cache()


def in_pieces(*, wanted: bool) -> None:
    """From here on this process takes a GPU's memory in pieces that it gives back one by one: of 12 GiB out of which
    24 MiB were in use nothing was, and the next 12 GiB found no room."""
    if wanted:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")


def pass_on(error: BaseException) -> None:
    """Raise the machine's fault behind an exception that would else be taken for what a module says of its inputs."""
    found = fault(error)
    if found is not None:
        raise found from error


def full(got: str) -> DiskFull:
    """The error for a full disk."""
    return DiskFull(
        "The disk is full where the judge writes.",
        got,
        "some hundred MiB",
        "make room there, raise ulimit -f, or set KERNELWRIGHT_HOME to a folder on another disk",
    )


def blame_disk(said: str, folder: Path) -> None:
    """Raise DiskFull where a program complains of a full disk and it is: a candidate may say anything."""
    if _FULL not in said:
        return
    present = next((place for place in (folder, *folder.parents) if place.exists()), Path("/"))
    left = shutil.disk_usage(present).free
    if left < NO_ROOM_BYTES:
        raise full(f"{left >> 20} MiB left below {folder}")


def probe(device: torch.device) -> None:
    """Raise DeviceLost where a GPU no longer does what the judge asks: whatever failed on it is then nobody's fault."""
    if device.type != "cuda":
        return
    try:
        asked = torch.arange(64, device=device)
        answer = int(asked.sum())
    except RuntimeError as error:
        raise fault(error) or DeviceLost("The device does not answer any more.", str(error)[:300]) from error
    if answer != 2016:
        raise DeviceLost("The device computes nonsense.", f"the sum of 0 to 63 is {answer}", "2016")


Reading = Callable[[], int]
_SLACK_NS = 2_000_000
_DRIFT = 0.01
"""NTP slews by 0.05 % at most; what is read between two readings is some microseconds, milliseconds under load."""


def _others() -> tuple[int, ...]:
    return tuple(time.clock_gettime_ns(which) for which in (time.CLOCK_MONOTONIC_RAW, time.CLOCK_BOOTTIME))


class Steady:
    """Whether the clock that times a race goes as the hardware's counter and the time since boot do.

    One that is set, slewed hard or stands still while a machine sleeps goes another way than at least one of these.
    """

    def __init__(self, clock: Reading = measure.clock, others: Callable[[], tuple[int, ...]] = _others) -> None:
        self._clock, self._others = clock, others
        self._before = self._read()

    def _read(self) -> tuple[int, tuple[int, ...], int]:
        return self._clock(), self._others(), self._clock()

    def look(self) -> None:
        """Compare since the last look. Raises ClockJumped."""
        before, now = self._before, self._read()
        self._before = now
        passed = now[0] - before[0]
        # Being interrupted between the readings is no jump.
        slack = _SLACK_NS + (now[2] - now[0]) + (before[2] - before[0]) + _DRIFT * abs(passed)
        for old, new in zip(before[1], now[1], strict=True):
            if passed < 0 or abs((new - old) - passed) > slack:
                raise ClockJumped(
                    "The clocks of this machine disagree.",
                    f"{passed / 1e6:.3f} ms by the clock of record, {(new - old) / 1e6:.3f} ms by another",
                    "clocks that go alike",
                    "judge again once the machine neither sleeps nor sets its clock",
                )
