# SPDX-License-Identifier: Apache-2.0
"""Cold last-level caches before every window, the part that a program asked to persist included."""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import itertools
import os
from collections.abc import Iterator, Sequence

import torch

from kernelwright.judge import timing_plan
from kernelwright.judge.timing_plan import LastCache

LINE = 16
"""float32 numbers of a line of a CPU's caches: one of each is read. On two cores that share 300 MiB, twice as much took
25 ms so and 36 where all were added up."""
HANDS = 4
"""Threads that walk for one cache at the most: a single one does not reach the memory's speed."""


class Cold:
    """Memory of ``size`` bytes that nobody uses; walking it leaves nothing else in the caches of ``device``.

    A CPU may have several last-level caches, each filled by its own cores alone; ``caches`` (None: as the kernel says)
    get their share of the memory each, walked from a core that has it.

    On CUDA, lines that a program marked as persisting survive any walk (llm.c PR 851 was timed that way), so they
    are reset first by ``cuCtxResetPersistingL2Cache``.
    """

    def __init__(self, device: torch.device, size: int, caches: Sequence[LastCache] | None = None) -> None:
        self._device = device
        self._memory = torch.ones(max(1, size // 4), dtype=torch.float32, device=device)
        found = timing_plan.last_caches() if caches is None and device.type == "cpu" else caches or ()
        self._parts = list(_dealt(self._memory, found))
        hands = len(self._parts)
        # Threads of our own: torch's spin for a while after their work, beside whoever is timed next. Only they are
        # ever kept to some CPUs, never those of the judge.
        self._hands = concurrent.futures.ThreadPoolExecutor(hands, initializer=torch.set_num_threads, initargs=(1,))
        self._driver = ctypes.CDLL("libcuda.so.1") if device.type == "cuda" else None

    def walk(self) -> None:
        """Read and write (on CUDA), or read (a CPU's cache keeps nothing else then either), all of it."""
        if self._driver is None:
            list(self._hands.map(_read, *zip(*self._parts, strict=True)))
            return
        torch.cuda.synchronize(self._device)
        self._driver.cuCtxResetPersistingL2Cache()
        self._memory.add_(1.0)
        torch.cuda.synchronize(self._device)


def _dealt(memory: torch.Tensor, caches: Sequence[LastCache]) -> Iterator[tuple[frozenset[int], torch.Tensor]]:
    """(CPUs to walk it from, none for any; a part of the memory), for one thread each."""
    if len(caches) < 2:
        hands = min(HANDS, len(os.sched_getaffinity(0))) if memory.device.type == "cpu" else 1
        yield from ((frozenset(), part) for part in memory.chunk(hands))
        return
    whole = sum(cache.size for cache in caches)
    ends = [memory.numel() * size // whole for size in itertools.accumulate(cache.size for cache in caches)]
    for cache, part in zip(caches, memory.tensor_split(ends[:-1]), strict=True):
        yield from ((cache.cpus, piece) for piece in part.chunk(min(HANDS, len(cache.cpus))))


def _read(cpus: frozenset[int], part: torch.Tensor) -> None:
    if cpus:
        os.sched_setaffinity(0, cpus)  # of this thread alone
    torch.sum(part[::LINE])


@functools.lru_cache(maxsize=1)
def of(device: torch.device, size: int) -> Cold:
    """The one that is there already: half a gigabyte (two caches of a large server) takes 0.2 s to make."""
    return Cold(device, size)
