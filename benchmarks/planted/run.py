# SPDX-License-Identifier: Apache-2.0
"""Profiles and diagnoses every planted kernel; counts how many limiters are named first.

python -m benchmarks.planted.run cpu|cuda OUT.json [--set unseen] [--sizes inputs again third] [--only NAME ...]

``--set unseen``: the programs of that folder, written after the rules and never used to change one.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import torch

import kernelwright
from benchmarks.provenance import commit
from kernelwright import limits, sandbox, wire
from kernelwright.candidate import Candidate
from kernelwright.diagnosis import diagnose
from kernelwright.judge import calibration
from kernelwright.judge.build import build
from kernelwright.judge.profile import Subject, profile, watched
from kernelwright.judge.profile.counters import rows
from kernelwright.judge.reference import Reference
from kernelwright.load.raw import wrap
from kernelwright.machine import Machine
from kernelwright.task import Contract, Task
from kernelwright.trial import Rejected

HERE = Path(__file__).parent
ENDINGS = {"cuda": ".cu", "cpu": ".cpp"}


def task(row, sizes):
    """The reference of a planted kernel as a task, at one of its sizes."""
    arguments = row.get("args", "x")
    inputs = row[sizes]
    source = (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
        f"class Model(nn.Module):\n    def forward(self, {arguments}):\n        return {row['forward']}\n\n\n"
        f"def get_inputs():\n    return {inputs}\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return Task(name=row["name"], form="kernelbench", reference=source, contract=Contract())


def candidate(row, kind, made):
    """The planted kernel as a candidate."""
    place = HERE / row.get("set", "") / kind
    if row.get("language") in ("torch", "triton"):
        path = place / f"{row['name']}.py"
        sources, entry, language = ((path.name, path.read_text()),), f"{path.name}::ModelNew", row["language"]
    else:
        path = place / f"{row['name']}{ENDINGS[kind]}"
        text = path.read_text()
        sources = tuple(sorted([(path.name, text), ("optimized.py", wrap(made, path, text))]))
        entry, language = "optimized.py::ModelNew", "cuda" if kind == "cuda" else "cpp"
    return Candidate(task=made.digest(), language=language, entry=entry, sources=sources, proposer="planted")


def subject(row, kind, device, cache, sizes):
    """Built and ready to be profiled."""
    made = task(row, sizes)
    return prepared(made, candidate(row, kind, made), device, cache)


def prepared(made, given, device, cache):
    """A candidate of a task, built, with one call of it. Raises RuntimeError where it does not build."""
    folder = build(given, device, cache / "built")
    if isinstance(folder, Rejected):
        raise RuntimeError(f"{made.name}: {folder.reason} {folder.detail}")
    reference = Reference(made, device)
    instance = reference.instance(made.timed_case())
    variant = instance.variants(1)[0]
    leaves = instance.draw(variant, 5)
    traced = limits.trace_module(instance.model, leaves, {})
    return Subject(
        entry=given.entry, folder=folder, device=device, init_args=instance.init_args,
        init_kwargs=instance.init_kwargs, state=instance.first_state, leaves=leaves, skeleton=instance.skeleton,
        training=False, traced=traced, workshop=(cache / "profile" / given.digest()[:16] / made.digest()[:8]).resolve(),
        threads=torch.get_num_threads(),
    )  # fmt: skip


COUNTING = threading.Semaphore(2)
"""Profilers at a time: the driver refuses one that counts while another does, and it is then tried again. Of four, 12
of 27 programs were refused four times."""


class Outside:
    """Counts in the sandbox, and where that gives no counters, outside of it: these kernels are our own."""

    def __init__(self, folder, only):
        self.log, self.only, self.where = folder / "ncu.log", only, ""

    def __call__(self, given, tool, program):
        """The first of the two that gives a table."""
        with COUNTING:
            return self.count(given, tool, program)

    def count(self, given, tool, program):
        """Inside, else outside."""
        argv = [*tool, *program]
        if not self.only:
            inside = watched(given, tool, program)
            self.log.write_text(f"inside: {inside.returncode} {inside.killed}\n{inside.stdout}\n{inside.stderr}\n")
            if rows(inside.stdout):
                self.where = "inside the sandbox"
                return inside
        env = {**os.environ, "TRITON_CACHE_DIR": str(given.workshop / "triton")}
        env["PYTHONPATH"] = ":".join([str(Path(kernelwright.__file__).resolve().parents[1]), *filter(None, sys.path)])
        done = subprocess.run(argv, cwd=given.folder, env=env, capture_output=True, text=True, timeout=120, check=False)
        self.where = "outside the sandbox" if rows(done.stdout) else "nowhere"
        with self.log.open("w" if self.only else "a") as file:
            file.write(f"outside: {done.returncode}\n{done.stdout}\n{done.stderr}\n")
        return sandbox.Finished(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr, killed="")


def examine(row, kind, device, cache, machine, sizes, outside=False):
    """One row of the result."""
    started = time.time()
    try:
        given = subject(row, kind, device, cache, sizes)
        counted = Outside(given.workshop, outside) if kind == "cuda" else None
        found = profile(given, machine, counted=counted)
    except (RuntimeError, ValueError, OSError) as error:
        return {"name": row["name"], "sizes": sizes, "right": False, "error": str(error)[:400]}
    facts = found.facts
    named = []
    page = None
    if "time_us" in facts:
        page = diagnose(facts, device=device, time_us=facts["time_us"], bound_us=facts.get("bound_us"))
        named = [(one.rule, round(one.share, 3)) for one in page.findings]
    return {
        "name": row["name"],
        "sizes": sizes,
        "wanted": row["limiters"],
        "named": named,
        "right": bool(named) and named[0][0] in row["limiters"],
        "among": any(rule in row["limiters"] for rule, _ in named),
        "notes": found.notes,
        "counted": counted.where if counted else "",
        "facts": {name: float(f"{value:.5g}") for name, value in sorted(facts.items())},
        "text": page.text() if page else "",
        "seconds": round(time.time() - started, 1),
    }


def compiled(row, size, kind, device, cache):
    """Builds one kernel and says where that fails."""
    folder = build(candidate(row, kind, task(row, size)), device, cache / "built")
    if isinstance(folder, Rejected):
        print(f"{row['name']} {size}: {folder.reason} {folder.detail}"[:600], flush=True)


def machine_of(device, cache, given=None):
    """The device as measured: from ``given``, from the cache folder if it was, else now."""
    if given is not None:
        return wire.from_data(Machine, json.loads(given.read_text()))
    name, versions = calibration.identity(device)
    path = cache / f"machine-{device.replace(':', '')}.json"
    if path.is_file():
        found = wire.from_data(Machine, json.loads(path.read_text()))
        if found.name == name and found.versions == versions:
            return found
    found = calibration.calibrate(device, cache / "calibration", lambda what, share: print(f"  {share:4.0%} {what}"))
    path.write_text(wire.dumps(found))
    return found


def asked():
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("cpu", "cuda"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="*", default=["inputs"], choices=("inputs", "again", "third"))
    parser.add_argument("--again", action="store_true", help="the same as --sizes again")
    parser.add_argument("--machine", type=Path, help="measured facts of this very kind of device")
    parser.add_argument("--set", default="", choices=("", "unseen"))
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/planted"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin with no kernel after so many")
    parser.add_argument("--build", action="store_true", help="compile every kernel and stop")
    parser.add_argument("--outside", action="store_true", help="count outside the sandbox at once")
    return parser.parse_args()


def main():
    """Run, print a table, write the file."""
    options = asked()
    sizes = ["again"] if options.again else options.sizes
    device = "cpu" if options.kind == "cpu" else "cuda:0"
    options.cache.mkdir(parents=True, exist_ok=True)
    kernels = tomllib.loads((HERE / options.set / f"{options.kind}.toml").read_text())["kernel"]
    kernels = [{**row, "set": options.set} for row in kernels]
    kernels = [row for row in kernels if not options.only or row["name"] in options.only]
    if options.build:
        with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
            jobs = itertools.product(kernels, sizes)
            list(pool.map(lambda job: compiled(*job, options.kind, device, options.cache), jobs))
        return
    machine = machine_of(device, options.cache, options.machine)
    found = []
    head = {
        "command": ["python", "-m", "benchmarks.planted.run", options.kind, *(["--set", options.set] if options.set
                    else []), "--sizes", *sizes], "commit": commit(),
        "machine": machine.fingerprint, "device": machine.name, "versions": dict(machine.versions), "when": time.time(),
    }  # fmt: skip
    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:

        def job(row, size):
            if time.time() - head["when"] > options.seconds:
                return None
            return examine(row, options.kind, device, options.cache, machine, size, options.outside)

        jobs = [pool.submit(job, row, size) for size in sizes for row in kernels]
        for done in concurrent.futures.as_completed(jobs):
            if done.result() is None:
                continue
            found.append(done.result())
            print(f"  {found[-1]['name']} {found[-1]['sizes']}: {found[-1].get('named')}", flush=True)
            options.out.write_text(json.dumps({**head, **score(found, sizes), "kernels": found}))
    for one in found:
        mark = "right" if one["right"] else "WRONG"
        print(f"{mark:5}  {one['name']:22} {one['sizes']:6} {one.get('named') or one.get('error')}")
        for note in one.get("notes", ()):
            print(f"         {note}")
    if len(found) < len(jobs):
        print(f"{len(jobs) - len(found)} of {len(jobs)} left out: the time was up")
    for size, (right, of) in score(found, sizes)["right"].items():
        print(f"{size}: {right} of {of} planted limiters named first")
    options.out.write_text(json.dumps({**head, **score(found, sizes), "kernels": found}, indent=1))
    sys.stdout.flush()


def score(found, sizes):
    """How many were named first, of how many, at each size."""
    by = {size: [one["right"] for one in found if one["sizes"] == size] for size in sizes}
    return {"right": {size: (sum(rights), len(rights)) for size, rights in by.items()}}


if __name__ == "__main__":
    main()
