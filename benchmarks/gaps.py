# SPDX-License-Identifier: Apache-2.0
"""Best known time of each program of gap_programs.py against its bounds, and the limiter that explains the gap.

python -m benchmarks.gaps cpu|cuda OUT.json MACHINE.json [--part compile|measure|explain|name]

Entrants: eager, torch.compile, and the default of each of our templates' structures; one whose result differs from
eager's does not count. Caches are cold before every timed call. ``explain`` reads OUT.json again, profiles the best
entrant of each program that is not a streaming one within 15 % of its bound, and adds the named limiter. ``name``
needs no device: bounds and limiters again, from the facts in OUT.json; what was not profiled is named by its bounds.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
from pathlib import Path

import torch

from benchmarks.gap_programs import rows
from benchmarks.planted.run import Outside, prepared, task
from benchmarks.provenance import commit
from kernelwright import limits, wire
from kernelwright.candidate import Candidate
from kernelwright.diagnosis import UNNAMED, diagnose
from kernelwright.judge.build import build
from kernelwright.judge.profile import profile
from kernelwright.machine import Machine
from kernelwright.proposers import Request
from kernelwright.proposers.templates import TemplatesProposer
from kernelwright.trial import Rejected

NEAR = 1.15
PLAIN = "\n\nclass ModelNew(Model):\n    pass\n"
COMPILED = """

class ModelNew(Model):
    def __init__(self):
        super().__init__()
        self.compile()
"""
SECONDS, LEAST, MOST = 0.25, 5, 40


def entrants(row, kind):
    """(label, candidate) of every way to run a program here."""
    made = task(row, "inputs")

    def torch_program(label, ending):
        sources = (("optimized.py", made.reference + ending),)
        return label, Candidate(
            task=made.digest(), language="torch", entry="optimized.py::ModelNew", sources=sources, proposer=label
        )

    found = [torch_program("eager", PLAIN), torch_program("compile", COMPILED)]
    asked = Request(task=made, device="cuda:0" if kind == "cuda" else "cpu", machine=None)
    proposer = TemplatesProposer()
    try:
        for structure in proposer.structures(asked):
            values = {parameter.name: parameter.values[0] for parameter in structure.space.parameters}
            found.append((structure.name, proposer.render(asked, structure.name, values)))
    except Exception as error:  # noqa: BLE001 (a template that cannot be written is one entrant fewer)
        print(f"{row['name']}: templates: {type(error).__name__}: {error}"[:200], flush=True)
    return made, found


def loaded(candidate, kind, cache):
    """(module, model) of a built candidate. Raises RuntimeError where it does not build."""
    folder = build(candidate, "cuda:0" if kind == "cuda" else "cpu", cache / "built")
    if isinstance(folder, Rejected):
        raise RuntimeError(f"{folder.reason} {folder.detail}")
    name = f"entrant_{candidate.digest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, folder / candidate.entry.partition("::")[0])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    with torch.device(kind):
        return module, module.ModelNew().eval()


def drawn(module, kind):
    """Inputs of a program on the device, the same for every entrant."""
    torch.manual_seed(1)
    with torch.device(kind):
        return module.get_inputs()


def warm(job):
    """In a worker: build and run every entrant once, so that compiled code is found in the caches later."""
    row, kind, cache = job
    for _, candidate in entrants(row, kind)[1]:
        try:
            module, model = loaded(candidate, kind, cache)
            with torch.no_grad():
                model(*drawn(module, kind))
        except Exception as error:  # noqa: BLE001 (an entrant can raise anything; measuring tells)
            print(f"{row['name']} {candidate.proposer}: {type(error).__name__}: {error}"[:200], flush=True)


def on_processor(model, inputs, cache_bytes):
    """Median microseconds of a call after memory of twice the last-level cache was walked."""
    walked = torch.ones(max(64 << 20, 2 * cache_bytes) // 8, dtype=torch.float64)
    samples, began = [], time.perf_counter()
    with torch.no_grad():
        for _ in range(2):
            model(*inputs)
        while len(samples) < LEAST or (time.perf_counter() - began < SECONDS and len(samples) < MOST):
            walked.sum()
            start = time.perf_counter()
            model(*inputs)
            samples.append((time.perf_counter() - start) * 1e6)
    return statistics.median(samples)


def on_device(model, inputs, cache_bytes):
    """Median microseconds of a call in a replayed graph on sets of its own; by events where it cannot be captured."""
    from benchmarks.gpu_templates import timed  # noqa: PLC0415 (needs Triton)
    from benchmarks.streaming import microseconds  # noqa: PLC0415

    try:
        return microseconds(model, inputs, cache_bytes)[0]
    except RuntimeError:
        torch.cuda.synchronize()
        with torch.no_grad():
            return timed(lambda: model(*inputs))[0]


def wrong(got, expected):
    """Relative distance of a result from eager's, or None where shapes differ."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return None
    a, b = got.double(), expected.double()
    return float((a - b).norm() / b.norm().clamp_min(1e-30))


