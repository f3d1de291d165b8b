# SPDX-License-Identifier: Apache-2.0
"""What an allocator charges for a sequence of requests: the sizes themselves, or the blocks of torch's CUDA allocator.

The rules are those of c10/cuda/CUDACachingAllocator.cpp with its defaults (no PYTORCH_CUDA_ALLOC_CONF): best fit in one
of two pools, blocks split where enough is left over, neighbours joined when they are free. What is left over in a block
that is not split counts as allocated (``torch.cuda.max_memory_allocated``).
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

GRANULE, SMALL, SMALL_SEGMENT = 512, 1 << 20, 2 << 20
"""Sizes are multiples of the first; up to the second they come from segments of the third (kMinBlockSize, kSmallSize,
kSmallBuffer)."""
LARGE_SEGMENT, LARGE, LARGE_GRANULE = 20 << 20, 10 << 20, 2 << 20
"""Requests below the second come from segments of the first, others from one of their own, of multiples of the third
(kLargeBuffer, kMinLargeAlloc, kRoundLarge)."""


def rounded(size: int, granule: int) -> int:
    """``size`` rounded up to whole granules."""
    return -(-size // granule) * granule


@dataclass(slots=True, eq=False)
class Block:
    """A run of bytes of one segment. ``free``: nobody's."""

    size: int
    order: int
    """Addresses of segments are unknown; segments are ordered as they came, blocks within one by their place."""
    place: int = 0
    small: bool = False
    free: bool = True
    before: Block | None = None
    after: Block | None = None

    def key(self) -> tuple[int, int, int]:
        """Best fit is the smallest, then the one that lies first."""
        return self.size, self.order, self.place


class Sizes:
    """An allocator that charges what is asked for: a C library that maps large requests by themselves."""

    granule = 1

    def __init__(self) -> None:
        self.now = self.most = 0

    @property
    def reserved(self) -> int:
        """Bytes taken from the system at the worst moment: nothing is kept that is not in use."""
        return self.most

    def take(self, size: int) -> Block:
        """The block for so many bytes."""
        self.now += size
        self.most = max(self.most, self.now)
        return Block(size, 0, free=False)

    def give(self, block: Block) -> None:
        """The block is nobody's any more."""
        self.now -= block.size


class Blocks(Sizes):
    """torch's CUDA allocator on one stream, empty at first."""

    granule = GRANULE

    def __init__(self) -> None:
        super().__init__()
        self.segments = 0
        self.taken = 0
        self.pools: dict[bool, list[tuple[tuple[int, int, int], Block]]] = {True: [], False: []}

    @property
    def reserved(self) -> int:
        """Bytes of all segments (``torch.cuda.max_memory_reserved``): none is handed back by itself."""
        return self.taken

    def take(self, size: int) -> Block:
        """The smallest free block that holds so many bytes, else a new segment; what is worth keeping is split off."""
        size = max(GRANULE, rounded(size, GRANULE))
        small = size <= SMALL
        pool = self.pools[small]
        index = bisect.bisect_left(pool, (size, -1, -1), key=lambda entry: entry[0])
        block = pool.pop(index)[1] if index < len(pool) else self._segment(size)
        block.free = False
        rest = block.size - size
        if rest >= GRANULE if small else rest > SMALL:
            tail = Block(rest, block.order, block.place + size, small, before=block, after=block.after)
            if block.after is not None:
                block.after.before = tail
            block.after, block.size = tail, size
            self._insert(pool, tail)
        self.now += block.size
        self.most = max(self.most, self.now)
        return block

    def give(self, block: Block) -> None:
        """The block is free again, joined with free neighbours of its segment."""
        self.now -= block.size
        pool = self.pools[block.small]
        if block.before is not None and block.before.free:
            other = block.before
            self._remove(pool, other)
            block.place, block.size, block.before = other.place, block.size + other.size, other.before
            if other.before is not None:
                other.before.after = block
        if block.after is not None and block.after.free:
            other = block.after
            self._remove(pool, other)
            block.size, block.after = block.size + other.size, other.after
            if other.after is not None:
                other.after.before = block
        block.free = True
        self._insert(pool, block)

    def _segment(self, size: int) -> Block:
        large = LARGE_SEGMENT if size < LARGE else rounded(size, LARGE_GRANULE)
        whole = SMALL_SEGMENT if size <= SMALL else large
        self.segments += 1
        self.taken += whole
        return Block(whole, self.segments, small=size <= SMALL)

    @staticmethod
    def _insert(pool: list[tuple[tuple[int, int, int], Block]], block: Block) -> None:
        bisect.insort(pool, (block.key(), block), key=lambda entry: entry[0])

    @staticmethod
    def _remove(pool: list[tuple[tuple[int, int, int], Block]], block: Block) -> None:
        del pool[bisect.bisect_left(pool, block.key(), key=lambda entry: entry[0])]
