# SPDX-License-Identifier: Apache-2.0
"""Checks and times long_rows.cu on rows that no multiprocessor holds, as streaming.py times its programs.

python -m benchmarks.long_rows OUT.json MACHINE.json
"""

import ctypes
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.gpu_templates import timed
from benchmarks.provenance import commit
from benchmarks.streaming import microseconds
from kernelwright import wire
from kernelwright.limits import unavoidable_us
from kernelwright.machine import Machine

SOFTMAX, RMS, LAYER = 0, 1, 2
CASES = [
    ("softmax", SOFTMAX, 1024, 131072), ("softmax", SOFTMAX, 512, 131072), ("softmax", SOFTMAX, 32, 4194304),
    ("rmsnorm", RMS, 1024, 131072), ("rmsnorm", RMS, 128, 524288), ("layernorm_residual", LAYER, 64, 1048576),
]  # fmt: skip
SHARED = 226 << 10
"""Bytes of shared memory of a block on compute capability 9.0, less what the kernel has besides its stages."""


def compiled(folder):
    """The library."""
    target = folder / "long_rows.so"
    command = ["nvcc", "-std=c++17", "-O3", "-arch=sm_90", "--shared", "-Xcompiler", "-fPIC", "-o", str(target)]
    subprocess.run([*command, str(Path(__file__).with_name("long_rows.cu"))], check=True)
    return ctypes.CDLL(str(target))


def plans(what, cols, processors):
    """(blocks of a group, stages): groups as small as shared memory allows, then as large as they divide the device."""
    found = []
    for stages in (1,) if what == LAYER else (2, 1):
        least = -(-cols * 4 * stages // SHARED)
        if least <= processors:
            found += [(least, stages), (processors // (processors // least), stages)]
    return sorted(set(found))


def runner(native, what, weight, bias, plan, processors):
    """What calls the kernel on (x) or (x, residual)."""
    group, stages = plan
    blocks = processors // group * group
    board = torch.empty(2 * blocks * 16 + blocks * 4, dtype=torch.uint8, device="cuda")

    def at(tensor):
        return ctypes.c_void_p(0 if tensor is None else tensor.data_ptr())

    def call(x, residual=None):
        out, added = torch.empty_like(x), None if residual is None else torch.empty_like(x)
        status = native.long_rows(
            what, at(out), at(added), at(x), at(residual), at(weight), at(bias), ctypes.c_int64(x.shape[0]),
            ctypes.c_int64(x.shape[1]), group, blocks, stages, ctypes.c_float(1e-5 if what == LAYER else 1e-6),
            at(board), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )  # fmt: skip
        if status:
            raise RuntimeError(f"CUDA error {status}")
        return out if added is None else (out, added)

    return call


def reference(what, weight, bias):
    """The same in torch."""
    if what == SOFTMAX:
        return lambda x: torch.softmax(x, -1)
    if what == RMS:
        return lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    return lambda x, r: (torch.nn.functional.layer_norm(x + r, x.shape[-1:], weight, bias), x + r)


def error(what, weight, bias, call, inputs):
    """Largest relative distance from float64 over eager's own, of the outputs' first rows."""
    few = [t[:4].double() for t in inputs]
    exact = reference(what, weight.double(), bias.double())(*few)
    eager, got = reference(what, weight, bias)(*inputs), call(*inputs)
    if what != LAYER:
        exact, eager, got = (exact,), (eager,), (got,)
    whole = max(float((g - e).norm() / e.norm()) for g, e in zip(got, eager, strict=True))
    ratios = [
        float((g[:4] - x).norm() / (e[:4].double() - x).norm().clamp_min(1e-7 * x.norm()))
        for g, e, x in zip(got, eager, exact, strict=True)
    ]
    return whole, max(ratios)


def main():
    """Check, time, print, write."""
    out, machine = Path(sys.argv[1]), wire.from_data(Machine, json.loads(Path(sys.argv[2]).read_text()))
    native = compiled(Path(tempfile.mkdtemp(prefix="long_rows_")))
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    cache, rows = int(machine.value("cache.last_level_bytes")), []
    for name, what, height, cols in CASES:
        weight, bias = torch.rand(cols, device="cuda") + 0.5, torch.randn(cols, device="cuda")
        inputs = [torch.randn(height, cols, device="cuda") for _ in range(1 + (what == LAYER))]
        moved = inputs[0].nbytes * len(inputs)
        row = {"name": name, "axes": {"rows": height, "cols": cols}, "candidates": [], "read": moved, "written": moved}
        rows.append(row)
        for plan in plans(what, cols, processors):
            entry = {"label": f"groups of {plan[0]}, {plan[1]} stages"}
            row["candidates"].append(entry)
            try:
                call = runner(native, what, weight, bias, plan, processors)
                entry["distance"], entry["error_ratio"] = error(what, weight, bias, call, inputs)
                if not entry["distance"] < 1e-5:
                    raise RuntimeError("the result is wrong")
                try:
                    entry["us"] = microseconds(call, inputs, cache)[0]
                except RuntimeError as problem:
                    entry["events"] = f"not captured: {problem}"[:200]
                    entry["us"] = timed(lambda: call(*inputs))[0]  # noqa: B023 (called before the loop goes on)
            except RuntimeError as problem:
                entry["failed"] = str(problem)[:300]
            print(name, row["axes"], entry, flush=True)
        good = [one for one in row["candidates"] if "us" in one]
        if good:
            best = min(good, key=lambda one: one["us"])
            bound = unavoidable_us(row["read"], row["written"], machine)
            row |= {"best_us": best["us"], "by": best["label"], "bound_us": bound, "over": best["us"] / bound}
            print(f"{name} {row['axes']}: {row['best_us']:.1f} us, {row['over']:.3f}x its bound", flush=True)
        head = {"command": ["python", "-m", "benchmarks.long_rows"], "commit": commit(), "device": machine.name,
                "machine": machine.fingerprint, "torch": torch.__version__, "when": time.time()}  # fmt: skip
        out.write_text(json.dumps({**head, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
