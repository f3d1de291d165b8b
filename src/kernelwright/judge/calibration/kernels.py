# SPDX-License-Identifier: Apache-2.0
"""Calibration steps of a CUDA device that need compiled micro-kernels: pipes, shared memory, latencies, atomics.

What to look at follows the published micro-benchmark dissections of NVIDIA architectures: independent chains for
peaks, dependent loads for latency, strides for bank conflicts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch

from kernelwright.candidate import Candidate
from kernelwright.errors import ToolMissing
from kernelwright.judge import measure
from kernelwright.judge.build import build
from kernelwright.judge.calibration.facts import fact, label, missing, rates, staircase
from kernelwright.machine import Fact
from kernelwright.trial import Rejected

SOURCE = Path(__file__).with_name("cuda.cu")
THREADS = 256
PER_PROCESSOR = 8
CHAINS = 8
UNROLLED = 8
STEPS = 4096
FAR = 128 << 20
"""Working sets from here on are far beyond any L2 there is (50 MiB on an H100, 60 on an H200, 126 on a B200)."""


def compiled(device: str, cache: Path) -> ctypes.CDLL | str:
    """The compiled micro-kernels, or why there are none."""
    candidate = Candidate(
        task="calibration",
        language="cuda",
        entry="entry.py::Entry",
        sources=(("cuda.cu", SOURCE.read_text(encoding="utf-8")), ("entry.py", "")),
        proposer="calibration",
    )
    try:
        folder = build(candidate, device, cache)
    except ToolMissing as error:
        return error.what
    if isinstance(folder, Rejected):
        return f"the calibration kernels do not compile: {folder.detail.strip()[:200]}"
    return ctypes.CDLL(str(folder / "cuda.so"))


class Kernels:
    """The compiled kernels on one device; every method is one calibration step."""

    def __init__(self, native: ctypes.CDLL, device: str) -> None:
        self.native, self.device = native, device
        about = torch.cuda.get_device_properties(device)
        self.processors = about.multi_processor_count
        self.hopper = about.major >= 9
        self.blocks = self.processors * PER_PROCESSOR
        self.out = torch.empty(self.blocks * THREADS * 2, dtype=torch.float64, device=device)

    def _call(
        self, name: str, *arguments: int | ctypes.c_void_p | ctypes.c_int64, times: int = 1
    ) -> Callable[[], None]:
        function = getattr(self.native, name)

        def run() -> None:
            for _ in range(times):
                status = function(*arguments)
                if status:
                    raise RuntimeError(f"{name}: CUDA error {status}")
            torch.cuda.synchronize(self.device)

        return run

    def _at(self, tensor: torch.Tensor) -> ctypes.c_void_p:
        return ctypes.c_void_p(tensor.data_ptr())

    def peaks(self) -> list[Fact]:
        """Multiply-adds of independent chains on the vector units; DPX on devices that have it."""
        found = []
        lanes = self.blocks * THREADS * CHAINS * UNROLLED
        plans = (("float32", "run_f32", 4096, 1), ("float64", "run_f64", 2048, 1), ("float16", "run_f16", 4096, 2))
        for name, function, trips, wide in plans:
            run = self._call(function, self._at(self.out), self.blocks, THREADS, trips)
            samples = rates(run, 2.0 * wide * lanes * trips / 1e12)
            found.append(fact(f"peak.simd.{name}_TFLOPs", "TFLOP/s", samples, "independent multiply-adds"))
        if not self.hopper:
            return [*found, missing("rate.dpx_Gops", "Gop/s", "this device has no DPX instructions")]
        run = self._call("run_dpx", self._at(self.out), self.blocks, THREADS, 2048)
        return [*found, fact("rate.dpx_Gops", "Gop/s", rates(run, lanes * 2048 / 1e9), "32-bit add and maximum")]

    def shared(self) -> list[Fact]:
        """Shared memory: without conflicts, with 32-way ones, and of the neighbour in a cluster."""
        seconds = {}
        trips, work = 2048, self.blocks * THREADS * 8 * 4 * 2048 / 1e9
        for stride in (1, 32):
            run = self._call("run_shared", self._at(self.out), self.blocks, THREADS, stride, trips)
            seconds[stride] = rates(run, work)
        cost = [fast / slow for fast, slow in zip(seconds[1], seconds[32], strict=True)]
        found = [
            fact("bandwidth.shared_GBps", "GB/s", seconds[1], "4-byte reads, no conflicts"),
            fact("cost.bank_conflict_32_way", "ratio", cost, "time of a 32-way conflict over none"),
        ]
        name = "bandwidth.distributed_shared_GBps"
        if not self.hopper:
            return [*found, missing(name, "GB/s", "this device has no thread-block clusters")]
        run = self._call("run_other_shared", self._at(self.out), self.processors * 4 // 2 * 2, THREADS, 1024)
        moved = self.processors * 4 // 2 * 2 * THREADS * 1024 * 64 / 1e9
        return [*found, fact(name, "GB/s", rates(run, moved), "reads of the other block's memory in clusters of 2")]

    def latency(self) -> list[Fact]:
        """Dependent loads of one thread, by working set."""
        found = []
        run = self._call("run_follow_shared", self._at(self.out), ctypes.c_int64(STEPS * 8))
        run()
        samples = [measure.stopwatch(run) / (STEPS * 8) * 1e9 for _ in range(5)]
        found.append(fact("latency.load.shared_ns", "ns", samples, "dependent loads, one thread"))
        for size in (16 << 10, 1 << 20, 16 << 20, 512 << 20):
            lines = size // 128
            order = torch.randperm(lines, device=self.device)
            chain = torch.zeros(lines * 16, dtype=torch.int64, device=self.device)
            chain[order * 16] = torch.roll(order, -1) * 16
            # Small sets: many rounds, so that the launch does not count; the largest: more lines than any L2 holds.
            steps = max(20_000, min(2 * lines, 1_000_000))
            run = self._call("run_follow", self._at(self.out), self._at(chain), ctypes.c_int64(steps))
            run()
            samples = [measure.stopwatch(run) / steps * 1e9 for _ in range(3)]
            found.append(fact(f"latency.load.{label(size)}_ns", "ns", samples, "dependent loads, one thread"))
        return found

    def launch(self) -> list[Fact]:
        """An empty kernel, launched back to back by compiled code; and the most registers a thread can have."""
        many = 2000
        samples = [1e6 / rate for rate in rates(self._call("run_empty", many), float(many))]
        launched = fact("latency.kernel_launch_us", "us", samples, "an empty kernel from compiled code, back to back")
        name, count = "limit.thread.registers", int(self.native.thread_registers())
        if count <= 0:
            return [launched, missing(name, "", f"CUDA error {-count}")]
        return [launched, fact(name, "", [float(count)], "what the compiler gave a kernel that could use more")]

    def atomics(self) -> list[Fact]:
        """Atomic additions of all threads to one address, and each to its own."""
        counters = torch.zeros(self.blocks * THREADS, dtype=torch.int32, device=self.device)
        threads = self.blocks * THREADS
        one = self._call("run_adds", self._at(counters), self.blocks, THREADS, 0, 16)
        apart = self._call("run_adds", self._at(counters), self.blocks, THREADS, 1, 64)
        floating = self._call("run_adds_float", self._at(self.out), self.blocks, THREADS, 2)
        return [
            fact("rate.atomics_contended_Gops", "Gop/s", rates(floating, threads * 2 / 1e9), "float32, one address"),
            fact("rate.atomics_integer_contended_Gops", "Gop/s", rates(one, threads * 16 / 1e9), "one address"),
            fact("rate.atomics_spread_Gops", "Gop/s", rates(apart, threads * 64 / 1e9), "an address for each thread"),
        ]

    def streams(self) -> list[Fact]:
        """Device memory by plain kernels that read, or copy, every byte once: a library's may be slower than they are.

        On an H200 torch.sum reads 4.31 TB/s and these tiles 4.59, so a bound from the former would void honest times.
        """
        size = 2 << 30
        data, other = torch.ones(size // 4, device=self.device), torch.zeros(size // 4, device=self.device)
        many = ctypes.c_int64(size)
        read = self._call("run_read_tiles", self._at(self.out), self._at(data), many, times=6)
        copy = self._call("run_copy_tiles", self._at(other), self._at(data), many, times=6)
        return [
            fact("bandwidth.read_kernel.dram_GBps", "GB/s", rates(read, 6 * size / 1e9), "compiled, each byte once"),
            fact(
                "bandwidth.copy_kernel.dram_GBps", "GB/s", rates(copy, 12 * size / 1e9), "compiled, read plus written"
            ),
        ]

    def reads(self) -> list[Fact]:
        """Reads by working set, each block its own part again and again: L1, L2, device memory.

        Beyond the caches the faster of this and of one pass by tiles, eight times over.
        """
        found = []
        for size in staircase(2 << 20, 1 << 30):
            data = torch.ones(size // 4, device=self.device)
            repeats = max(1, (4 << 30) // size)
            blocks = self.processors * 2
            run = self._call(
                "run_reads", self._at(self.out), self._at(data), ctypes.c_int64(size), blocks, 1024, repeats
            )
            samples = rates(run, size * repeats / 1e9, runs=3)
            if size >= FAR:
                tiles = self._call("run_read_tiles", self._at(self.out), self._at(data), ctypes.c_int64(size), times=8)
                samples = max(samples, rates(tiles, 8 * size / 1e9, runs=3), key=max)
            found.append(fact(f"bandwidth.read.{label(size)}_GBps", "GB/s", samples, "all multiprocessors together"))
        return found

    def zero_copy(self) -> list[Fact]:
        """Reads of pinned host memory by the device."""
        size = 128 << 20
        data = torch.ones(size // 4).pin_memory()
        run = self._call(
            "run_reads", self._at(self.out), self._at(data), ctypes.c_int64(size), self.processors * 2, 1024, 1
        )
        return [fact("bandwidth.host_to_device.zero_copy_GBps", "GB/s", rates(run, size / 1e9), "read by the device")]


NAMES = (
    ("peak.simd.float32_TFLOPs", "TFLOP/s"), ("peak.simd.float64_TFLOPs", "TFLOP/s"),
    ("bandwidth.read_kernel.dram_GBps", "GB/s"), ("bandwidth.copy_kernel.dram_GBps", "GB/s"),
    ("peak.simd.float16_TFLOPs", "TFLOP/s"), ("rate.dpx_Gops", "Gop/s"), ("bandwidth.shared_GBps", "GB/s"),
    ("cost.bank_conflict_32_way", "ratio"), ("bandwidth.distributed_shared_GBps", "GB/s"),
    ("latency.load.shared_ns", "ns"), ("rate.atomics_contended_Gops", "Gop/s"),
    ("bandwidth.host_to_device.zero_copy_GBps", "GB/s"), ("limit.thread.registers", ""),
)  # fmt: skip


def absent(why: str) -> list[Fact]:
    """The facts of this file where there is no compiler."""
    return [missing(name, unit, why) for name, unit in NAMES]
