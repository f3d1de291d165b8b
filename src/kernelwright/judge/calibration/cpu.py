# SPDX-License-Identifier: Apache-2.0
"""Calibration steps of a CPU: compiled streams, chases and multiply-add chains, and torch's own matrix product."""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.energy import spent
from kernelwright.errors import JudgeFailed
from kernelwright.judge import measure
from kernelwright.judge.build import build
from kernelwright.judge.calibration import energy
from kernelwright.judge.calibration.facts import Step, fact, label, rates, staircase
from kernelwright.machine import Fact
from kernelwright.trial import Rejected

SOURCE = Path(__file__).with_name("cpu.cpp")

AHEAD = (0, 1024)
"""Floats by which software asks ahead of a stream. On two Zen 4 cores it reads 29 GB/s so, and 23 without."""
DRAM_BYTES = 512 << 20
"""Several times any last-level cache seen (largest: 384 MiB shared between sockets, far less per core in use)."""

SIDES, PRODUCT_SECONDS = (1536, 768, 384), 0.4
"""Square products that are measured: the largest that the smallest one says take no longer. Where a processor has no
instructions for bfloat16, torch 2.13 makes 1 GFLOP/s of it (two Zen 3 cores), and six products of 1536 took 55 s."""


def source_digest() -> str:
    """Of the kernels that measure."""
    return wire.digest(SOURCE.read_text(encoding="utf-8"))[:8]


def processor_name() -> str:
    """What /proc/cpuinfo calls the processor."""
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), flags=re.MULTILINE)
    return found.group(1) if found else "unknown processor"


