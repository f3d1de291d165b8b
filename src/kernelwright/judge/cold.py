# SPDX-License-Identifier: Apache-2.0
"""A cold last-level cache before every window, the part that a program asked to persist included."""

from __future__ import annotations

import ctypes

import torch


class Cold:
    """Memory of ``size`` bytes that nobody uses; walking it leaves nothing else in the cache of ``device``.

    On CUDA, lines that a program marked as persisting survive any walk (llm.c PR 851 was timed that way), so they
    are reset first by ``cuCtxResetPersistingL2Cache``.
    """

    def __init__(self, device: torch.device, size: int) -> None:
        self._device = device
        self._memory = torch.ones(max(1, size // 4), dtype=torch.float32, device=device)
        self._driver = ctypes.CDLL("libcuda.so.1") if device.type == "cuda" else None

    def walk(self) -> None:
        """Read and write (on CUDA), or read (a CPU's cache keeps nothing else then either), all of it."""
        if self._driver is None:
            self._memory.sum()
            return
        torch.cuda.synchronize(self._device)
        self._driver.cuCtxResetPersistingL2Cache()
        self._memory.add_(1.0)
        torch.cuda.synchronize(self._device)