def measure(row, kind, machine, cache):
    """One row of the result."""
    made, every = entrants(row, kind)
    times, failed, expected = {}, {}, None
    for label, candidate in every:
        try:
            module, model = loaded(candidate, kind, cache)
            inputs = drawn(module, kind)
            with torch.no_grad():
                result = model(*inputs)
            if expected is None:
                expected, traced = result, limits.trace_module(module.Model(), inputs, {})
            off = wrong(result, expected)
            del result
            if off is None or not off < (2e-2 if expected.dtype == torch.bfloat16 else 1e-4):
                failed[label] = f"differs from eager by {off}"
                continue
            timer = on_device if kind == "cuda" else on_processor
            times[label] = timer(model, inputs, int(machine.value("cache.last_level_bytes") or 64 << 20))
        except Exception as error:  # noqa: BLE001 (an entrant can raise anything)
            failed[label] = f"{type(error).__name__}: {error}"[:200]
        if kind == "cuda":
            torch.cuda.empty_cache()
    bound = limits.bounds(traced, machine)
    best = min(times, key=times.get)
    return {
        "name": row["name"], "kind": row["kind"], "read": traced.input_bytes, "written": traced.output_bytes,
        "bound_us": bound.unavoidable_us, "written_bound_us": bound.as_written_us, "unfused_us": bound.unfused_us,
        "entrant_us": times, "failed": failed, "best_us": times[best], "by": best,
        "over": times[best] / bound.unavoidable_us,
    }  # fmt: skip


def explain(row, found, kind, machine, cache):
    """What the diagnosis of the best entrant adds to a measured row."""
    if found["kind"] == "streaming" and found["over"] <= NEAR:
        return {"limiter": "memory"}
    made, every = entrants(row, kind)
    try:
        given = prepared(made, dict(every)[found["by"]], "cuda:0" if kind == "cuda" else "cpu", cache)
        counted = Outside(given.workshop, False) if kind == "cuda" else None
        seen = profile(given, machine, counted=counted)
        page = diagnose(seen.facts, device=kind, time_us=found["best_us"], bound_us=found["bound_us"])
    except Exception as error:  # noqa: BLE001 (a row without a name for its limiter is the result then)
        return {"diagnosis": f"{type(error).__name__}: {error}"[:300]}
    kernels = [[one.name[:80], round(one.count, 2), round(one.us, 2)] for one in seen.kernels[:6]]
    return {"limiter": of_a_call(page), "rules": [one.rule for one in page.findings], "diagnosis": page.text(),
            "facts": seen.facts, "notes": seen.notes, "kernels": kernels,
            "counted": counted.where if counted else "", "named_by": "its profile"}  # fmt: skip


def of_a_call(page):
    """The limiter of a page; where that is a job's, the first one of a call: these are times of calls."""
    if page.limiter != "cold start":
        return page.limiter
    return next((one.limiter for one in page.findings if one.limiter != "cold start"), UNNAMED)