def last_level_cache_bytes() -> int:
    """Size of CPU 0's largest cache as the kernel reports it, or 32 MiB where it does not."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]])
    return max(sizes, default=32 << 20)


def library(cache: Path) -> ctypes.CDLL:
    """The compiled micro-kernels. Raises ``JudgeFailed`` if our own source does not compile here."""
    candidate = Candidate(
        task="calibration",
        language="cpp",
        entry="entry.py::Entry",
        sources=(("cpu.cpp", SOURCE.read_text()), ("entry.py", "")),
        proposer="calibration",
    )
    folder = build(candidate, "cpu", cache)
    if isinstance(folder, Rejected):
        raise JudgeFailed("The calibration kernels do not compile", folder.detail, "g++ 11 or newer", folder.reason)
    found = ctypes.CDLL(str(folder / "cpu.so"))
    for name in ("read_stream", "write_stream", "copy_stream", "peak_simd_f32", "peak_simd_f64", "peak_scalar_f32"):
        getattr(found, name).restype = ctypes.c_double
    found.fork_join.restype = found.atomics.restype = found.touch_pages.restype = ctypes.c_double
    found.chase.restype = ctypes.c_int64
    return found


def steps(device: str, cache: Path) -> Iterator[Step]:
    """Everything to measure on a CPU, in order, with a label for the progress display."""
    native = library(cache)
    threads = len(os.sched_getaffinity(0))
    yield "memory bandwidth", lambda: _dram(native, threads)
    yield "bandwidth by working set", lambda: _staircase(native, threads)
    yield "latency by working set", lambda: _latency(native)
    yield "arithmetic peaks", lambda: _peaks(native, threads)
    yield "matrix product", lambda: _gemm(threads)
    yield "launch and synchronisation", lambda: _overheads(native, threads)
    yield "copies and writes by working set", _library_staircase
    yield "energy", _energy


def _address(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _dram(native: ctypes.CDLL, threads: int) -> list[Fact]:
    count = DRAM_BYTES // 4
    one, two = torch.ones(count), torch.zeros(count)
    size, team, once = ctypes.c_int64(count), ctypes.c_int(threads), ctypes.c_int64(1)
    giga = DRAM_BYTES / 1e9
    read, copy = [], []
    for ahead in map(ctypes.c_int64, AHEAD):
        read += rates(lambda ahead=ahead: native.read_stream(_address(one), size, once, team, ahead), giga)  # type: ignore[misc]
        copy += rates(
            lambda ahead=ahead: native.copy_stream(_address(two), _address(one), size, once, team, ahead),  # type: ignore[misc]
            2 * giga,
        )
    write = rates(lambda: native.write_stream(_address(one), size, once, team), giga)
    library_copy = rates(lambda: two.copy_(one), 2 * giga)
    return [
        fact("bandwidth.read.dram_GBps", "GB/s", read),
        fact("bandwidth.write.dram_GBps", "GB/s", write, "streaming stores"),
        fact("bandwidth.copy.dram_GBps", "GB/s", copy, "read plus written, streaming stores"),
        fact("bandwidth.torch_copy.dram_GBps", "GB/s", library_copy, "read plus written, as torch copies"),
    ]


def _staircase(native: ctypes.CDLL, threads: int) -> list[Fact]:
    found, team = [], ctypes.c_int(threads)
    for size in staircase(16 << 10, 256 << 20):
        data = torch.ones(size // 4)
        repeats = max(1, (128 << 20) // size)
        samples = rates(
            lambda data=data, size=size, repeats=repeats: native.read_stream(  # type: ignore[misc]
                _address(data), ctypes.c_int64(size // 4), ctypes.c_int64(repeats), team, ctypes.c_int64(0)
            ),
            size * repeats / 1e9,
            runs=3,
        )
        found.append(fact(f"bandwidth.read.{label(size)}_GBps", "GB/s", samples, f"{threads} threads together"))
    found.append(fact("cache.last_level_bytes", "B", [float(last_level_cache_bytes())], "as the kernel reports"))
    return found


def _library_staircase() -> list[Fact]:
    """Copies and writes as torch makes them, from sizes at which its own cost of a call no longer counts."""
    found = []
    for size in staircase(512 << 10, 256 << 20):
        one, two = torch.ones(size // 8), torch.zeros(size // 8)
        repeats = max(1, (64 << 20) // size)

        def copies(one: torch.Tensor = one, two: torch.Tensor = two, repeats: int = repeats) -> None:
            for _ in range(repeats):
                two.copy_(one)

        def writes(one: torch.Tensor = one, two: torch.Tensor = two, repeats: int = repeats) -> None:
            for _ in range(repeats):
                one.fill_(1.0)
                two.fill_(1.0)

        for name, action in (("copy", copies), ("write", writes)):
            samples = rates(action, size * repeats / 1e9, runs=3)
            found.append(fact(f"bandwidth.{name}.{label(size)}_GBps", "GB/s", samples, "working set, as torch does"))
    return found


def _latency(native: ctypes.CDLL) -> list[Fact]:
    found, count = [], 200_000
    for size in (16 << 10, 256 << 10, 4 << 20, 16 << 20, 128 << 20):
        lines = size // 64
        dice = torch.Generator().manual_seed(0)  # two million numbers shuffled in Python took 2 of 4.4 s
        cycle = torch.cat([torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(lines - 1, generator=dice)])
        chain = torch.zeros(lines * 8, dtype=torch.int64)
        chain[cycle * 8] = torch.roll(cycle, -1) * 8
        native.chase(_address(chain), ctypes.c_int64(min(lines, count)))
        samples = [
            measure.stopwatch(lambda chain=chain: native.chase(_address(chain), ctypes.c_int64(count))) / count * 1e9  # type: ignore[misc]
            for _ in range(5)
        ]
        found.append(fact(f"latency.load.{label(size)}_ns", "ns", samples, "dependent loads, one thread"))
    return found


def _peaks(native: ctypes.CDLL, threads: int) -> list[Fact]:
    found, count, team = [], 2_000_000, ctypes.c_int(threads)
    for name, function, lanes in (
        ("simd.float32", native.peak_simd_f32, native.lanes()),
        ("simd.float64", native.peak_simd_f64, native.lanes() // 2),
        ("scalar.float32", native.peak_scalar_f32, 1),
    ):
        work = 2.0 * 12 * lanes * count * threads / 1e12
        samples = rates(lambda function=function: function(ctypes.c_int64(count), team), work)  # type: ignore[misc]
        found.append(fact(f"peak.{name}_TFLOPs", "TFLOP/s", samples, f"{threads} threads together"))
    return found


def _gemm(threads: int) -> list[Fact]:
    found = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        side, samples = SIDES[-1], _products(dtype, SIDES[-1], runs=3)
        for larger in SIDES[:-1]:
            if 2 * larger**3 / 1e12 / max(samples) <= PRODUCT_SECONDS:
                side, samples = larger, _products(dtype, larger, runs=5)
                break
        name = str(dtype).removeprefix("torch.")
        found.append(fact(f"peak.gemm.{name}_TFLOPs", "TFLOP/s", samples, f"torch.mm of {side} cubed"))
    return found


def _products(dtype: torch.dtype, side: int, runs: int) -> list[float]:
    """TFLOP/s of square products."""
    one, two = torch.randn(side, side).to(dtype), torch.randn(side, side).to(dtype)
    return rates(lambda: torch.mm(one, two), 2 * side**3 / 1e12, runs=runs)


def _overheads(native: ctypes.CDLL, threads: int) -> list[Fact]:
    team, many = ctypes.c_int(threads), 2000
    forks = [measure.stopwatch(lambda: native.fork_join(ctypes.c_int64(many), team)) / many * 1e6 for _ in range(5)]
    small = torch.ones(1)

    def calls() -> None:
        for _ in range(many):
            torch.relu(small)

    launches = [measure.stopwatch(calls) / many * 1e6 for _ in range(5)]
    adds = rates(lambda: native.atomics(ctypes.c_int64(200_000), team), 200_000 * threads / 1e9, runs=5)
    pages = 4096
    faults = [measure.stopwatch(lambda: native.touch_pages(ctypes.c_int64(pages))) / pages * 1e6 for _ in range(5)]
    return [
        fact("latency.page_fault_us", "us", faults, "first touch of a fresh 4 KiB page, one thread"),
        fact("latency.fork_join_us", "us", forks, f"empty OpenMP region, {threads} threads"),
        fact("latency.launch_us", "us", launches, "one torch operator on one element"),
        fact("rate.atomics_contended_Gops", "Gop/s", adds, "one shared counter"),
    ]


def _energy() -> list[Fact]:
    """What ``_powers`` measures, or nothing and why."""
    try:
        return _powers()
    except OSError as error:
        return energy.absent(str(error))


def _powers() -> list[Fact]:
    """Power at rest, under a copy and a product, and energy per byte and FLOP above rest, by the RAPL counter."""
    idle = _watts(lambda: time.sleep(0.5), 1)[0]
    count, side = 64 << 20, 1536
    one, two = torch.ones(count), torch.zeros(count)
    left = torch.randn(side, side)
    copying, copies, copied = _watts(lambda: two.copy_(one), 20)
    working, products, done = _watts(lambda: torch.mm(left, left), 40)
    note = "energy above rest, RAPL counter of the packages"
    return [
        fact("power.idle_W", "W", [idle], "half a second of rest"),
        fact("power.copy_W", "W", [copying], "large copy"),
        fact("power.gemm_W", "W", [working], f"float32 product of {side} cubed"),
        fact("energy.per_byte_pJ", "pJ/B", [(copying - idle) * copied / (8.0 * count * copies) * 1e12], note),
        fact("energy.per_flop_pJ", "pJ/FLOP", [(working - idle) * done / (2.0 * side**3 * products) * 1e12], note),
    ]


def _watts(action: Callable[[], object], times: int) -> tuple[float, int, float]:
    """(watts, calls, seconds) of ``times`` calls. Raises OSError where there is no counter that can tell."""

    def run() -> None:
        for _ in range(times):
            action()

    before = energy.reading("cpu")
    seconds = measure.stopwatch(run)
    joules, why = spent(before, energy.reading("cpu"), seconds)
    if joules is None:
        raise OSError(why)
    return joules / seconds, times, seconds
