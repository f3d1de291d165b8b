# SPDX-License-Identifier: Apache-2.0
"""Builds, checks against float64 and times the Triton templates on one CUDA device; writes one JSON file.

    python benchmarks/gpu_templates.py --out FILE [--only NAME ...] [--autotune] [--sweep] [--plan FILE] [--families]

A plan is a JSON list of [program, axes, [[structure, {parameter: value}], ...], autotune]: exactly these are timed.

Every time is a median of device-event intervals on inputs several times the L2 cache. The bound of a program is its
bytes (inputs read once, outputs written once) over the copy bandwidth measured in the same run.
"""

import argparse
import concurrent.futures
import copy
import importlib.util
import json
import multiprocessing
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch

from kernelwright.proposers.templates import (
    triton_matmul,
    triton_module,
    triton_plans,
    triton_program,
    triton_terms,
    triton_window,
)
from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.lower import lower

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gpu_families import FAMILIES
from gpu_programs import CASES, PRODUCTS, ROOT, SHIFTED, source, task_axes, task_of


def variants(program, sweep):
    """(structure, values) pairs to time: the default of each structure, and a few neighbours with ``sweep``."""
    found = []
    for structure in triton_plans.structures(program):
        space = triton_plans.space(program, structure)
        found.append((structure, {}))
        if not sweep:
            continue
        first = {p.name: p.values[0] for p in space.parameters}
        for parameter in space.parameters:
            if parameter.name in ("WAVES", "HINT"):
                continue
            for value in parameter.values[1:]:
                chosen = first | {parameter.name: value}
                if all(eval(text, {}, dict(chosen)) for text in space.constraints):
                    found.append((structure, {parameter.name: value}))
    if triton_window.extras(program, {}) and not list(program.regions()):
        found += [("windows", {"BLOCK": block}) for block in (256, 512, 1024)]
    if triton_matmul.pairs(program):
        found.append(("matmul", {}))
        if triton_terms.worthwhile(program):
            found.append(("terms", {}))
        if sweep:
            found += [("matmul", values) for values in MATMULS]
    return found


MATMULS = [
    {"CHUNK": 1},
    {"CHUNK": 1, "STAGES": 4},
    {"CHUNK": 1, "BK": 64, "STAGES": 2},
    {"CHUNK": 1, "BN": 256, "STAGES": 2},
    {"CHUNK": 1, "BM": 256, "STAGES": 2},
    {"CHUNK": 4, "BK": 16},
    {"CHUNK": 2, "BK": 16, "STAGES": 4},
    {"PRECISION": "bf16x6"},
    {"PRECISION": "tf32x3"},
    {"PRECISION": "bf16x6", "CHUNK": 1},
    {"PRECISION": "bf16x6", "CHUNK": 1, "BN": 256, "STAGES": 2},
    {"PRECISION": "bf16x6", "CHUNK": 1, "BK": 64, "STAGES": 2},
    {"PRECISION": "bf16x6", "CHUNK": 4, "BK": 16},
    {"PRECISION": "ieee"},
]


def render(name, axes, folder, sweep, planned=None):
    """Candidate files of one program at one size: (label, path) pairs."""
    found = capture(task_of(name, axes))
    program = lower(found, halves=True)
    wrapping = triton_module.Wrapping(reference=source(name), entry="Model", training=False, init=found.init)
    size = "x".join(str(v) for v in (axes or {}).values())
    files = []
    for structure, values in variants(program, sweep) if planned is None else planned:
        label = ".".join([structure, *(f"{k}={v or 'none'}" for k, v in values.items())])
        path = folder / f"{name}.{size}.{label}.py".replace("=", "-")
        path.write_text(triton_program.source(program, structure, values, wrapping))
        files.append((label, str(path)))
    return files


def load(path):
    """A candidate file as a module."""
    name = f"candidate_{abs(hash(path))}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def build(path, axes):
    """The reference model, inputs and candidate model on the device, with equal weights."""
    module = load(path)
    torch.manual_seed(0)
    with torch.device("cuda"):
        init = module.get_init_inputs(**(axes or {}))
        inputs = module.get_inputs(**(axes or {}))
        reference = module.Model(*init).eval()
        candidate = module.ModelNew(*init).eval()
    candidate.load_state_dict(reference.state_dict())
    return module, reference, candidate, inputs


def baseline(name, axes):
    """A program without candidates, on the device."""
    path = pathlib.Path(tempfile.mkdtemp()) / "reference.py"
    path.write_text(source(name))
    module = load(str(path))
    with torch.device("cuda"):
        return module, module.Model(*module.get_init_inputs(**axes)).eval(), module.get_inputs(**axes)


