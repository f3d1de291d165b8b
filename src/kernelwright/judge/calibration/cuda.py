# SPDX-License-Identifier: Apache-2.0
"""Calibration steps of a CUDA device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from kernelwright.judge.calibration import energy, kernels
from kernelwright.judge.calibration.facts import Step, fact, label, missing, rates, staircase
from kernelwright.machine import Fact

DRAM_BYTES = 4 << 30
LAUNCHES_FREE = 128 << 20
"""Copies of this size or more hide the launch of the next; captured in a graph they were slower (1 GiB: 2.7 TB/s)."""


def driver_version() -> str:
    """Version of the kernel driver, or "unknown"."""
    path = Path("/proc/driver/nvidia/version")
    text = path.read_text() if path.exists() else ""
    return next((word for word in text.split() if word[0].isdigit() and word.count(".") >= 1), "unknown")


def steps(device: str, cache: Path) -> Iterator[Step]:
    """Everything to measure on a CUDA device, in order, with a label for the progress display."""
    yield "memory bandwidth", lambda: _dram(device)
    yield "bandwidth by working set", lambda: _staircase(device)
    yield "matrix product", lambda: _gemm(device)
    yield "narrow matrix products", lambda: _narrow(device)
    yield from _compiled(device, cache)
    yield "launch", lambda: _launch(device)
    yield "host and device", lambda: _host(device)
    yield "other devices", lambda: _peers(device)
    yield "energy", lambda: energy.step(device)


def _compiled(device: str, cache: Path) -> Iterator[Step]:
    native = kernels.compiled(device, cache)
    if isinstance(native, str):
        why = native
        yield "compiled kernels", lambda: kernels.absent(why)
        return
    with torch.cuda.device(device):
        found = kernels.Kernels(native, device)
    yield "memory by plain kernels", found.streams
    yield "arithmetic peaks", found.peaks
    yield "shared memory", found.shared
    yield "load latency", found.latency
    yield "kernel launch", found.launch
    yield "atomics", found.atomics
    yield "reads by working set", found.reads
    yield "zero-copy", found.zero_copy


def synchronised(device: str, action: Callable[[], object], repeats: int) -> Callable[[], None]:
    """``repeats`` launches and one wait for the device."""

    def run() -> None:
        for _ in range(repeats):
            action()
        torch.cuda.synchronize(device)

    return run


def _rates(device: str, action: Callable[[], object], work: float, repeats: int) -> list[float]:
    return rates(synchronised(device, action, repeats), work * repeats)


def _dram(device: str) -> list[Fact]:
    count = DRAM_BYTES // 4
    one, two = torch.ones(count, device=device), torch.zeros(count, device=device)
    giga = DRAM_BYTES / 1e9
    note = "read plus written"
    return [
        fact("bandwidth.copy.dram_GBps", "GB/s", _rates(device, lambda: two.copy_(one), 2 * giga, 10), note),
        fact("bandwidth.write.dram_GBps", "GB/s", _rates(device, lambda: two.fill_(1.0), giga, 10)),
        fact("bandwidth.read.dram_GBps", "GB/s", _rates(device, lambda: torch.sum(one), giga, 10), "torch.sum"),
    ]


def _staircase(device: str) -> list[Fact]:
    found = []
    for size in staircase(1 << 20, 1 << 30):
        one = torch.ones(size // 8, device=device)
        two = torch.zeros_like(one)
        repeats = max(20, min(400, (1 << 30) // size))
        if size >= LAUNCHES_FREE:
            samples = _rates(device, lambda one=one, two=two: two.copy_(one), size / 1e9, 20)  # type: ignore[misc]
            found.append(fact(f"bandwidth.copy.{label(size)}_GBps", "GB/s", samples, "working set, read plus written"))
            continue
        graph = torch.cuda.CUDAGraph()
        two.copy_(one)
        torch.cuda.synchronize(device)
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                two.copy_(one)
        samples = rates(synchronised(device, graph.replay, 1), size * repeats / 1e9, runs=3)
        found.append(fact(f"bandwidth.copy.{label(size)}_GBps", "GB/s", samples, "working set, read plus written"))
    properties = torch.cuda.get_device_properties(device)
    found.append(fact("cache.last_level_bytes", "B", [float(properties.L2_cache_size)], "as the driver reports"))
    found.append(fact("count.processors", "", [float(properties.multi_processor_count)], "as the driver reports"))
    return found


def _gemm(device: str) -> list[Fact]:
    found, side = [], 8192
    work = 2 * side**3 / 1e12
    plans = [("float64", torch.float64, 2), ("float32", torch.float32, 2), ("float16", torch.float16, 8)]
    for name, dtype, repeats in [*plans, ("bfloat16", torch.bfloat16, 8)]:
        one = torch.randn(side, side, device=device).to(dtype)
        two = torch.randn(side, side, device=device).to(dtype)
        samples = _rates(device, lambda one=one, two=two: torch.mm(one, two), work, repeats)  # type: ignore[misc]
        found.append(fact(f"peak.gemm.{name}_TFLOPs", "TFLOP/s", samples, f"torch.mm of {side} cubed, random data"))
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    one, two = torch.randn(side, side, device=device), torch.randn(side, side, device=device)
    samples = _rates(device, lambda: torch.mm(one, two), work, 4)
    torch.backends.cuda.matmul.allow_tf32 = allowed
    return [*found, fact("peak.gemm.tf32_TFLOPs", "TFLOP/s", samples, f"torch.mm of {side} cubed, random data")]


def _narrow(device: str) -> list[Fact]:
    """Products of 8-bit types, where torch has them on this device."""
    side, found = 8192, []
    work = 2 * side**3 / 1e12
    small = torch.randint(-8, 8, (side, side), device=device, dtype=torch.int8)
    name = "peak.gemm.int8_TFLOPs"
    note = f"torch._int_mm of {side} cubed, random data"
    try:
        samples = _rates(device, lambda: torch._int_mm(small, small.t()), work, 8)
        found.append(fact(name, "TOP/s", samples, note))
    except (RuntimeError, AttributeError) as error:
        found.append(missing(name, "TOP/s", str(error).splitlines()[0][:120]))
    name = "peak.gemm.float8_e4m3fn_TFLOPs"
    try:
        tiny = torch.randn(side, side, device=device).to(torch.float8_e4m3fn)
        one = torch.ones((), device=device)
        samples = _rates(device, lambda: torch._scaled_mm(tiny, tiny.t(), one, one, out_dtype=torch.bfloat16), work, 8)
        found.append(fact(name, "TFLOP/s", samples, f"torch._scaled_mm of {side} cubed, random data"))
    except (RuntimeError, AttributeError, TypeError) as error:
        found.append(missing(name, "TFLOP/s", str(error).splitlines()[0][:120]))
    return found


def _launch(device: str) -> list[Fact]:
    small, many = torch.ones(1, device=device), 2000
    through = [1e6 / rate for rate in _rates(device, lambda: small.add_(1.0), 1.0, many)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(200):
            small.add_(1.0)
    replay = [1e6 / rate for rate in rates(synchronised(device, graph.replay, 10), 2000.0)]

    def waits() -> None:
        for _ in range(200):
            small.add_(1.0)
            torch.cuda.synchronize(device)

    pauses = [max(0.0, 1e6 / rate - min(through)) for rate in rates(waits, 200.0)]
    return [
        fact("latency.launch_us", "us", through, "one small torch operator, back to back"),
        fact("latency.synchronise_us", "us", pauses, "a wait after each operator, above launching it alone"),
        fact("latency.graph_node_us", "us", replay, "one small kernel inside a replayed graph"),
    ]


def _host(device: str) -> list[Fact]:
    count = 256 << 20
    there = torch.empty(count, dtype=torch.uint8, device=device)
    pageable = torch.ones(count, dtype=torch.uint8)
    pinned = pageable.pin_memory()
    giga = count / 1e9
    return [
        fact("bandwidth.host_to_device.pageable_GBps", "GB/s", _rates(device, lambda: there.copy_(pageable), giga, 2)),
        fact(
            "bandwidth.host_to_device.pinned_GBps",
            "GB/s",
            _rates(device, lambda: there.copy_(pinned, non_blocking=True), giga, 4),
        ),
        fact(
            "bandwidth.device_to_host.pinned_GBps",
            "GB/s",
            _rates(device, lambda: pinned.copy_(there, non_blocking=True), giga, 4),
        ),
    ]


def _peers(device: str) -> list[Fact]:
    name, count = "bandwidth.peer_GBps", torch.cuda.device_count()
    others = [f"cuda:{index}" for index in range(count) if f"cuda:{index}" != device]
    if not others:
        return [missing(name, "GB/s", "there is one device")]
    size = 256 << 20
    here = torch.ones(size, dtype=torch.uint8, device=device)
    there = torch.empty(size, dtype=torch.uint8, device=others[0])
    direct = torch.cuda.can_device_access_peer(torch.device(device), torch.device(others[0]))
    note = f"to {others[0]}, {'directly' if direct else 'through the host'}"
    return [fact(name, "GB/s", _rates(device, lambda: there.copy_(here), size / 1e9, 4), note)]
