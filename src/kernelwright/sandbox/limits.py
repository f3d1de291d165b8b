# SPDX-License-Identifier: Apache-2.0
"""How much of a machine one child may use, and what became of it."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_OPEN_FILES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one confined process. Every field is a ceiling, none a reservation."""

    seconds: float
    """Wall time of one request (or of the whole command in ``run``)."""
    memory_bytes: int
    """Private memory beyond what the process started with."""
    processes: int
    """Processes and threads together, where the kernel can count them for this child alone."""
    file_bytes: int
    """Largest file it may write."""
    output_bytes: int
    """Bytes of stdout and stderr together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a confined command ended. ``killed`` is empty, or says in words which limit ended it."""

    returncode: int
    """Exit status, or minus the number of the signal."""
    stdout: str
    stderr: str
    killed: str


def apply(limits: Limits, *, memory: bool) -> None:
    """Set the resource limits of the calling process.

    ``memory`` bounds private writable memory (RLIMIT_DATA), not address space: shared buffers come on top of it
    and are the judge's. It must be off where CUDA is used, whose driver maps far more than it fills.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _lower(resource.RLIMIT_NPROC, limits.processes)
    if memory:
        _lower(resource.RLIMIT_DATA, _kilobytes("self", "VmData:") * 1024 + limits.memory_bytes)


def resident_bytes(pid: int) -> tuple[int, int]:
    """Resident (private, shared) memory of ``pid``, without mapped files; zeros once it is gone."""
    try:
        return _kilobytes(str(pid), "RssAnon:") * 1024, _kilobytes(str(pid), "RssShmem:") * 1024
    except (OSError, LookupError):
        return 0, 0


def crowd(pid: int, enough: int) -> int:
    """Threads of ``pid`` and of its descendants together, counted no further than a little past ``enough``."""
    total = 0
    for member in _members(pid, enough + 1):
        total += len(_threads(member))
        if total > enough:
            break
    return total


def family(pid: int) -> list[int]:
    """``pid`` and all its descendants, as far as the kernel keeps lists of children."""
    return list(_members(pid, None))


def _members(pid: int, threads: int | None) -> Iterator[int]:
    """The same one by one, looking at the children of the first so many threads of each only."""
    waiting = [pid]
    while waiting:
        member = waiting.pop()
        yield member
        for thread in _threads(member)[:threads]:
            try:
                waiting += [int(child) for child in (thread / "children").read_text().split()]
            except OSError:
                continue  # gone, or a kernel without lists of children


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def death(status: int) -> str:
    """A wait status in words: ``killed by SIGSEGV`` or ``exited with status 3``. (waitpid encoding.)"""
    if status & 0x7F:
        number = status & 0x7F
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"exited with status {status >> 8}"


def _kilobytes(process: str, field: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    found = [line for line in lines if line.startswith(field)]
    return int(found[0].split()[1])


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))
