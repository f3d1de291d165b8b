# SPDX-License-Identifier: Apache-2.0
"""What a run and a call cost in energy, and whether counters are read inside the sandbox: one run, one profile.

python -m benchmarks.gpu_cost OUT_FOLDER [--device cuda:0] [--budget 45s]

Prints the lines of the report and of ``proof.json`` that say what was spent, and the diagnosis of a planted kernel
with the notes that say what could not be counted. ``proof.json`` of the run is copied to OUT_FOLDER.
"""

import argparse
import json
import re
import shutil
import tempfile
import tomllib
from pathlib import Path

import kernelwright
from benchmarks.planted.run import HERE, candidate, task

ROOT = Path(__file__).parents[1]
PLANTED = {"cuda": "bank_conflicts", "cpu": "gathers"}
"""One kernel whose limiter cannot be named without counters (CUDA) or compiled facts (CPU)."""


def said_of_cost(text):
    """Sentences of a report that name energy, power or carbon."""
    plain = re.sub(r"<[^>]+>", " ", text)
    lines = [" ".join(line.split()) for line in plain.splitlines()]
    return [line for line in lines if re.search(r"\b(kWh|mJ|CO2e|device-hours)\b", line)]


def optimised(device, budget, out):
    """Run once; print what the report and the proof say of its cost."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        found = kernelwright.optimize(
            str(ROOT / "tasks/normalisation/rmsnorm"), device=device, budget=budget, out=str(run)
        )
        print(f"optimize: {found.status} in {found.seconds:.0f} s: {found.message}")
        pages = sorted(run.glob("report.*"))
        for path in pages:
            for line in said_of_cost(path.read_text()):
                print(f"  {path.name}: {line}"[:300])
        if not pages:
            print("  no report was written")
        proof = run / "proof.json"
        if not proof.exists():
            print("  nothing faster, so nothing is proved and no proof.json carries energy")
            return
        said = json.loads(proof.read_text())
        print("  proof.json energy:", json.dumps(said["energy"]))
        shutil.copy(proof, out / "proof_rmsnorm.json")


def profiled(device):
    """Profile one planted kernel as any candidate is, in the sandbox; print its page and its notes."""
    kind = device.partition(":")[0]
    rows = tomllib.loads((HERE / f"{kind}.toml").read_text())["kernel"]
    about = next(row for row in rows if row["name"] == PLANTED[kind])
    made = task(about, "inputs")
    seen = kernelwright.profile(candidate(about, kind, made), made, device=device)
    print(f"profile of {about['name']} ({len(seen['facts'])} facts):")
    print("  " + seen["text"].rstrip().replace("\n", "\n  "))
    counted = [name for name in ("memory_throughput", "issue_active", "bank_conflict_share", "pipe_fma", "pipe_tensor",
                                 "cache_throughput", "instructions_per_cycle") if name in seen["facts"]]  # fmt: skip
    print("  read from hardware counters inside the sandbox:", ", ".join(counted) or "nothing")


def main():
    """Both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--budget", default="45s")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    profiled(options.device)
    optimised(options.device, options.budget, options.out)


if __name__ == "__main__":
    main()
