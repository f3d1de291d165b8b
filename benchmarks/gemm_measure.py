# SPDX-License-Identifier: Apache-2.0
"""Times torch.mm over shapes and dtypes on a CUDA device, with power where the driver tells: data for gemm_model.py.

python -m benchmarks.gemm_measure OUT.json [SECONDS] [power]

``power``: every product's energy too, between two ticks of the driver's counter (which moves every 100 ms), after
the power has settled. Without it no energy is read.
"""

import json
import random
import statistics
import sys
import time

import torch

from benchmarks.provenance import commit
from kernelwright.judge.calibration import energy

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


WINDOW = 0.4
"""Seconds of calls, at least, between the two moves of the counter: five of them."""


def meter():
    """The device's energy counter, or None."""
    try:
        return energy.Meter("cuda:0")
    except OSError:
        return None


def load_of(call, power):
    """{"watts": of calls that follow each other, "MHz": the rate just after}, or nothing where the counter stood."""
    try:
        joules, seconds, _ = energy.spend(power, "cuda:0", call, WINDOW)
        return {"watts": joules / seconds, "MHz": power.clocks_mhz()["SM"]}
    except OSError:
        return {}


def measure(dtype, m, n, k, power):
    """One row: seconds, and watts where there is a counter to read."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    real = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    one, two = torch.randn(m, k, device="cuda").to(real), torch.randn(k, n, device="cuda").to(real)
    out = torch.empty(m, n, device="cuda", dtype=real)
    took, graph, _ = seconds_of(lambda: torch.mm(one, two, out=out), 4e-3)
    row = {"dtype": dtype, "m": m, "n": n, "k": k, "seconds": took}
    if power is not None:
        row |= load_of(graph.replay, power)
    return row


def main():
    """Measure until the time is up."""
    out, budget = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    power = meter() if "power" in sys.argv[3:] else None
    seed, rest = 11, None
    if power is not None:
        seed = 23
        torch.zeros(1, device="cuda")
        time.sleep(1.0)
        rest = min(power.watts() for _ in range(3))
    deadline, rows = time.time() + budget, []
    for number, shape in enumerate(shapes(seed)):
        if time.time() > deadline or number >= 600:
            break
        rows.append(measure(*shape, power))
    about = torch.cuda.get_device_properties(0)
    result = {
        "command": ["python", "-m", "benchmarks.gemm_measure", *sys.argv[2:]], "commit": commit(),
        "device": about.name, "torch": torch.__version__,
        "processors": about.multi_processor_count, "energy": power is not None, "idle_W": rest,
        "seed": seed, "when": time.time(), "rows": rows,
    }  # fmt: skip
    with open(out, "w") as file:
        json.dump(result, file)
    print(f"{len(rows)} products measured in {budget:.0f} s, energy counter {'not read' if power is None else 'read'}")
    watts = sorted(row["watts"] for row in rows if "watts" in row)
    if watts:
        middle = watts[len(watts) // 2]
        print(f"  {rest:.0f} W at rest; products draw {watts[0]:.0f} to {watts[-1]:.0f} W, half below {middle:.0f}")


if __name__ == "__main__":
    main()
