# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured peak memory of modules: 20 that the model was made with, and others written after it.

python -m benchmarks.memory cpu|cuda OUT.json [--only NAME ...] [--at-once N]      rows of OUT.json are replaced by name

Each module runs in a fresh process, so that what libraries keep for themselves is part of what is measured, once. On
CUDA the measure is the most that torch's allocator has given out (and reserved) by the end of the first call. On a CPU
it is the growth of the process's own pages (anonymous, not the code of libraries) from before the module existed to the
worst moment of a second call, with a C library that maps large blocks by themselves: what is resident is in use.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.memory_modules import SEEN
from benchmarks.memory_unseen import LATER, UNSEEN
from benchmarks.provenance import commit
from kernelwright.judge import calibration
from kernelwright.limits.memory import memory

AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""For glibc (mallopt(3)): blocks of 64 KiB or more are mapped by themselves and unmapped when they are freed."""
WORTH_NAMING = 0.01
"""Share of the peak that an operator must hold inside to be named."""
SETS = {"seen": SEEN, "unseen": UNSEEN, "later": LATER}
ALL = SEEN | UNSEEN | LATER
MEASURES = {
    "cpu": "growth of anonymous resident memory to the peak of a second call, in a fresh process",
    "cuda": "torch.cuda.max_memory_allocated of the first call in a fresh process",
}


def once(module, inputs, gradients):
    """One call, and its backward pass."""
    with torch.set_grad_enabled(gradients):
        result = module(*inputs)
        if gradients:
            heads = [one for one in flat(result) if one.requires_grad]
            ones = [torch.ones_like(head) for head in heads]
            return result, torch.autograd.grad(heads, list(module.parameters()), ones, allow_unused=True)
    return result


def flat(result):
    """The tensors of a result."""
    return [one for one in torch.utils._pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]


def resident():
    """Bytes of this process: its own pages, those of files, and the most of both since it was last set back."""
    with open("/proc/self/status", encoding="ascii") as file:
        found = dict(line.split(":", 1) for line in file)
    anonymous, files, shared, most = (
        int(found[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile", "RssShmem", "VmHWM")
    )
    return {"own": anonymous, "others": files + shared, "most": most}


def set_back():
    """Let the kernel begin again with the most (proc(5))."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


class Inside(TorchDispatchMode):
    """What each operator held at its worst moment beyond what was there after it."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.found = kind, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        set_back() if self.kind == "cpu" else torch.cuda.reset_peak_memory_stats()
        result = func(*args, **(kwargs or {}))
        if self.kind == "cpu":
            now = resident()
            extra = now["most"] - now["own"] - now["others"]
        else:
            extra = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
        name = str(func._schema.name)
        self.found[name] = max(self.found.get(name, 0), extra)
        return result


def on_cuda(make, gradients):
    """Peaks of the allocator in a first and a second call, and what was reserved."""
    torch.cuda.empty_cache()
    before, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    module, inputs = make()
    module, inputs = module.cuda(), tuple(one.cuda() for one in inputs)
    found = {}
    for name in ("measured", "second"):
        torch.cuda.reset_peak_memory_stats()
        once(module, inputs, gradients)
        torch.cuda.synchronize()
        found[name] = torch.cuda.max_memory_allocated() - before
        found.setdefault("reserved", torch.cuda.max_memory_reserved() - reserved)
    return found, module, inputs


def on_cpu(make, gradients):
    """Growth of the process's own pages, what libraries keep included."""
    small = nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(36, 4))
    once(small, (torch.randn(1, 1, 8, 8),), True)
    before = resident()["own"]
    module, inputs = make()
    once(module, inputs, gradients)
    kept = resident()["own"] - before
    set_back()
    result = once(module, inputs, gradients)
    now = resident()
    del result
    return {"measured": now["most"] - now["others"] - before, "held": kept}, module, inputs


def child(kind, name):
    """Runs in a process of its own: prints what was predicted and measured."""
    module, inputs, gradients = ALL[name]

    def make():
        torch.manual_seed(0)
        return module(), inputs()

    found = memory(*make(), gradients=gradients, device=kind)
    torch.set_grad_enabled(False)
    measured, built, given = (on_cuda if kind == "cuda" else on_cpu)(make, gradients)
    with Inside(kind) as inside:
        once(built, given, gradients)
    row = {
        "name": name, "predicted": found.peak, **measured, "error": found.peak / measured["measured"] - 1,
        "unknown": list(found.unknown),
        "inside": {op: size for op, size in inside.found.items() if size > WORTH_NAMING * measured["measured"]},
    }  # fmt: skip
    if kind == "cuda":
        row |= {"predicted_reserved": found.reserved, "reserved_error": found.reserved / measured["reserved"] - 1}
    print(json.dumps(row))


def fresh(kind, name):
    """A row, from a process that does nothing else."""
    command = [sys.executable, "-m", "benchmarks.memory", kind, "-", "--child", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **AT_ONCE})
    if done.returncode:
        return {"name": name, "failed": done.stderr.strip().splitlines()[-1:]}
    return json.loads(done.stdout.splitlines()[-1])


def summary(rows):
    """Of one set: the middle and the largest error, and how many are under a tenth."""
    errors = [abs(row["error"]) for row in rows if "error" in row]
    return {
        "modules": len(rows), "median_error": statistics.median(errors), "worst_error": max(errors),
        "within_tenth": sum(error < 0.1 for error in errors),
    }  # fmt: skip


def shown(row):
    """A line of the table."""
    if "error" not in row:
        return f"{row['name']:26} failed: {row['failed']}"
    inside = ", ".join(f"{op.removeprefix('aten::')} {size / 2**20:.0f}" for op, size in row.get("inside", {}).items())
    return (
        f"{row['name']:26} {row['predicted'] / 2**20:9.1f} MiB predicted {row['measured'] / 2**20:9.1f} measured "
        f"{row['error']:+7.1%}  inside: {inside or '-'} {'; '.join(row.get('unknown', ()))}"
    )


def main():
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("cpu", "cuda"))
    parser.add_argument("out")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--at-once", type=int, default=1, help="processes; their memory is counted apart")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        return child(options.kind, options.child)
    names = [name for name in ALL if not options.only or name in options.only]
    out, result = Path(options.out), head(options.kind)
    before = json.loads(out.read_text(encoding="ascii")) if options.only and out.is_file() else {}
    kept = {row["name"]: row for part in SETS for row in before.get(part, {}).get("rows", ())}
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        for row in pool.map(lambda name: fresh(options.kind, name), names):
            print(shown(row), flush=True)
            kept[row["name"]] = row | {"commit": result["commit"]}
            write(out, result, kept)
    for part in SETS:
        print(part, {key: value for key, value in result.get(part, {}).items() if key != "rows"})


def write(out, result, kept):
    """The file as far as it is known."""
    for part, names in SETS.items():
        found = [kept[name] for name in names if name in kept]
        if any("error" in row for row in found):
            result[part] = summary(found) | {"rows": found}
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="ascii")


def head(kind):
    """What the file belongs to."""
    name, versions = calibration.identity("cpu" if kind == "cpu" else "cuda:0")
    return {
        "command": ["python", "-m", "benchmarks.memory", kind], "commit": commit(), "device": name,
        "versions": dict(versions), "when": time.time(), "what": MEASURES[kind],
    }  # fmt: skip


if __name__ == "__main__":
    main()
