# SPDX-License-Identifier: Apache-2.0
"""Times torch.mm over shapes and dtypes on a CUDA device, with power where the driver tells: data for gemm_model.py.

python -m benchmarks.gemm_measure OUT.json [SECONDS] [power]

``power``: every product's energy too, between two ticks of the driver's counter (which moves every 100 ms), after
the power has settled. Without it no energy is read.
"""

import ctypes
import json
import random
import statistics
import sys
import time

import torch

from benchmarks.provenance import commit

SIZES = [16, 48, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1000, 1024, 1280, 1536, 2048, 2560, 3072, 4000, 4096,
         5120, 6144, 8192, 11008, 12288, 16384]  # fmt: skip
DTYPES = ("bfloat16", "float16", "float32", "tf32")


def shapes(seed):
    """Endless (dtype, m, n, k), sizes independent, at most 2e13 FLOPs and 4 GiB of operands."""
    dice = random.Random(seed)
    while True:
        dtype, (m, n, k) = dice.choice(DTYPES), dice.choices(SIZES, k=3)
        if dice.random() < 0.3:  # and some that are no friendly number
            m, n, k = (max(8, int(v * dice.uniform(0.7, 1.3)) // 8 * 8) for v in (m, n, k))
        width = 4 if dtype in ("float32", "tf32") else 2
        work = 2.0 * m * n * k
        if work < (2e13 if width == 2 else 3e12) and width * (m * k + k * n + m * n) < 2 << 30:
            yield dtype, m, n, k


def seconds_of(run, least):
    """Median seconds of one call over graph replays long enough to time, and how many were run."""
    run()
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    once = max(start.elapsed_time(end) * 1e-3, 2e-6)
    repeats = max(2, min(60, int(least / once)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            run()
    graph.replay()
    samples = []
    for _ in range(5):
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e-3 / repeats)
    return statistics.median(samples), graph, repeats


class Power:
    """Energy counter of device 0, or nothing."""

    def __init__(self):
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self.handle = ctypes.c_void_p()
            self.good = self.nvml.nvmlInit_v2() == 0
            self.good = self.good and self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)) == 0
            self.good = self.good and self.joules() is not None
        except OSError:
            self.good = False

    def joules(self):
        """Energy so far, None where there is no counter."""
        value = ctypes.c_ulonglong()
        status = self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(value))
        return value.value / 1e3 if status == 0 else None


SETTLE, WINDOW = 0.25, 0.55
"""Seconds of load before the first tick, and at least so many between the two: five ticks of the counter."""


def settled_watts(graph, seconds, power):
    """Watts between two ticks of the counter while replays of ``graph``, which lasts ``seconds``, follow each other."""
    together = max(1, round(4e-3 / seconds))  # between two looks at the counter

    def until(moment):
        """(joules, time) at the first tick seen after ``moment``."""
        last = power.joules()
        while True:
            for _ in range(together):
                graph.replay()
            torch.cuda.synchronize()
            now, joules = time.perf_counter(), power.joules()
            if joules != last and now >= moment:
                return joules, now
            last = joules

    first, begin = until(time.perf_counter() + SETTLE)
    last, end = until(begin + WINDOW)
    return (last - first) / (end - begin)


def measure(dtype, m, n, k, power, energy):
    """One row: seconds, and watts where asked for."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    real = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    one, two = torch.randn(m, k, device="cuda").to(real), torch.randn(k, n, device="cuda").to(real)
    out = torch.empty(m, n, device="cuda", dtype=real)
    took, graph, repeats = seconds_of(lambda: torch.mm(one, two, out=out), 4e-3)
    row = {"dtype": dtype, "m": m, "n": n, "k": k, "seconds": took}
    if energy and power.good:
        row["watts"] = settled_watts(graph, took * repeats, power)
    return row


def main():
    """Measure until the time is up."""
    out, budget = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    energy = "power" in sys.argv[3:]
    seed = 23 if energy else 11
    deadline, rows, power = time.time() + budget, [], Power()
    for number, shape in enumerate(shapes(seed)):
        if time.time() > deadline or number >= 600:
            break
        rows.append(measure(*shape, power, energy))
    about = torch.cuda.get_device_properties(0)
    result = {
        "command": ["python", "-m", "benchmarks.gemm_measure", *sys.argv[2:]], "commit": commit(),
        "device": about.name, "torch": torch.__version__,
        "processors": about.multi_processor_count, "energy": power.good, "seed": seed, "when": time.time(),
        "rows": rows,
    }  # fmt: skip
    with open(out, "w") as file:
        json.dump(result, file)
    print(f"{len(rows)} products measured in {budget:.0f} s, energy counter {'read' if power.good else 'missing'}")


if __name__ == "__main__":
    main()
