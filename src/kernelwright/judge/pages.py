# SPDX-License-Identifier: Apache-2.0
"""Freed memory stays with the judge: comparisons make temporaries of tens of megabytes again and again.

By default glibc maps each of them afresh and the kernel clears its pages, which takes longer than the arithmetic:
reading 4 Mi elements in float64 goes from 20 ms to 4 ms. Only for the judge; programs under test run as users' do.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
"""Parameters of glibc's ``mallopt``."""
_NEVER = 2**31 - 1


def keep_freed_pages() -> bool:
    """Let the C library hold on to what this process frees, for good. False where it is not glibc.

    One arena for all threads: those of other threads than the first are given back whatever the threshold says.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(*pair) for pair in ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER)))
