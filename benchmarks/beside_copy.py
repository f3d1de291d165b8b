# SPDX-License-Identifier: Apache-2.0
"""RMSNorm by eager and by torch.compile beside a plain copy of the same bytes, over sizes: no kernel can do better.

    python benchmarks/beside_copy.py --out FILE

Every call takes an input of its own, together 256 MB at least, so that none is in a cache. ``at most`` is eager's time
over the copy's: what a program that reads each element once and writes it once could gain on this device.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import provenance
import torch

import kernelwright

ROOT = Path(__file__).resolve().parents[1]
SIZES = [
    (1024, 4096), (4096, 4096), (8192, 4096), (16384, 4096), (32768, 4096), (131072, 4096),
    (1048576, 128), (262144, 512), (131072, 1024), (65536, 2048), (16384, 8192), (8192, 16384), (4096, 32768),
]  # fmt: skip
CALLS, REPEATS = 20, 5


def microseconds(call: Callable[[torch.Tensor], Any], inputs: list[torch.Tensor]) -> float:
    """Median over repeats of the time of one call, of many in a row."""
    for x in inputs:
        call(x)
    samples = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for number in range(CALLS):
            call(inputs[number % len(inputs)])
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e3 / CALLS)
    return statistics.median(samples)


def row(rows: int, cols: int, model: torch.nn.Module) -> dict[str, Any]:
    """One size."""
    inputs = [torch.randn(rows, cols, device="cuda") for _ in range(1 + 256_000_000 // (4 * rows * cols))]
    target = torch.empty_like(inputs[0])
    torch._dynamo.reset()
    eager, compiled = microseconds(model, inputs), microseconds(torch.compile(model), inputs)
    copy = microseconds(target.copy_, inputs)
    return {
        "rows": rows, "cols": cols, "eager_us": round(eager, 1), "compile_us": round(compiled, 1),
        "copy_us": round(copy, 1), "at most": round(eager / copy, 2),
    }  # fmt: skip


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    task = kernelwright.load_task(ROOT / "tasks" / "normalisation" / "rmsnorm", "cuda:0")
    names: dict[str, Any] = {}
    exec(compile(task.reference, "rmsnorm", "exec"), names)
    found = []
    with torch.no_grad():
        for rows, cols in SIZES:
            found.append(row(rows, cols, names["Model"](cols).cuda()))
            print(found[-1], flush=True)
    body = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "commit": provenance.commit()}
    asked.out.write_text(json.dumps({**body, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
