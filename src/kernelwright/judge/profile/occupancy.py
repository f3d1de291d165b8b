# SPDX-License-Identifier: Apache-2.0
"""How many warps of a kernel fit a multiprocessor, by registers, shared memory and threads, and which binds.

The allocation units are those of the CUDA occupancy calculator for compute capability 7.0 to 9.0: registers by 256 a
warp, shared memory by 128 bytes a block, of which 1 KiB is reserved from 8.0 on.
"""

from __future__ import annotations

from dataclasses import dataclass

REGISTER_UNIT = 256
SHARED_UNIT = 128
RESERVED = 1024
WARP = 32


@dataclass(frozen=True, slots=True)
class Processor:
    """One multiprocessor, as the driver describes it."""

    registers: int
    shared_bytes: int
    threads: int
    blocks: int = 32


def limits(processor: Processor, *, registers: float, shared_bytes: float, threads: float) -> dict[str, float]:
    """Shares of the resident warps that each resource allows, 0 to 1, rounded down to whole blocks."""
    most = processor.threads // WARP
    warps = max(1, -(-int(threads) // WARP))
    per_warp = max(REGISTER_UNIT, -(-int(registers) * WARP // REGISTER_UNIT) * REGISTER_UNIT)
    by_registers = processor.registers // per_warp // warps
    per_block = -(-(int(shared_bytes) + RESERVED) // SHARED_UNIT) * SHARED_UNIT
    by_shared = processor.shared_bytes // per_block
    by_threads = min(most // warps, processor.blocks)
    return {
        "occupancy_by_registers": min(1.0, by_registers * warps / most),
        "occupancy_by_shared": min(1.0, by_shared * warps / most),
        "occupancy_by_threads": min(1.0, by_threads * warps / most),
        "occupancy": min(by_registers, by_shared, by_threads) * warps / most,
    }
