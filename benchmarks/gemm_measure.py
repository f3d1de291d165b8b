# SPDX-License-Identifier: Apache-2.0
"""Times torch.mm over shapes and dtypes on a CUDA device, with power where the driver tells: data for gemm_model.py.

python benchmarks/gemm_measure.py OUT.json [SECONDS]
"""

import ctypes
import json
import random
import statistics
import sys
import time

import torch

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


def measure(dtype, m, n, k, power, energy):
    """One row: seconds, and watts where asked for."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    real = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    one, two = torch.randn(m, k, device="cuda").to(real), torch.randn(k, n, device="cuda").to(real)
    out = torch.empty(m, n, device="cuda", dtype=real)
    took, graph, repeats = seconds_of(lambda: torch.mm(one, two, out=out), 4e-3)
    row = {"dtype": dtype, "m": m, "n": n, "k": k, "seconds": took}
    if energy and power.good:
        torch.cuda.synchronize()
        count = max(2, int(0.35 / (took * repeats)))
        graph.replay()
        torch.cuda.synchronize()
        begin, start = power.joules(), time.perf_counter()
        for _ in range(count):
            graph.replay()
        torch.cuda.synchronize()
        row["watts"] = (power.joules() - begin) / (time.perf_counter() - start)
    return row


def main():
    """Measure until the time is up."""
    out, budget = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    deadline, rows, power = time.time() + budget, [], Power()
    for number, shape in enumerate(shapes(11)):
        if time.time() > deadline or number >= 600:
            break
        rows.append(measure(*shape, power, energy=number % 6 == 0))
    about = torch.cuda.get_device_properties(0)
    result = {
        "command": ["python", "benchmarks/gemm_measure.py"], "device": about.name, "torch": torch.__version__,
        "processors": about.multi_processor_count, "energy": power.good, "seed": 11, "when": time.time(), "rows": rows,
    }  # fmt: skip
    with open(out, "w") as file:
        json.dump(result, file)
    print(f"{len(rows)} products measured in {budget:.0f} s, energy counter {'read' if power.good else 'missing'}")


if __name__ == "__main__":
    main()
