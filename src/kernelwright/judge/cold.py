# SPDX-License-Identifier: Apache-2.0
"""A cold last-level cache before every window, the part that a program asked to persist included."""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import os

import torch


class Cold:
    """Memory of ``size`` bytes that nobody uses; walking it leaves nothing else in the cache of ``device``.

    On CUDA, lines that a program marked as persisting survive any walk (llm.c PR 851 was timed that way), so they
    are reset first by ``cuCtxResetPersistingL2Cache``.
    """

    def __init__(self, device: torch.device, size: int) -> None:
        self._device = device
        self._memory = torch.ones(max(1, size // 4), dtype=torch.float32, device=device)
        hands = min(4, len(os.sched_getaffinity(0))) if device.type == "cpu" else 1
        self._parts = self._memory.chunk(hands)
        # Threads of our own: torch's spin for a while after their work, beside whoever is timed next.
        self._hands = concurrent.futures.ThreadPoolExecutor(hands, initializer=torch.set_num_threads, initargs=(1,))
        self._driver = ctypes.CDLL("libcuda.so.1") if device.type == "cuda" else None

    def walk(self) -> None:
        """Read and write (on CUDA), or read (a CPU's cache keeps nothing else then either), all of it."""
        if self._driver is None:
            list(self._hands.map(torch.sum, self._parts))
            return
        torch.cuda.synchronize(self._device)
        self._driver.cuCtxResetPersistingL2Cache()
        self._memory.add_(1.0)
        torch.cuda.synchronize(self._device)


@functools.lru_cache(maxsize=1)
def of(device: torch.device, size: int) -> Cold:
    """The one that is there already: half a gigabyte (two caches of a large server) takes 0.2 s to make."""
    return Cold(device, size)