def name_again(row, found, kind, machine):
    """Bounds by the present rules, and the limiter from the facts that a row has."""
    namespace = {}
    exec(compile(task(row, "inputs").reference, row["name"], "exec"), namespace)
    torch.manual_seed(1)
    traced = limits.trace_module(namespace["Model"](), namespace["get_inputs"](), {})
    bound = limits.bounds(traced, machine)
    # An operator that is one on the device and unknown here keeps the work that was counted there.
    written = max(bound.as_written_us, found["written_bound_us"])
    unfused = max(bound.unfused_us, found["unfused_us"])
    found |= {"read": traced.input_bytes, "written": traced.output_bytes, "bound_us": bound.unavoidable_us,
              "written_bound_us": written, "unfused_us": unfused,
              "over": found["best_us"] / bound.unavoidable_us}  # fmt: skip
    own = {"written_us": written, "unfused_us": unfused, "bound_us": bound.unavoidable_us,
           "launch_bound": float(bound.limiter == "launch"),
           "launch_us": machine.value("latency.launch_us")}  # fmt: skip
    facts = found.get("facts", {}) | own
    page = diagnose(facts, device=kind, time_us=found["best_us"], bound_us=bound.unavoidable_us)
    found |= {"limiter": of_a_call(page), "rules": [one.rule for one in page.findings],
              "named_by": "its profile" if "facts" in found else "its bounds alone"}  # fmt: skip


def write(options, machine, found):
    """The file, with what it belongs to and how many are near or named."""
    streaming = [one for one in found if one["kind"] == "streaming"]
    named = [one for one in found if one.get("limiter", UNNAMED) != UNNAMED]
    head = {
        "command": ["python", "-m", "benchmarks.gaps", options.kind, "--part", options.part or "all"],
        "commit": commit(), "machine": machine.fingerprint, "device": machine.name, "versions": dict(machine.versions),
        "when": time.time(), "programs": len(found), "streaming": len(streaming),
        "near": sum(one["over"] <= NEAR for one in streaming), "named": len(named),
    }  # fmt: skip
    options.out.write_text(json.dumps({**head, "rows": found}, indent=1))
    return head


def table(found):
    """Printed, nearest to the bound first."""
    for one in sorted(found, key=lambda one: (one["kind"], one["over"])):
        times = f"{one['best_us']:10.1f} us  bound {one['bound_us']:9.1f}  {one['over']:9.2f}x"
        print(f"{one['kind']:14} {one['name']:22} {times}  {one['by']:16} {one.get('limiter', '')}")


def main():
    """Compile, measure, explain, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("cpu", "cuda"))
    parser.add_argument("out", type=Path)
    parser.add_argument("machine", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("/tmp/gaps"))
    parser.add_argument("--part", choices=("compile", "measure", "explain", "name"), default="")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seconds", type=float, default=170.0)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    began, machine = time.time(), wire.from_data(Machine, json.loads(options.machine.read_text()))
    options.cache = options.cache.resolve()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(options.cache / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(options.cache / "triton")
    chosen = {row["name"]: row for row in rows(options.kind) if not options.only or row["name"] in options.only}
    workers = options.workers or (14 if options.kind == "cuda" else 1)
    if options.part in ("", "compile"):
        with concurrent.futures.ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(warm, [(row, options.kind, options.cache) for row in chosen.values()]))
        print(f"compiled after {time.time() - began:.0f} s", flush=True)
    found = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    if options.part in ("", "measure"):
        done = {one["name"] for one in found}
        for name, row in chosen.items():
            if name in done or time.time() - began > options.seconds:
                continue
            try:
                found.append(measure(row, options.kind, machine, options.cache))
            except Exception as error:  # noqa: BLE001 (one odd program must not end the run)
                print(f"{name}: {type(error).__name__}: {error}"[:300], flush=True)
            write(options, machine, found)
    if options.part in ("", "explain"):
        left, writing = [one for one in found if one["name"] in chosen and "facts" not in one], threading.Lock()

        def job(one):
            if time.time() - began < options.seconds:
                more = explain(chosen[one["name"]], one, options.kind, machine, options.cache)
                with writing:
                    one |= more
                    write(options, machine, found)

        with concurrent.futures.ThreadPoolExecutor(8 if options.kind == "cuda" else 1) as pool:
            list(pool.map(job, left))
    if options.part == "name":
        for one in found:
            if one["name"] in chosen:
                name_again(chosen[one["name"]], one, options.kind, machine)
    table(found)
    print({key: value for key, value in write(options, machine, found).items() if isinstance(value, int)})


if __name__ == "__main__":
    main()
