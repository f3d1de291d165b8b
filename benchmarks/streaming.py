# SPDX-License-Identifier: Apache-2.0
"""Times the streaming programs of gpu_templates.py with cold caches and without the host, against their bounds.

python -m benchmarks.streaming OUT.json MACHINE.json [--seconds S] [--part compile|measure] [--explain]

Every call of a captured graph reads a set of inputs of its own and writes an output of its own; the sets together
exceed four last-level caches, so no byte of a call is there from the call before. Candidates are what the sweeps in
results/h200 found fastest, and each structure's defaults for programs that were not swept. ``--explain`` diagnoses
the best candidate of each program that stays more than 15 % above its bound.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import statistics
import tempfile
import time

import torch

from benchmarks import gpu_templates
from benchmarks.provenance import commit
from kernelwright import wire
from kernelwright.limits import unavoidable_us
from kernelwright.machine import Machine
from kernelwright.proposers.templates import triton_module, triton_program
from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.lower import lower

RESULTS = pathlib.Path(__file__).parent / "results" / "h200"
TASKS = [
    ("softmax", {"rows": 32768, "cols": 4096}), ("rmsnorm", {"rows": 32768, "cols": 4096}),
    ("cross_entropy", {"rows": 8192, "classes": 32768}), ("diag_matmul", {"rows": 8192, "cols": 16384}),
]  # fmt: skip
"""The CUDA sizes of tasks/ that CASES does not have."""
REWRITTEN = {"diag_matmul": "scale.unsqueeze(1) * x"}
"""Programs that are streaming ones after a rewrite only, and that rewrite of ``forward(scale, x)``."""
NEAR = 1.15
MOST_CALLS = 24


def programs():
    """(name, axes) of every streaming program."""
    cases = [(name, axes) for name, axes in gpu_templates.CASES if name not in gpu_templates.PRODUCTS and axes]
    return [*cases, *TASKS]


def fastest():
    """Labels that were fastest in a sweep, by program."""
    found = {}
    for path in sorted(RESULTS.glob("templates_sweep*.json")):
        for row in json.loads(path.read_text())["rows"]:
            timed = [(min(one["us"]), one["label"]) for one in row["candidates"] if one.get("us")]
            if timed:
                found.setdefault((row["name"], str(row["axes"])), set()).add(min(timed)[1])
    return found


def render(name, axes, folder, wanted):
    """(label, path) of the ``wanted`` labels that there still are, or of each structure's defaults."""
    text = gpu_templates.source(name)
    if name in REWRITTEN:
        path = folder / f"{name}.{'x'.join(map(str, axes.values()))}.rewritten.py"
        method = f"    def forward(self, scale, x):\n        return {REWRITTEN[name]}\n"
        path.write_text(f"{text}\n\nclass ModelNew(Model):\n{method}")
        return [("rewritten", str(path))]
    found = capture(gpu_templates.task_of(name, axes))
    program = lower(found)
    wrapping = triton_module.Wrapping(reference=text, entry="Model", training=False, init=found.init)
    files, every = [], gpu_templates.variants(program, True)
    labels = [".".join([s, *(f"{key}={value or 'none'}" for key, value in values.items())]) for s, values in every]
    wanted = wanted & set(labels)
    for label, (structure, values) in zip(labels, every, strict=True):
        if (label not in wanted) if wanted else values:
            continue
        path = folder / f"{name}.{'x'.join(map(str, axes.values()))}.{label}.py".replace("=", "-")
        path.write_text(triton_program.source(program, structure, values, wrapping))
        files.append((label, str(path)))
    return files


