# SPDX-License-Identifier: Apache-2.0
"""How much of a machine one child may use, and what became of it."""

from __future__ import annotations

import resource
import signal
from dataclasses import dataclass
from pathlib import Path

_OPEN_FILES = 1024
_PAGE = resource.getpagesize()


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


def apply(limits: Limits, *, address_space: bool) -> None:
    """Set the resource limits of the calling process.

    ``address_space`` bounds virtual memory too. It must be off where CUDA is used: the driver reserves address
    space far beyond what it fills, and reports "out of memory" under such a limit. The soft limit is set and
    the hard one left, so that the judge can widen it from outside when it shares more memory; the child cannot
    (see ``seccomp``).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _lower(resource.RLIMIT_NPROC, limits.processes)
    if address_space:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
        _lower(resource.RLIMIT_AS, used + limits.memory_bytes)


def widen_memory(pid: int, extra_bytes: int) -> None:
    """Let process ``pid`` map ``extra_bytes`` more; does nothing where its address space is not limited."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        resource.prlimit(pid, resource.RLIMIT_AS, (soft + extra_bytes, hard))


def private_bytes(pid: int) -> int:
    """Resident private memory of ``pid``; 0 once it is gone. Shared buffers and mapped files do not count."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE


def death(status: int) -> str:
    """A wait status in words: ``killed by SIGSEGV`` or ``exited with status 3``. (waitpid encoding.)"""
    if status & 0x7F:
        number = status & 0x7F
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"exited with status {status >> 8}"


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, hard))
