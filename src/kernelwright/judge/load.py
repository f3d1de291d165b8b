# SPDX-License-Identifier: Apache-2.0
"""Is somebody else using this machine? Then threads that wait must sleep, or every barrier costs a time slice."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

QUIET = 0.75
"""Share of idle time above which the machine counts as ours."""
SAMPLE_SECONDS = 0.1
_OPENMP = re.compile(rb"/lib(gomp|omp|iomp5)\.so")
CROWDED = 0.1
"""Share of all CPUs' time that strangers use from which on they are taken to disturb: ticks of 10 ms tell no less."""


def idle_share(stat: Path = Path("/proc/stat"), seconds: float = SAMPLE_SECONDS) -> float:
    """Share of all CPUs' time in ``seconds`` that was idle or used by ourselves; 1.0 where the kernel does not say.

    Ourselves: the process that started this one, and everything below it. A judge that starts beside a proposer host,
    which is still importing torch, would otherwise take its own side for a stranger.
    """
    before, ours = _ticks(stat), _family_ticks(os.getppid())
    time.sleep(seconds)
    after, ours = _ticks(stat), _family_ticks(os.getppid()) - ours
    total = after[1] - before[1]
    return min(1.0, (after[0] - before[0] + max(0, ours)) / total) if total > 0 else 1.0


class Strangers:
    """Whether others use the CPUs that this process may run on, since it was made.

    ``ours`` gives the nanoseconds of CPU time that those have used so far who may: the judge and the programs in a
    race. A hypervisor's other guests count as strangers.
    """

    def __init__(self, ours: Callable[[], int], stat: Path = Path("/proc/stat")) -> None:
        self._ours, self._stat = ours, stat
        self._cpus = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
        self._before = self._read()

    def _read(self) -> tuple[int, int, int]:
        return *_ticks(self._stat, self._cpus), self._ours()

    def share(self) -> float:
        """Their share of all these CPUs' time; 0.0 where the kernel does not say."""
        idle, total, ours = (now - before for now, before in zip(self._read(), self._before, strict=True))
        used = ours * 1e-9 * os.sysconf("SC_CLK_TCK")
        return max(0.0, (total - idle - used) / total) if total > 0 else 0.0

    def crowd(self) -> bool:
        """Whether that is enough to disturb."""
        return self.share() > CROWDED


def waiting_policy(idle: float) -> dict[str, str]:
    """OpenMP settings for every program of a session, candidates and baselines alike.

    On a quiet machine threads spin for about 0.1 ms, which covers the gaps inside one call as libgomp's own default
    does. On a busy one they sleep: eager RMSNorm (256 x 1024, 2 threads, load 5) took 65 ms a call with the default,
    7 ms with 10,000 spins, 1 ms with 1,000 and 0.35 ms asleep, against 0.3 ms on one thread.
    """
    return {"GOMP_SPINCOUNT": "5000"} if idle >= QUIET else {"OMP_WAIT_POLICY": "PASSIVE"}


def openmp(pid: int) -> bool:
    """Whether an OpenMP runtime other than the one that torch brings (libgomp-1a2b3c.so.1) is loaded in a process."""
    try:
        return _OPENMP.search(Path(f"/proc/{pid}/maps").read_bytes()) is not None
    except OSError:
        return False


def waited_us(pid: int, *, first: bool = False) -> float:
    """Microseconds that the threads of ``pid``, or its first one, have so far been ready to run while something else
    had the CPU.

    0.0 where the kernel does not say. Source: the second field of /proc/PID/task/TID/schedstat.
    """
    total = 0
    try:
        threads = [str(pid)] if first else os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0.0
    for thread in threads:
        try:
            total += int(_content(f"/proc/{pid}/task/{thread}/schedstat").split()[1])
        except (OSError, ValueError, IndexError):
            continue  # the thread has ended
    return total / 1e3


def ran_us(pid: int) -> dict[str, float]:
    """Microseconds that each thread of ``pid`` has run so far; exact for those that stand still.

    Empty where the kernel does not say. Source: the first field of /proc/PID/task/TID/schedstat.
    """
    found: dict[str, float] = {}
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            found[thread] = int(_content(f"/proc/{pid}/task/{thread}/schedstat").split()[0]) / 1e3
        except (OSError, ValueError, IndexError):
            continue  # the thread has ended
    return found


@dataclass(frozen=True, slots=True)
class Strain:
    """What the system did to a process besides running it."""

    waited_us: float
    """How long its threads were ready to run while another program had the CPU; see ``waited_us``."""
    faults: int
    """Pages it touched for the first time since it got them, or got back."""

    def since(self, before: Strain) -> Strain:
        """What has come on top of ``before``."""
        return Strain(max(0.0, self.waited_us - before.waited_us), max(0, self.faults - before.faults))


def strain(pid: int, calls: int = 1, *, first: bool = False) -> Strain:
    """All of a process so far; zeros where the kernel does not say. Source of faults: minflt in /proc/PID/stat.

    Of a window without ``calls`` nobody asks: most are such. ``first``: what other threads than the first waited does
    not count. Where a device computes, that one launches and waits for it: on an H200's host one of twenty others
    waited a millisecond in every third window of 3 ms, the first not once, and of 38 rounds 10 passed for clean.
    """
    if not calls:
        return Strain(0.0, 0)
    try:
        faults = int(_content(f"/proc/{pid}/stat").rpartition(b")")[2].split()[7])
    except (OSError, ValueError, IndexError):
        faults = 0
    return Strain(waited_us(pid, first=first), faults)


def _content(path: str) -> bytes:
    """The first KiB of a small file of the kernel's. Programs on a GPU have twenty threads: globbing for their files
    and reading each as text took 2.7 ms, more than most windows last."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 1024)
    finally:
        os.close(handle)


def _family_ticks(root: int) -> int:
    """Clock ticks that ``root`` and its descendants have used; those that have ended are not known any more."""
    used: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            parent, ticks = int(fields[1]), int(fields[11]) + int(fields[12])
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile
        used[int(file.parent.name)] = ticks
        children.setdefault(parent, []).append(int(file.parent.name))
    total, family = 0, [root]
    while family:
        member = family.pop()
        total += used.get(member, 0)
        family += children.get(member, ())
    return total


def _ticks(stat: Path, cpus: frozenset[str] | set[str] = frozenset({"cpu"})) -> tuple[int, int]:
    """(idle, all) clock ticks since boot of these lines; ``cpu`` is the sum of all."""
    idle = total = 0
    try:
        for line in stat.read_text().splitlines():
            name, *fields = line.split()[:9]
            if name in cpus:
                ticks = [int(field) for field in fields]
                idle, total = idle + ticks[3] + ticks[4], total + sum(ticks)
    except (OSError, ValueError, IndexError):
        return 0, 0
    return idle, total