def warm(job):
    """In a worker process: compile what the candidate launches, so that the timing process finds it cached."""
    path, axes = job
    try:
        _, _, candidate, inputs = build(path, axes)
        with torch.no_grad():
            candidate(*inputs)
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 (a candidate can raise anything)
        return f"{type(error).__name__}: {error}"[-600:]
    return ""


def leaves(found):
    """Tensors of a result."""
    return [found] if isinstance(found, torch.Tensor) else list(found)


def timed(function, seconds=0.25):
    """Median, 10th and 90th percentile in microseconds of device-event intervals."""
    for _ in range(3):
        function()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    function()
    torch.cuda.synchronize()
    count = int(min(60, max(9, seconds / max(1e-6, time.perf_counter() - begin))))
    starts = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    for start, end in zip(starts, ends, strict=True):
        start.record()
        function()
        end.record()
    torch.cuda.synchronize()
    times = sorted(1000 * s.elapsed_time(e) for s, e in zip(starts, ends, strict=True))
    return statistics.median(times), times[count // 10], times[-1 - count // 10]


def errors(reference, candidate, inputs):
    """RMS and max error of candidate over eager's, against float64, of every output."""
    with torch.no_grad():
        eager = leaves(reference(*inputs))
        got = leaves(candidate(*inputs))
        precise = copy.deepcopy(reference).double()
        exact = leaves(precise(*[t.double() if t.is_floating_point() else t for t in inputs]))
    ratios = []
    for g, e, x in zip(got, eager, exact, strict=True):
        if g.shape != e.shape or g.dtype != e.dtype:
            return [("shape", str(g.shape), str(e.shape))]
        if not g.is_floating_point():
            ratios.append((0.0, 0.0) if torch.equal(g, e) else ("places", f"{float((g != e).double().mean()):.2g}"))
            continue
        a, b = (g.double() - x).abs_(), (e.double() - x).abs_()
        floor = float(x.abs().mean()) * 2**-26
        ratios.append(
            (
                float(a.square().mean().sqrt()) / max(float(b.square().mean().sqrt()), floor),
                float(a.max()) / max(float(b.max()), floor),
            )
        )
    return ratios


def bandwidth():
    """Copy and read bandwidth in GB/s over 2 GiB."""
    x = torch.randn(1 << 29, device="cuda")
    y = torch.empty_like(x)
    copy = 2 * x.nbytes / timed(lambda: y.copy_(x))[0] / 1e3
    read = x.nbytes / timed(lambda: x.sum())[0] / 1e3
    return {"copy_GBps": copy, "read_GBps": read}


def measure(name, axes, files, copy, autotune, fell_back):
    """All numbers of one program at one size."""
    row = {"name": name, "axes": axes, "candidates": []}
    reference = None
    for label, path in files:
        entry = {"label": label, "path": pathlib.Path(path).name}
        row["candidates"].append(entry)
        try:
            module, reference, candidate, inputs = build(path, axes)
            base = module.Model.forward
            module.Model.forward = fell_back
            with torch.no_grad():
                entry["us"] = timed(lambda c=candidate, i=inputs: c(*i))
            module.Model.forward = base
            entry["error_ratio"] = errors(reference, candidate, inputs)
            if name in SHIFTED:
                entry["shifted"] = errors(reference, candidate, [x + 2 for x in inputs])
        except Exception as error:  # noqa: BLE001 (a candidate can raise anything)
            entry["failed"] = f"{type(error).__name__}: {error}"[-600:]
    if not files:
        module, reference, inputs = baseline(name, axes)
    if reference is None:
        return row
    with torch.no_grad():
        outputs = leaves(reference(*inputs))
        moved = sum(t.nbytes for t in [*inputs, *outputs])
        row["bytes"], row["bound_us"] = moved, moved / copy / 1e3
        row["eager_us"] = timed(lambda: reference(*inputs))
        modes = [("compile", {})] + ([("max_autotune", {"mode": "max-autotune-no-cudagraphs"})] if autotune else [])
        for key, options in modes:
            torch._dynamo.reset()
            began = time.time()
            compiled = torch.compile(reference, **options)
            row[f"{key}_us"] = timed(lambda c=compiled: c(*inputs))
            row[f"{key}_build_s"] = time.time() - began
    if name in LIBRARY:
        with torch.no_grad():
            row["library_us"] = timed(lambda: LIBRARY[name](reference, *inputs))
    return row


LIBRARY = {
    "diag_matmul": lambda model, v, x: v.unsqueeze(-1) * x,
    "sum_matmul": lambda model, x: (x @ model.weight.sum(0).unsqueeze(-1)) * model.scale,
}
"""What the rewritten program costs as torch calls, where the template proposer has nothing of its own."""


def refuse(*_, **__):
    """Stands in for the reference while a candidate is timed."""
    raise RuntimeError("the candidate fell back to the reference")


def show(row):
    """One line per program and its best candidates."""
    good = [c for c in row["candidates"] if "us" in c]
    best = min(good, key=lambda c: c["us"][0], default=None)
    base = f"eager {row['eager_us'][0]:.0f} compile {row['compile_us'][0]:.0f}" if "eager_us" in row else ""
    tuned = "".join(f" {k} {row[f'{k}_us'][0]:.0f}" for k in ("max_autotune", "library") if f"{k}_us" in row)
    print(f"{row['name']} {row['axes']} bound {row.get('bound_us', 0):.0f} {base}{tuned}", flush=True)
    for entry in row["candidates"]:
        mark = "*" if entry is best else " "
        text = entry.get("failed", "")[-200:]
        if "us" in entry:
            ratios = " ".join(
                "/".join(f"{v:.2f}" if isinstance(v, float) else v for v in r) for r in entry["error_ratio"]
            )
            text = f"{entry['us'][0]:.1f} us {100 * row['bound_us'] / entry['us'][0]:.0f} % err {ratios}"
            text += f" shifted {entry['shifted'][0][0]:.2f}" if "shifted" in entry else ""
        print(f"  {mark} {entry['label']}: {text}", flush=True)


def main():
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="gpu_templates.json")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--autotune", action="store_true")
    parser.add_argument("--render", action="store_true", help="write the candidates and stop (needs no device)")
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--cases", type=int, nargs="*", default=[], help="positions in CASES; all when absent")
    parser.add_argument("--product", type=int, default=4096)
    parser.add_argument("--families", action="store_true", help="scans, places, windows, groups, triangles instead")
    parser.add_argument("--plan", type=pathlib.Path)
    parser.add_argument("--commit", default="", help="what to record where there is no git folder")
    options = parser.parse_args()
    began = time.time()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpu_templates_"))
    work = []
    chosen = [(*CASES[position], None, options.autotune) for position in options.cases or range(len(CASES))]
    if options.families:
        chosen = [(name, axes, None, options.autotune) for name, axes in FAMILIES]
    if options.plan:
        chosen = json.loads(options.plan.read_text())
    for name, axes, planned, autotune in chosen:
        if options.only and name not in options.only:
            continue
        if name in PRODUCTS and axes is None:
            keys = task_axes(name)
            axes = {key: options.product for key in keys}
        try:
            work.append((name, axes, render(name, axes, folder, options.sweep, planned), autotune))
        except Exception as error:  # noqa: BLE001 (one odd program must not end the run)
            print(f"{name}: not rendered: {type(error).__name__}: {error}", flush=True)
    print(f"{sum(len(f) for _, _, f, _ in work)} candidates in {folder}, {time.time() - began:.0f} s", flush=True)
    if options.render:
        return
    # Matrix products compile longest and come last in CASES: start them first.
    jobs = [(path, axes) for _, axes, files, _ in reversed(work) for _, path in files]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(12, mp_context=context) as pool:
        for job, said in zip(jobs, pool.map(warm, jobs), strict=True):
            if said:
                print(f"warm {pathlib.Path(job[0]).name}: {said}", flush=True)
    print(f"warm after {time.time() - began:.0f} s", flush=True)
    facts = bandwidth()
    print(facts, flush=True)
    rows = []
    for name, axes, files, autotune in work:
        if time.time() - began > options.seconds:
            print(f"{name}: no time left", flush=True)
            continue
        row = measure(name, axes, files, facts["copy_GBps"], autotune, refuse)
        rows.append(row)
        show(row)
        torch.cuda.empty_cache()
        found = {"facts": facts | versions(options.commit), "rows": rows}
        pathlib.Path(options.out).write_text(json.dumps(found, indent=1))


def versions(commit):
    """What the numbers belong to."""
    import triton

    git = ["git", "-C", str(ROOT), "rev-parse", "--verify", "-q", "HEAD"]
    commit = commit or subprocess.run(git, capture_output=True, text=True).stdout.strip()
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "commit": commit,
        "command": " ".join(["benchmarks/gpu_templates.py", *sys.argv[1:]]),
    }


if __name__ == "__main__":
    main()
