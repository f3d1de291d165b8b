# SPDX-License-Identifier: Apache-2.0
"""Every measured time of this folder against its unavoidable bound: how near the best comes, and whether any is below.

python benchmarks/bounds.py OUT.json

Programs of the templates sweeps run on rotated inputs, products on one set of operands, so what the last-level cache
can hold may not have moved: the warm bound leaves those bytes out, and no time may be more than 2 % below it.
"""

import json
import statistics
import sys
import time
from pathlib import Path

from kernelwright import wire
from kernelwright.limits import unavoidable_us
from kernelwright.machine import Machine

HERE = Path(__file__).parent / "results" / "h200"
READS_ALL = {"cross_entropy", "nll", "sum_all"}
WIDTH = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
STREAMING = 64 << 20
TOLERANCE = 0.02


def template_rows():
    """(kind, name, bytes read, bytes written, best us, whose)."""
    for path in sorted(HERE.glob("templates_*.json")):
        for row in json.loads(path.read_text())["rows"]:
            times = {key.removesuffix("_us"): min(row[key]) for key in row if key.endswith("_us") and key != "bound_us"}
            times |= {one["label"]: min(one["us"]) for one in row["candidates"] if one.get("us")}
            who = min(times, key=times.get)
            read = row["bytes"] if row["name"] in READS_ALL else row["bytes"] // 2
            if row["name"] in ("linear_gelu", "matmul_plain"):
                read = row["bytes"] * 2 // 3
            name = f"{row['name']} {'x'.join(str(v) for v in row['axes'].values())} ({path.stem})"
            kind = "product" if row["name"] in ("linear_gelu", "matmul_plain") else "streaming"
            yield kind, name, read, row["bytes"] - read, times[who], who


def product_rows():
    """The measured matrix products."""
    for row in json.loads((HERE / "gemm_measured.json").read_text())["rows"]:
        m, n, k, width = row["m"], row["n"], row["k"], WIDTH[row["dtype"]]
        name = f"mm {row['dtype']} {m}x{n}x{k}"
        yield "product", name, width * (m * k + k * n), width * m * n, row["seconds"] * 1e6, "torch.mm"


def main():
    """Compare, print, write."""
    machine = wire.from_data(Machine, json.loads((HERE / "machine.json").read_text()))
    cache = int(machine.value("cache.last_level_bytes"))
    rows = []
    for kind, name, read, written, best, who in [*template_rows(), *product_rows()]:
        cold = unavoidable_us(read, written, machine)
        warm = unavoidable_us(read, written, machine, resident=cache)
        rows.append({"kind": kind, "name": name, "bytes": read + written, "best_us": best, "by": who, "bound_us": cold,
                     "warm_bound_us": warm, "over": best / cold, "below": best < (1 - TOLERANCE) * warm})  # fmt: skip
    streaming = [row for row in rows if row["kind"] == "streaming" and row["bytes"] >= STREAMING]
    near = [row for row in streaming if row["over"] <= 1.15]
    below = [row for row in rows if row["below"]]
    large = [row for row in rows if row["bytes"] > 4 * cache]
    under_cold = [row for row in large if row["best_us"] < (1 - TOLERANCE) * row["bound_us"]]
    for row in streaming:
        times = f"{row['best_us']:8.1f} us  bound {row['bound_us']:8.1f}  {row['over']:.3f}x"
        print(f"{row['name']:58} {times}  {row['by']}")
    print(f"{len(rows)} programs; {len(near)} of {len(streaming)} streaming ones of 64 MiB or more within 1.15x, "
          f"median {statistics.median(row['over'] for row in streaming):.3f}x")  # fmt: skip
    print(f"{len(below)} below the warm bound by more than 2 %: {[row['name'] for row in below]}")
    print(f"below the cold bound, with more than four caches of data: {[(r['name'], r['over']) for r in under_cold]}")
    result = {
        "command": ["python", "benchmarks/bounds.py"], "machine": machine.fingerprint, "device": machine.name,
        "when": time.time(), "programs": len(rows), "streaming": len(streaming), "near": len(near),
        "below_warm_bound": [row["name"] for row in below], "rows": rows,
    }  # fmt: skip
    Path(sys.argv[1]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
