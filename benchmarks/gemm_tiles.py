# SPDX-License-Identifier: Apache-2.0
"""Times a plain Triton matrix product over tile choices and shapes: data for gemm_model.py --tiles.

python -m benchmarks.gemm_tiles OUT.json [SECONDS] [compile|measure|power]

With ``compile`` or ``measure`` only that part is done; compiled kernels are found again in Triton's cache. ``power``:
compiles, then measures time and power of two tile choices of each product, as gemm_measure.py does.
"""

import concurrent.futures
import itertools
import json
import multiprocessing
import random
import statistics
import sys
import time

import torch
import triton
import triton.language as tl

from benchmarks.gemm_measure import load_of, meter
from benchmarks.provenance import commit

SIZES = [128, 192, 256, 384, 512, 640, 976, 1024, 1536, 2048, 2560, 3072, 4096, 4912, 6144, 8192]
WIDTH = {"bfloat16": 2, "tf32": 4}
SHARED = 224 << 10
CONFIGS, SHAPES, SEED = 32, 40, 7


@triton.jit
def product(out, a, b, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One tile of [m, n] = [m, k] @ [k, n], float32 sums; tiles go down eight rows of tiles at a time."""
    pid, rows_of, cols_of = tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = pid // (8 * cols_of)
    tall = min(rows_of - group * 8, 8)
    top = group * 8 + (pid % (8 * cols_of)) % tall
    left = (pid % (8 * cols_of)) // tall
    rows, cols, depth = top * BM + tl.arange(0, BM), left * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, k, BK):
        at = start + depth
        one = tl.load(a + rows[:, None] * k + at[None, :], mask=(rows[:, None] < m) & (at[None, :] < k), other=0.0)
        two = tl.load(b + at[:, None] * n + cols[None, :], mask=(at[:, None] < k) & (cols[None, :] < n), other=0.0)
        total = tl.dot(one, two, total)
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(out + rows[:, None] * n + cols[None, :], total.to(out.dtype.element_ty), mask=inside)


def configs(dtype):
    """(BM, BN, BK, warps, stages) that fit shared memory and registers, in a fixed random order."""
    every = itertools.product((64, 128, 256), (64, 128, 256), (16, 32, 64), (4, 8), (2, 3, 4))
    fit = [
        (bm, bn, bk, warps, stages)
        for bm, bn, bk, warps, stages in every
        if (bm + bn) * bk * stages * WIDTH[dtype] <= SHARED and 512 * warps <= bm * bn <= 4096 * warps
    ]
    random.Random(SEED).shuffle(fit)
    return fit[:CONFIGS]


def shapes(dtype):
    """(m, n, k), sizes independent, at most 3e11 FLOPs."""
    dice, found = random.Random(f"{SEED}{dtype}"), []
    while len(found) < SHAPES:
        m, n, k = dice.choices(SIZES, k=3)
        if 1e8 < 2.0 * m * n * k < 3e11 and (m, n, k) not in found:
            found.append((m, n, k))
    return found


def operands(dtype, m, n, k):
    """Random operands and the result's place."""
    real = torch.float32 if dtype == "tf32" else torch.bfloat16
    one, two = torch.randn(m, k, device="cuda").to(real), torch.randn(k, n, device="cuda").to(real)
    return one, two, torch.empty(m, n, device="cuda", dtype=real)


def launch(config, one, two, out):
    """One product at one tile choice."""
    bm, bn, bk, warps, stages = config
    (m, k), n = one.shape, two.shape[1]
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
    product[grid](out, one, two, m, n, k, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages)


def warm(job):
    """In a worker: compile one tile choice, for sizes that divide by 16 as all here do."""
    dtype, config = job
    try:
        launch(config, *operands(dtype, 256, 256, 256))
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 (a tile that does not fit is left out)
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def seconds_of(config, tensors):
    """Median seconds of a product over event intervals that hide the launch, and the graph replayed."""
    launch(config, *tensors)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    launch(config, *tensors)
    end.record()
    end.synchronize()
    repeats = max(3, min(40, int(2e-3 / max(1e-6, start.elapsed_time(end) * 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            launch(config, *tensors)
    samples = []
    for _ in range(4):
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e-3 / repeats)
    return statistics.median(samples[1:]), graph


def main():
    """Compile beside each other, measure one after another, write."""
    out, budget = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    deadline = time.time() + budget
    part = sys.argv[3] if len(sys.argv) > 3 else ""
    jobs = [(dtype, config) for dtype in WIDTH for config in configs(dtype)]
    if part == "measure":
        measure(out, deadline, {job: warm(job) for job in jobs})
        return
    with concurrent.futures.ProcessPoolExecutor(14, mp_context=multiprocessing.get_context("spawn")) as pool:
        said = dict(zip(jobs, pool.map(warm, jobs), strict=True))
    print(f"{len(jobs)} tile choices compiled, {sum(bool(text) for text in said.values())} refused", flush=True)
    if part != "compile":
        measure(out, deadline, said, meter() if part == "power" else None)


def measure(out, deadline, said, power=None):
    """Time every tile choice that was not refused, product by product, until the time is up; with ``power`` two."""
    rows, dice = [], random.Random(SEED)
    for number in range(SHAPES):
        for dtype in WIDTH:
            if time.time() > deadline:
                break
            m, n, k = shapes(dtype)[number]
            tensors = operands(dtype, m, n, k)
            good = [config for config in configs(dtype) if not said[dtype, config]]
            for config in dice.sample(good, 2) if power is not None else good:
                took, graph = seconds_of(config, tensors)
                rows.append({"dtype": dtype, "m": m, "n": n, "k": k, "tile": config, "seconds": took})
                if power is not None:
                    rows[-1] |= load_of(graph.replay, power)
    about = torch.cuda.get_device_properties(0)
    result = {
        "command": ["python", "-m", "benchmarks.gemm_tiles", *sys.argv[2:]], "commit": commit(), "device": about.name,
        "torch": torch.__version__, "triton": triton.__version__, "processors": about.multi_processor_count,
        "seed": SEED, "when": time.time(), "rows": rows,
    }  # fmt: skip
    with open(out, "w") as file:
        json.dump(result, file)
    print(f"{len(rows)} times of {len({(r['dtype'], r['m'], r['n'], r['k']) for r in rows})} products")


if __name__ == "__main__":
    main()
