# SPDX-License-Identifier: Apache-2.0
"""From the profiler's trace of a few marked calls: kernels, device busy time, waits of the host, layout copies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.judge.profile.replay import MARK
from kernelwright.judge.profile.sass import plain

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
WAITS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
         "cuCtxSynchronize", "cuEventSynchronize", "cudaMemcpy")  # fmt: skip
_LAYOUT = re.compile(r"direct_copy_kernel|nchwToNhwc|nhwcToNchw|transpose_readWrite|Memcpy DtoD|CatArrayBatchedCopy")
_PRODUCT = re.compile(r"gemm|gemv|cutlass|nvjet|xmma|cublas|wgrad|dgrad|fprop|conv", re.I)


@dataclass(slots=True)
class Launch:
    """All launches of one kernel, per call."""

    name: str
    count: float = 0.0
    us: float = 0.0
    blocks: float = 0.0
    threads: float = 0.0
    """Threads of a block."""
    registers: float = 0.0
    shared_bytes: float = 0.0
    """Shared memory of a block, static and dynamic."""


def read(trace: Mapping[str, Any]) -> tuple[dict[str, float], list[Launch]]:
    """(facts per call, kernels by time) from a trace in Chrome's format."""
    events = [event for event in trace.get("traceEvents", ()) if event.get("ph") == "X"]
    calls = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == MARK and e.get("cat") == "user_annotation"]
    if not calls:
        return {}, []
    begun = min(start for start, _ in calls)
    work = [event for event in events if event.get("cat") in ON_DEVICE and event["ts"] >= begun]
    waits = [
        event
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and event["name"].startswith(WAITS)
        and event["name"] != "cudaMemcpyAsync" and any(start <= event["ts"] <= end for start, end in calls)
    ]  # fmt: skip
    number = len(calls)
    launches = _launches(work, number)
    layout = sum(event["dur"] for event in work if _LAYOUT.search(event["name"]))
    product = sum(event["dur"] for event in work if event["cat"] == "kernel" and _PRODUCT.search(event["name"]))
    found = {
        "kernels": sum(one.count for one in launches),
        "busy_us": _covered([(event["ts"], event["ts"] + event["dur"]) for event in work]) / number,
        "synchronisations": len(waits) / number,
        "waiting_us": sum(event["dur"] for event in waits) / number,
        "layout_copy_us": layout / number,
        "library_product_us": product / number,
    }
    return found, launches


def _launches(work: Sequence[Mapping[str, Any]], number: int) -> list[Launch]:
    found: dict[str, Launch] = {}
    for event in work:
        if event["cat"] != "kernel":
            continue
        name = plain(event["name"])
        one = found.setdefault(name, Launch(name))
        arguments = event.get("args", {})
        one.count += 1 / number
        one.us += event["dur"] / number
        one.blocks = max(one.blocks, _product(arguments.get("grid", ())))
        one.threads = max(one.threads, _product(arguments.get("block", ())))
        one.registers = max(one.registers, float(arguments.get("registers per thread", 0)))
        one.shared_bytes = max(one.shared_bytes, float(arguments.get("shared memory", 0)))
    return sorted(found.values(), key=lambda one: -one.us)


def _product(sizes: Sequence[int]) -> float:
    total = 1.0 if sizes else 0.0
    for size in sizes:
        total *= size
    return total


def _covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union of the spans."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total
