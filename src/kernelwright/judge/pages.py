# SPDX-License-Identifier: Apache-2.0
"""Freed memory stays with the judge: comparisons make temporaries of tens of megabytes again and again.

By default glibc maps each of them afresh and the kernel clears its pages, which takes longer than the arithmetic:
reading 4 Mi elements in float64 goes from 20 ms to 4 ms.

Programs under test keep theirs too, as far as glibc goes by itself (``steady``).
"""

from __future__ import annotations

import ctypes
from typing import ClassVar

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8
"""Parameters of glibc's ``mallopt``."""
_NEVER = 2**31 - 1
_LARGEST = 32 << 20
"""The highest threshold that glibc takes: 4 Mi elements in float64."""
LARGE = 64 << 20
LARGE_SHARE = 1 / 64
"""Bytes of a call, and part of the memory that is free, above which what is freed goes back to the system. Kept, holes
of tens of sizes add up: a GELU of 64 MiB, 128 MiB a call, took the judge to 4.4 GB instead of 2.7, and one of 256 MiB
was killed with 24 GB in all. Where pages are dear it pays as long as it fits: a product with 288 MiB of inputs and
weights spent 14 s in the kernel instead of 24 on two cores of an EPYC, of 85 in all."""
KEPT_SHARE = 1 / 4
"""Part of the free memory up to which what was freed stays for the next task. The first one of a judge clears some 1.9
GB of pages, which there takes 3 s."""


def keep_freed_pages() -> bool:
    """Let the C library hold on to what this process frees, for good. False where it is not glibc.

    One arena for all threads: those of other threads than the first are given back whatever the threshold says.
    """
    library = ctypes.CDLL(None)
    mallopt = getattr(library, "mallopt", None)
    if mallopt is None:
        return False
    _KEPT[:] = [library]
    return all(mallopt(*pair) for pair in ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER)))


_KEPT: list[ctypes.CDLL] = []
"""The C library, once it was told to keep pages."""


def steady() -> None:
    """The same allocator for every program under test: what is freed is kept, up to the size that glibc maps by itself.

    Left alone, glibc trims the heap where what was freed lies at its end, and does not where any small block lies above
    it. So an RMSNorm of 16 MiB got its three temporaries back for nothing or with 8160 page faults in every call, 1.7
    or 2.9 ms on 16 cores, by what its process happened to have allocated before: judged against itself it was 0.57
    times as fast. Now each is timed in the better state of the two, eager too.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, _NEVER)


def give_back(free: int | None = None) -> int:
    """Give what this process has freed back to the system, unless that is little beside the ``free`` bytes it has.

    Returns the bytes of it that stay in the address space: they can be had again without growing it. 0 where nothing
    was kept or given, or the C library does not say (``mallinfo2``: glibc 2.33).
    """
    for library in _KEPT:
        tell = getattr(library, "mallinfo2", None)
        if tell is None:
            library.malloc_trim(0)
            return 0
        tell.restype = _Mallinfo2
        if free is not None and tell().fordblks <= KEPT_SHARE * free:
            return 0
        library.malloc_trim(0)
        return int(tell().fordblks)
    return 0


class _Mallinfo2(ctypes.Structure):
    """``struct mallinfo2`` of glibc's malloc.h: ten sizes, of which ``fordblks`` is what is free in its heaps."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def suit(call_bytes: int, free: int | None) -> None:
    """Keep pages for calls of this size, with so many bytes free (None: unknown), or give them back; nothing where
    ``keep_freed_pages`` was not asked for."""
    for library in _KEPT:
        large = call_bytes > max(LARGE, LARGE_SHARE * (free or 0))
        library.mallopt(_MMAP_THRESHOLD, _LARGEST)
        library.mallopt(_MMAP_MAX, 1 << 16 if large else 0)
        library.mallopt(_TRIM_THRESHOLD, LARGE if large else _NEVER)
        if large:
            library.malloc_trim(0)
