# SPDX-License-Identifier: Apache-2.0
"""RMSNorm by eager and by torch.compile beside a plain copy of the same bytes, over sizes: no kernel can do better.

    python benchmarks/beside_copy.py [--device cuda:0|cpu] --out FILE

Every call takes an input of its own, together 256 MB at least, so that none is in a cache. ``at most`` is eager's time
over the copy's: what a program that reads each element once and writes it once could gain on this device.

On a CPU the judge itself times both, each against its own reference, in turn: a copy there is ``x * 2``, by torch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aa
import provenance
import torch

import kernelwright
from kernelwright.load import load_task

ROOT = Path(__file__).resolve().parents[1]
SIZES = [
    (1024, 4096), (4096, 4096), (8192, 4096), (16384, 4096), (32768, 4096), (131072, 4096),
    (1048576, 128), (262144, 512), (131072, 1024), (65536, 2048), (16384, 8192), (8192, 16384), (4096, 32768),
]  # fmt: skip
CALLS, REPEATS = 20, 5
RMSNORM = ROOT / "tasks" / "normalisation" / "rmsnorm"
DOUBLING = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0


def get_inputs():
    return [torch.randn(1024, 4096)]


def get_init_inputs():
    return []
"""
TURNS = 6


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


def turns() -> dict[str, Any]:
    """The size that the examples have, on a CPU: medians of verdicts that alternate."""
    with tempfile.TemporaryDirectory() as folder, kernelwright.Services("cpu") as services:
        Path(folder, "doubling.py").write_text(DOUBLING)
        tasks = {"eager_us": load_task(RMSNORM, "cpu"), "copy_us": load_task(Path(folder, "doubling.py"), "cpu")}
        found: dict[str, list[float]] = {name: [] for name in tasks}
        for _ in range(TURNS):
            for name, task in tasks.items():
                found[name].append(aa.row(task, "cpu", 1, 0.0, services)["median_us"])
                print(name, round(found[name][-1], 1), flush=True)
        machine = services.machine().name
    middle = {name: round(statistics.median(times), 1) for name, times in found.items()}
    at_most = round(middle["eager_us"] / middle["copy_us"], 2)
    return {"device": machine, "rows": [{"rows": 1024, "cols": 4096, **middle, "at most": at_most, "turns": found}]}


def on_device() -> dict[str, Any]:
    """All sizes on a GPU."""
    task = load_task(RMSNORM, "cuda:0")
    names: dict[str, Any] = {}
    exec(compile(task.reference, "rmsnorm", "exec"), names)
    found = []
    with torch.no_grad():
        for rows, cols in SIZES:
            found.append(row(rows, cols, names["Model"](cols).cuda()))
            print(found[-1], flush=True)
    return {"device": torch.cuda.get_device_name(), "rows": found}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    body = turns() if asked.device == "cpu" else on_device()
    body |= {"torch": torch.__version__, "commit": provenance.commit()}
    asked.out.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
