# SPDX-License-Identifier: Apache-2.0
"""What a block may ask for and what a multiprocessor or a core holds, in words, from the machine's facts alone."""

from __future__ import annotations

from kernelwright.machine import Machine

ASKING = (
    "where the launch asks for it (`cudaFuncSetAttribute` with `cudaFuncAttributeMaxDynamicSharedMemorySize`; Triton "
    "does so itself)"
)
"""How more shared memory is had than a block gets unasked: CUDA C++ Programming Guide, shared memory."""


def describe_capacity(machine: Machine) -> list[str]:
    """A line each for a block, a multiprocessor and the caches of a core; what no fact says is left out."""
    known = {one.name: one.value for one in machine.facts if one.value is not None}
    lines = (_block(known), _processor(known), _core(known))
    return [line for line in lines if line]


def size(value: float) -> str:
    """``48 KiB``, ``1.5 MiB``."""
    for unit, width in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= width:
            return f"{value / width:.4g} {unit}"
    return f"{value:.0f} bytes"


def _block(known: dict[str, float]) -> str:
    threads, registers = known.get("limit.block.threads"), known.get("limit.block.registers")
    warp, most = known.get("count.warp_threads"), known.get("limit.thread.registers")
    shared, asked = known.get("limit.block.shared_bytes"), known.get("limit.block.shared_most_bytes")
    parts = []
    if threads:
        parts.append(f"{threads:.0f} threads" + (f" ({threads / warp:.0f} warps of {warp:.0f})" if warp else ""))
    if registers:
        each = [f"{registers / threads:.0f} for each of {threads:.0f} threads"] if threads else []
        each += [f"{most:.0f} for one thread at most"] if most else []
        parts.append(f"{registers:.0f} registers of 32 bits" + (f" ({', '.join(each)})" if each else ""))
    if shared:
        more = f", {size(asked)} {ASKING}" if asked and asked > shared else ""
        parts.append(f"{size(shared)} of shared memory{more}")
    return "a block has at most: " + "; ".join(parts) if parts else ""


def _processor(known: dict[str, float]) -> str:
    parts = []
    if "limit.processor.threads" in known:
        parts.append(f"{known['limit.processor.threads']:.0f} threads")
    if "limit.processor.blocks" in known:
        parts.append(f"{known['limit.processor.blocks']:.0f} blocks")
    if "limit.processor.registers" in known:
        parts.append(f"{known['limit.processor.registers']:.0f} registers")
    if "limit.processor.shared_bytes" in known:
        kept = known.get("limit.block.shared_reserved_bytes")
        more = f", of which each block takes {size(kept)} more than it asks for" if kept else ""
        parts.append(f"{size(known['limit.processor.shared_bytes'])} of shared memory{more}")
    return "a multiprocessor holds at once at most: " + "; ".join(parts) if parts else ""


def _core(known: dict[str, float]) -> str:
    levels = (("cache.first_level_bytes", "first-level data"), ("cache.second_level_bytes", "second-level"))
    parts = [f"{size(known[name])} {words}" for name, words in levels if name in known]
    if "cache.line_bytes" in known:
        parts.append(f"lines of {known['cache.line_bytes']:.0f} bytes")
    if "count.last_level_sharers" in known:
        parts.append(f"the last level is shared by {known['count.last_level_sharers']:.0f} of the threads above")
    return "caches of one core: " + ", ".join(parts) if parts else ""
