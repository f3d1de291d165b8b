# SPDX-License-Identifier: Apache-2.0
"""Every measured time on the H200 against its unavoidable bound: how near the best comes, and whether any is below.

python -m benchmarks.bounds OUT.json [--restate]

A program is a name with its sizes, wherever it was measured: the templates' sweeps (device-event intervals on one set
of inputs, the host's launch in them), streaming.py (cold inputs, no host), the matrix products. ``--restate`` writes
the bound into each row of the sweeps, which as measured have bytes over the copy rate, too long for reads.
"""

import argparse
import json
import math
import statistics
import time
from pathlib import Path

from benchmarks.provenance import commit
from kernelwright import wire
from kernelwright.limits import unavoidable_us
from kernelwright.machine import Machine

HERE = Path(__file__).parent / "results" / "h200"
READS_ALL = {"cross_entropy", "nll", "sum_all", "sum_matmul", "sum_first"}
PRODUCTS = {"linear_gelu", "matmul_plain", "mlp_block"}
WIDTH = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
STREAMING = 64 << 20
WEIGHTED = {"sum_matmul", "sum_first"}
"""Their rows count inputs and outputs; the weight is read too."""
NEAR = 1.15
TOLERANCE = 0.02
WHY = {
    "rmsnorm 1024x8192": "latency: of the 20.7 us some 5 are a launch and the first bytes' way, whatever the size",
    "softmax 1024x131072": "redundant reads: a row of 512 KiB does not fit a multiprocessor; 3 passes for 2: 1.5x",
    "diag_matmul 8192x16384": "instruction issue: torch's broadcast; the same as scale_rows takes a template 255 us",
    "rmsnorm 1024x131072": "redundant reads: as softmax 1024x131072",
    "softmax 512x131072": "redundant reads: as softmax 1024x131072",
    "layernorm_residual 64x1048576": "redundant reads: a row of 4 MiB, as softmax 1024x131072",
    "rmsnorm 128x524288": "redundant reads: a row of 2 MiB, as softmax 1024x131072",
    "softmax 32x4194304": "redundant reads and parallelism: 32 rows of 16 MiB for 132 multiprocessors",
    "gelu_bf16 32768x8192": "instruction issue (inferred): an erf for every two bytes",
    "sum_first 8192x8192x8192": "not named: two library kernels, not profiled",
    "sum_matmul 8192x8192x8192": "not named: two library kernels, not profiled",
}
"""The named limiter of streaming programs that stay above NEAR, from their sizes and passes; not from counters."""


def template_rows():
    """(name, kind, bytes read, bytes written, best us, whose, file) of each row of the sweeps."""
    for path in sorted(HERE.glob("templates_*.json")):
        for row in json.loads(path.read_text())["rows"]:
            times = {key.removesuffix("_us"): min(row[key]) for key in row if key.endswith("_us") and key != "bound_us"}
            times |= {one["label"]: min(one["us"]) for one in row["candidates"] if one.get("us")}
            if times:
                who = min(times, key=times.get)
                yield *split(row), times[who], who, path.stem


def split(row):
    """(name, kind, bytes read, bytes written) of a sweep's row."""
    name = f"{row['name']} {'x'.join(str(value) for value in row['axes'].values())}"
    if row["name"] in PRODUCTS:
        written = 4 * math.prod([row["axes"][key] for key in sides(row["name"], row["axes"])])
    else:
        written = 0 if row["name"] in READS_ALL else row["bytes"] // 2
    kind = "product" if row["name"] in PRODUCTS else "streaming"
    weights = 4 * row["axes"]["inner"] * row["axes"]["outer"] if row["name"] in WEIGHTED else 0
    return name, kind, max(0, row["bytes"] - written) + weights, written


def sides(name, axes):
    """The axes of a product's result."""
    last = {"linear_gelu": "outer", "matmul_plain": "cols", "mlp_block": "width"}[name]
    return [key for key in axes if key == "rows"] + [last]


def cold_rows():
    """The rows of streaming.py."""
    for row in json.loads((HERE / "streaming.json").read_text())["rows"]:
        if "best_us" in row:
            name = f"{row['name']} {'x'.join(str(value) for value in row['axes'].values())}"
            yield name, "streaming", row["read"], row["written"], row["best_us"], row["by"], "streaming, cold"


