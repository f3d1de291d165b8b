# SPDX-License-Identifier: Apache-2.0
"""Threads of a stopped program wake on different CPUs, as they would stand had nobody stopped them.

A program's worker threads sleep when it is stopped and are woken by its first thread in the midst of a call. On a
virtual machine the system often takes a CPU that has just gone idle for an occupied one, and queues the worker behind
the thread that woke it; nothing moves it before the next balancing tick, milliseconds later. On 2 CPUs, calls of a
fused RMSNorm took 1.25 or 2.05 ms by chance; with their threads placed, 1.25 ms.
"""

from __future__ import annotations

import ctypes
import os

MOST_THREADS = 256
"""A program with more threads is left as it stands."""
SETTLED_MS = 1
"""After this long in a call every worker that will be woken is awake, and may go anywhere again."""


class Places:
    """The threads of one stopped process, each put on a CPU of its own as far as there are.

    The first never shares the CPU this process is on. Once the program runs, call ``free_first``, so that threads it
    starts may go anywhere, and later ``free_others``. Threads that stand on one CPU of their own choice are placed too:
    one that was started before its maker was free looks the same, and would share its maker's CPU for good.
    """

    def __init__(self, pid: int) -> None:
        self._everywhere = os.sched_getaffinity(0)
        self._first: list[int] = []
        self._others: list[int] = []
        if len(self._everywhere) < 2:
            return
        try:
            threads = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
        except OSError:
            return
        if len(threads) > MOST_THREADS:
            return
        here = _current_cpu()
        first, *others = sorted(self._everywhere, key=lambda cpu: (cpu == here, cpu))
        for number, thread in enumerate(threads):
            if number == 0:
                self._first += self._put(thread, first)
            else:
                self._others += self._put(thread, others[(number - 1) % len(others)])

    def free_first(self) -> None:
        """Let the first thread run anywhere; it stays where it is until it sleeps."""
        self._free(self._first)

    def free_others(self) -> None:
        """Let the others run anywhere."""
        self._free(self._others)

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


def _current_cpu() -> int:
    """The CPU this thread is on; -1 where the C library does not say."""
    ask = getattr(ctypes.CDLL(None), "sched_getcpu", None)
    return -1 if ask is None else int(ask())