def microseconds(call, inputs, cache):
    """Median and least time of one call over replays of a graph of calls on sets of their own."""
    moved = sum(t.nbytes for t in inputs)
    sets = [inputs, *([t.clone() for t in inputs] for _ in range(min(MOST_CALLS, 4 * cache // moved + 2)))]
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for own in sets[:2]:
            call(*own)
        torch.cuda.synchronize()
        graph, kept = torch.cuda.CUDAGraph(), []
        with torch.cuda.graph(graph, stream=side):
            for own in sets * max(1, 8 // len(sets)):
                kept.append(call(*own))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    torch.cuda.synchronize()
    samples = []
    for _ in range(9):
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e3 / len(kept))
    written = sum(t.nbytes for t in gpu_templates.leaves(kept[0]))
    return statistics.median(samples), min(samples), written


def refuse(*_, **__):
    """Stands in for the reference while a candidate is timed."""
    raise RuntimeError("the candidate fell back to the reference")


def measure(name, axes, files, machine):
    """One row: every candidate's time and the program's bound."""
    cache = int(machine.value("cache.last_level_bytes"))
    row = {"name": name, "axes": axes, "candidates": []}
    for label, path in files:
        entry = {"label": label, "path": pathlib.Path(path).name}
        row["candidates"].append(entry)
        try:
            module, reference, candidate, inputs = gpu_templates.build(path, axes)
            state = sum(t.nbytes for t in reference.state_dict().values())
            base, module.Model.forward = module.Model.forward, refuse
            entry["us"], entry["least_us"], written = microseconds(candidate, inputs, cache)
            module.Model.forward = base
            row |= {"read": sum(t.nbytes for t in inputs) + state, "written": written}
        except Exception as error:  # noqa: BLE001 (a candidate can raise anything)
            entry["failed"] = f"{type(error).__name__}: {error}"[-300:]
        torch.cuda.empty_cache()
    good = [one for one in row["candidates"] if "us" in one]
    if good:
        best = min(good, key=lambda one: one["us"])
        bound = unavoidable_us(row["read"], row["written"], machine)
        row |= {"best_us": best["us"], "by": best["label"], "bound_us": bound, "over": best["us"] / bound}
    return row


def main():
    """Render, compile, measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("machine", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--part", choices=("compile", "measure"))
    parser.add_argument("--explain", action="store_true")
    options = parser.parse_args()
    began = time.time()
    machine = wire.from_data(Machine, json.loads(options.machine.read_text()))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="streaming_"))
    work, known = [], fastest()
    for name, axes in programs():
        try:
            work.append((name, axes, render(name, axes, folder, known.get((name, str(axes)), set()))))
        except Exception as error:  # noqa: BLE001 (one odd program must not end the run)
            print(f"{name} {axes}: not rendered: {type(error).__name__}: {error}"[:300], flush=True)
    jobs = [(path, axes) for _, axes, files in work for _, path in files]
    if options.part != "measure":
        with concurrent.futures.ProcessPoolExecutor(12, mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(gpu_templates.warm, jobs))
        print(f"{len(jobs)} candidates compiled after {time.time() - began:.0f} s", flush=True)
    if options.part == "compile":
        return
    rows = []
    for name, axes, files in work:
        if time.time() - began > options.seconds:
            print(f"{name} {axes}: no time left", flush=True)
            continue
        rows.append(measure(name, axes, files, machine))
        row = rows[-1]
        print(f"{name} {axes} {row.get('best_us', 0):.1f} us bound {row.get('bound_us', 0):.1f} "
              f"{row.get('over', 0):.3f}x {row.get('by')}", flush=True)  # fmt: skip
        write(options.out, machine, rows)
    if options.explain:
        explain(rows, folder, machine)
        write(options.out, machine, rows)


def explain(rows, folder, machine):
    """Adds the named limiter to each row that is far from its bound."""
    from benchmarks.planted.run import Outside, prepared  # noqa: PLC0415 (only where the judge's rooms are wanted)
    from kernelwright.candidate import Candidate  # noqa: PLC0415
    from kernelwright.diagnosis import diagnose  # noqa: PLC0415
    from kernelwright.judge.profile import profile  # noqa: PLC0415

    def one(row):
        path = folder / next(c["path"] for c in row["candidates"] if c["label"] == row["by"])
        made = gpu_templates.task_of(row["name"], row["axes"])
        given = Candidate(task=made.digest(), language="triton", entry=f"{path.name}::ModelNew",
                          sources=((path.name, path.read_text()),), proposer="templates")  # fmt: skip
        try:
            subject = prepared(made, given, "cuda:0", folder / "cache")
            found = profile(subject, machine, counted=Outside(subject.workshop, False))
            page = diagnose(found.facts, device="cuda", time_us=row["best_us"], bound_us=row["bound_us"])
        except Exception as error:  # noqa: BLE001 (a row without a name for its limiter is the result then)
            row["diagnosis"] = f"{type(error).__name__}: {error}"[:300]
            return
        row |= {"limiter": page.limiter, "diagnosis": page.text(), "facts": found.facts, "notes": found.notes}
        print(f"{row['name']} {row['axes']} {row['over']:.2f}x: {page.limiter}", flush=True)

    far = [row for row in rows if row.get("over", 0.0) > NEAR]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(one, far))


def write(out, machine, rows):
    """The file, with what it belongs to."""
    about = torch.cuda.get_device_name()
    head = {"command": ["python", "-m", "benchmarks.streaming"], "commit": commit(), "machine": machine.fingerprint,
            "device": about, "torch": torch.__version__, "when": time.time()}  # fmt: skip
    near = [row for row in rows if row.get("over", 9.0) <= NEAR]
    out.write_text(json.dumps({**head, "programs": len(rows), "near": len(near), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
