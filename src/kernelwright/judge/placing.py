# SPDX-License-Identifier: Apache-2.0
"""Threads of a stopped program wake on different CPUs, as they would stand had nobody stopped them.

A program's worker threads sleep when it is stopped and are woken by its first thread in the midst of a call. On a
virtual machine the system often takes a CPU that has just gone idle for an occupied one, and queues the worker behind
the thread that woke it; nothing moves it before the next balancing tick, milliseconds later. On 2 CPUs, calls of a
fused RMSNorm took 1.25 or 2.05 ms by chance; with their threads placed, 1.25 ms.

Those that share a CPU with nobody stay there for long: freed after a millisecond, by a judge that needed a CPU of
theirs for it, threads of an eager RMSNorm (4.2 ms, 2 CPUs) met on one in 40 to 95 of 100 calls and took 7 ms.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelwright.judge import load

MOST_THREADS = 256
"""A program with more threads is left as it stands."""
SETTLED_MS, ALONE_MS = 1, 50
"""After this long in a call every worker that will be woken is awake, and may go anywhere again: where some share a
CPU, and where none do. That others of the machine's programs take the CPU of one of them costs no more than that."""
IDLE = 0.1
"""A thread that ran for less than this part of what the busiest did, in the last calls, needs no CPU of its own."""


class Places:
    """The threads of one process, each put on a CPU of its own as far as there are whenever it is about to run.

    The first never shares the CPU this process is on, and no two share a core while another is free. Where the first
    only waited for others in the calls before, one of them takes its CPU; without ``learns`` all count as busy, always.

    Call ``put`` while the program is stopped; once it runs ``free_first``, so that threads it starts may go anywhere,
    and ``settled_ms`` later ``free_others``; once it is stopped again ``look``. Threads that stand on one CPU of
    their own choice are placed too: one that was started before its maker was free looks the same, and would share its
    maker's CPU for good.
    """

    def __init__(self, pid: int, *, learns: bool) -> None:
        self._pid, self._learns = pid, learns
        self._everywhere = os.sched_getaffinity(0)
        self._first: list[int] = []
        self._others: list[int] = []
        self._before: dict[str, float] = {}
        self._ran: dict[str, float] | None = None
        """Microseconds each thread ran in the calls before."""
        self.settled_ms = SETTLED_MS
        """Until then the others stay where they are put."""

    def put(self) -> None:
        """Give every thread its place."""
        self.settled_ms = SETTLED_MS
        if len(self._everywhere) < 2:
            return
        try:
            names = os.listdir(f"/proc/{self._pid}/task")
        except OSError:
            return
        threads = sorted((int(name) for name in names), key=lambda thread: (thread != self._pid, thread))
        if not 0 < len(threads) <= MOST_THREADS:
            return
        self._before = load.ran_us(self._pid) if self._learns else {}
        here = _current_cpu()
        first, *cpus = sorted(_apart(frozenset(self._everywhere)), key=lambda cpu: cpu == here)
        busy = self._busy(threads)
        if threads[0] in busy:
            busy.remove(threads[0])
        else:
            cpus.append(first)
        self._first += self._put(threads[0], first)
        for number, thread in enumerate(busy):
            self._others += self._put(thread, cpus[number % len(cpus)])
        self._free([thread for thread in threads[1:] if thread not in busy])
        if self._ran is not None and len(self._others) <= len(cpus):
            self.settled_ms = ALONE_MS

    def _busy(self, threads: list[int]) -> list[int]:
        """Those that need a CPU, the busiest first; one that is new counts as such."""
        if self._ran is None:
            return list(threads)
        most = max(self._ran.values(), default=0.0)
        spans = {thread: self._ran.get(str(thread), most) for thread in threads}
        return sorted((thread for thread in threads if spans[thread] >= IDLE * most), key=lambda thread: -spans[thread])

    def free_first(self) -> None:
        """Let the first thread run anywhere; it stays where it is until it sleeps."""
        self._free(self._first)

    def free_others(self) -> None:
        """Let the others run anywhere."""
        self._free(self._others)

    def look(self, calls: int) -> None:
        """Free what is not free yet, and see which threads ran since ``put``, if it was for so many calls."""
        self.free_others()
        if calls and self._learns:
            self._ran = {name: us - self._before.get(name, 0.0) for name, us in load.ran_us(self._pid).items()}

    def _put(self, thread: int, cpu: int) -> list[int]:
        try:
            os.sched_setaffinity(thread, (cpu,))
        except OSError:
            return []  # it has ended, or belongs to another user and stays where the system puts it
        return [thread]

    def _free(self, threads: list[int]) -> None:
        while threads:
            try:
                os.sched_setaffinity(threads.pop(), self._everywhere)
            except OSError:
                continue


@contextlib.contextmanager
def on_one_cpu(pids: Sequence[int]) -> Iterator[None]:
    """The first threads of processes, of which one runs at a time, on one CPU, drawn by lot of the cores where this
    thread is not. Where each stays on one of its own, who works on the other half of its core slows it alone, and for
    as long as a series of calls takes. For programs whose threads nobody else places: those on a device."""
    everywhere: dict[int, set[int]] = {}
    with contextlib.suppress(OSError):  # gone, or of another user: they stay where the system puts them
        everywhere = {pid: os.sched_getaffinity(pid) for pid in pids}
    here = _core(_current_cpu())
    cpus = [cpu for cpu in set.intersection(*everywhere.values()) if _core(cpu) != here] if everywhere else []
    try:
        if cpus:
            cpu = secrets.choice(sorted(cpus))
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(pid, (cpu,))
        yield
    finally:
        for pid, before in everywhere.items():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(pid, before)


@functools.cache
def _apart(cpus: frozenset[int]) -> tuple[int, ...]:
    """These CPUs, one of each core before a second of any: two threads on one core are as slow as one."""
    seen: collections.Counter[str] = collections.Counter()
    ranked = []
    for cpu in sorted(cpus):
        core = _core(cpu)
        ranked.append((seen[core], cpu))
        seen[core] += 1
    return tuple(cpu for _, cpu in sorted(ranked))


def _core(cpu: int) -> str:
    """The CPUs that share a core with this one; itself alone where the system does not say."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text(encoding="ascii")
    except OSError:
        return str(cpu)


def _current_cpu() -> int:
    """The CPU this thread is on; -1 where the C library does not say."""
    ask = getattr(ctypes.CDLL(None), "sched_getcpu", None)
    return -1 if ask is None else int(ask())