def product_rows():
    """The measured matrix products, and each at its best tile."""
    for row in json.loads((HERE / "gemm_measured.json").read_text())["rows"]:
        m, n, k, width = row["m"], row["n"], row["k"], WIDTH[row["dtype"]]
        yield (f"mm {row['dtype']} {m}x{n}x{k}", "product", width * (m * k + k * n), width * m * n,
               row["seconds"] * 1e6, "torch.mm", "gemm_measured")  # fmt: skip
    best = {}
    for row in json.loads((HERE / "gemm_tiles.json").read_text())["rows"]:
        shape = row["dtype"], row["m"], row["n"], row["k"]
        best[shape] = min(best.get(shape, math.inf), row["seconds"] * 1e6)
    for (dtype, m, n, k), took in best.items():
        width = WIDTH[dtype]
        yield (f"triton {dtype} {m}x{n}x{k}", "product", width * (m * k + k * n), width * m * n, took, "best tile",
               "gemm_tiles")  # fmt: skip


def compare(machine):
    """One row for each program: the best time known, whose it is, the bounds."""
    cache = int(machine.value("cache.last_level_bytes"))
    best = {}
    for name, kind, read, written, took, who, where in [*template_rows(), *cold_rows(), *product_rows()]:
        cold = unavoidable_us(read, written, machine)
        row = {"kind": kind, "name": name, "bytes": read + written, "best_us": took, "by": f"{who} ({where})",
               "bound_us": cold, "warm_bound_us": unavoidable_us(read, written, machine, resident=cache),
               "over": took / cold}  # fmt: skip
        # What four caches cannot hold is not there from one call to the next, however it was measured.
        bound = cold if row["bytes"] > 4 * cache else row["warm_bound_us"]
        row["below"] = took < (1 - TOLERANCE) * bound
        known = best.get(name)
        below = row["below"] or (known is not None and known["below"])
        best[name] = (row if known is None or took < known["best_us"] else known) | {"below": below}
    return list(best.values())


def restate(machine):
    """Write the bound of read and written bytes into every row of the sweeps."""
    for path in sorted(HERE.glob("templates_*.json")):
        data = json.loads(path.read_text())
        for row in data["rows"]:
            if "bytes" in row:
                row["bound_us"] = unavoidable_us(*split(row)[2:], machine)
        data["facts"]["bound_from"] = f"machine {machine.fingerprint}, restated by benchmarks/bounds.py"
        path.write_text(json.dumps(data, indent=1))


def main():
    """Compare, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--restate", action="store_true")
    options = parser.parse_args()
    machine = wire.from_data(Machine, json.loads((HERE / "machine.json").read_text()))
    if options.restate:
        restate(machine)
    rows = compare(machine)
    streaming = [row for row in rows if row["kind"] == "streaming" and row["bytes"] >= STREAMING]
    streaming.sort(key=lambda row: row["over"])
    near = [row for row in streaming if row["over"] <= NEAR]
    for row in streaming:
        row["limiter"] = "memory" if row["over"] <= NEAR else WHY.get(row["name"], "not named")
        times = f"{row['best_us']:8.1f} us  bound {row['bound_us']:8.1f}  {row['over']:.3f}x"
        print(f"{row['name']:34} {times}  {row['by']:38} {row['limiter']}")
    below = [row["name"] for row in rows if row["below"]]
    print(f"{len(rows)} programs; {len(near)} of {len(streaming)} streaming ones of 64 MiB or more within {NEAR}x, "
          f"median {statistics.median(row['over'] for row in streaming):.3f}x")  # fmt: skip
    print(f"{len(below)} below their bound by more than 2 %: {below}")
    result = {
        "command": ["python", "-m", "benchmarks.bounds"], "commit": commit(), "machine": machine.fingerprint,
        "device": machine.name, "when": time.time(), "programs": len(rows), "streaming": len(streaming),
        "near": len(near), "below": below, "rows": rows,
    }  # fmt: skip
    options.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
