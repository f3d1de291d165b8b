# SPDX-License-Identifier: Apache-2.0
"""Facts of one program in words, whether or not a rule makes something of them: what a reader could not see himself."""

from __future__ import annotations

from collections.abc import Mapping

SHOWN = (
    ("cpu", "time_us", "repeated in one process on the same inputs, caches warm, a call takes {time_us:.4g} us"),
    ("cpu", "busy_threads", "{busy_threads:.2f} of {threads:.0f} threads work at a time"),
    ("cpu", "page_faults", "{page_faults:.0f} page faults a call (one takes {fault_us:.2g} us)"),
    ("cpu", "operators", "PyTorch operators a call: {operators:.0f}"),
    ("cpu", "widest_bits", "vectors of {widest_bits:.0f} of {machine_bits:.0f} bits"),
    ("cpu", "division_instructions", "{division_share:.0%} of the floating instructions in inner loops divide or root"),
    ("cpu", "gather_instructions", "{gather_share:.0%} of them gather from scattered addresses"),
    ("cpu", "math_calls", "{math_share:.2g} calls of scalar math functions for each of them"),
    ("cpu", "instructions_per_cycle", "{instructions_per_cycle:.2f} instructions a cycle"),
    ("cpu", "cache_misses_per_thousand", "{cache_misses_per_thousand:.3g} cache misses in a thousand instructions"),
    ("cuda", "kernels", "{kernels:.0f} kernels a call, busy for {busy_us:.4g} us of {time_us:.4g} us"),
    ("cuda", "host_us", "the host needs {host_us:.4g} us a call"),
    ("cuda", "blocks", "{blocks:.0f} blocks of {block_threads:.0f} threads on {processors:.0f} multiprocessors"),
    ("cuda", "registers", "{registers:.0f} registers a thread"),
    ("cuda", "spill_bytes", "{spill_bytes:.0f} bytes spilled a thread"),
    ("cuda", "shared_bytes", "{shared_bytes:.0f} bytes of shared memory a block"),
    ("cuda", "occupancy", "{occupancy:.0%} of the warps can be resident"),
    ("cuda", "load_bytes", "{load_bytes:.2g} bytes a global load"),
    ("cuda", "tensor_instructions", "{tensor_instructions:.0f} instructions of the matrix units"),
    ("cuda", "device_bytes", "{device_bytes:.3g} bytes through device memory where {needed_bytes:.3g} must"),
    ("cuda", "memory_throughput", "device memory {memory_throughput:.0%} busy"),
    ("cuda", "issue_active", "instruction issue {issue_active:.0%} busy"),
    ("cuda", "stall_memory", "warps wait for memory {stall_memory:.0%} of the time"),
    ("cuda", "stall_barrier", "at barriers {stall_barrier:.0%}"),
    ("cuda", "stall_dependency", "for their own results {stall_dependency:.0%}"),
)  # fmt: skip
"""Device, the fact that a sentence is about, the sentence. One that names a fact which was not measured is left out."""

UNSURE = frozenset({"widest_bits"})
"""Facts whose 0 may mean that a vector loop was not found in the disassembly, beside the scalar rest of it."""
SHARES = (
    ("division_share", "division_instructions"), ("gather_share", "gather_instructions"), ("math_share", "math_calls"),
)  # fmt: skip
"""Name in a sentence, the fact that it is the share of all floating instructions of."""


def observed(facts: Mapping[str, float], device: str) -> str:
    """One line of everything that was counted of a program; empty where nothing was."""
    known = dict(facts)
    floating = known.get("floating_instructions", 0.0)
    for share, name in SHARES:
        if name in known and floating > 0:
            known[share] = known[name] / floating
    said = []
    for kind, name, sentence in SHOWN:
        if kind != device.partition(":")[0] or name not in known or name in UNSURE and known[name] == 0:
            continue
        try:
            said.append(sentence.format_map(known))
        except KeyError:
            continue
    return f"Counted: {'; '.join(said)}." if said else ""
