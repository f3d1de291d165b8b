# SPDX-License-Identifier: Apache-2.0
"""The effects that ship with the package, from measured times of the templates and of the shipped examples.

    python benchmarks/knowledge_seed.py [--out src/kernelwright/knowledge_seed.jsonl]

Each ratio is one case's median time before over after, both from one file of ``benchmarks/results``: torch.compile
and each template against eager, each template's variants against its default, and the proved winners of the shipped
examples (``examples.json`` of every machine) against eager. Nothing else goes in.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelwright import wire
from kernelwright.knowledge import Effect, task_features
from kernelwright.optimize.learning import operators

ROOT = Path(__file__).resolve().parents[1]
FILES = ("templates_defaults.json", "templates_products.json", "templates_sweep_2.json")
WORDS = {
    "rowwise": "one Triton kernel, a whole row in registers",
    "looped": "one Triton kernel that walks each row in blocks",
    "matmul": "a Triton product with the epilogue in the same kernel",
}
WINNERS = {
    "rowwise.cpp": ("one C++ kernel, a few passes over each row while it is in cache", "cpp"),
    "segments.cpp": ("one C++ kernel that adds up segments of the input", "cpp"),
    "rowwise.triton": (WORDS["rowwise"], "triton"),
    "looped.triton": (WORDS["looped"], "triton"),
    "matmul.triton": (WORDS["matmul"], "triton"),
    "terms.triton": ("a Triton product on the tensor cores, from float32 operands split in terms", "triton"),
}
"""What a proposer of the examples wrote, and its language."""


def effects(name: str) -> Iterator[Effect]:
    """Every effect of one result file, one ratio each; failures without a ratio."""
    data = json.loads((ROOT / "benchmarks" / "results" / "h200" / name).read_text())
    machine = f"{data['facts']['device']}, torch {data['facts']['torch']}, triton {data['facts']['triton']}"
    for row in data["rows"]:
        features = describe(row)
        eager, compiled = row.get("eager_us"), row.get("compile_us")
        if eager and compiled:
            yield effect(machine, features, "torch.compile in place of eager", "torch", eager, compiled)
        known = {item["label"]: item for item in row["candidates"]}
        for label, item in known.items():
            base, _, change = label.partition(".")
            if change:
                before = known.get(base, {}).get("us")
                edit = f"{WORDS[base]}: {change.replace('.', ', ')}, not the default"
            else:
                before, edit = eager, f"{WORDS[base]}, in place of eager"
            if before:
                yield effect(machine, features, edit, "triton", before, item.get("us"))


def winners(path: Path) -> Iterator[Effect]:
    """Of one file of examples: the proved winner against eager, and torch.compile where both were timed."""
    data = json.loads(path.read_text())
    versions = dict(data["machine"]["versions"])
    machine = f"{data['machine']['name']}, torch {versions['torch']}"
    for row in data["rows"]:
        outcome, (found,) = row["outcome"], [name for name in WINNERS if str(row["proposer"]).endswith(name)] or [None]
        source = (ROOT / "examples" / f"{row['task']}.py").read_text()
        features = task_features([("x", tuple(row["axes"].values())[:2], "float32")], operators(source))
        if outcome is None or outcome["is"] != "Timed":
            continue
        times = {item["name"]: item["timing"]["samples_us"] for item in outcome["baselines"]}
        middle = {name: [statistics.median(samples)] for name, samples in times.items()}
        if "compile" in middle:
            yield effect(
                machine, features, "torch.compile in place of eager", "torch", middle["eager"], middle["compile"]
            )
        if found is not None:
            words, language = WINNERS[found]
            rewritten = "after an algebraic rewrite, " if str(row["proposer"]).startswith("rewrites") else ""
            own = [statistics.median(outcome["timing"]["samples_us"])]
            yield effect(machine, features, f"{rewritten}{words}, in place of eager", language, middle["eager"], own)


def effect(
    machine: str, features: tuple[str, ...], edit: str, language: str, before: list[float], after: list[float] | None
) -> Effect:
    """One ratio of medians, or one failure."""
    ratios = (round(before[0] / after[0], 4),) if after else ()
    return Effect(
        machine=machine, features=features, diagnosis="", edit=edit, language=language, ratios=ratios,
        failures=0 if after else 1,
    )  # fmt: skip


def describe(row: dict[str, Any]) -> tuple[str, ...]:
    """Features of a case: the reference of the shipped example where there is one, else its name."""
    example = ROOT / "examples" / f"{row['name']}.py"
    names = operators(example.read_text()) if example.exists() else [row["name"]]
    return task_features([("x", tuple(row["axes"].values())[:2], "float32")], names)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "src" / "kernelwright" / "knowledge_seed.jsonl")
    chosen = parser.parse_args()
    merged: dict[str, Effect] = {}
    examples = sorted((ROOT / "benchmarks" / "results").glob("*/examples.json"))
    for source in [*(effects(name) for name in FILES), *(winners(path) for path in examples)]:
        for found in source:
            known = merged.get(found.key)
            merged[found.key] = found if known is None else Effect(
                machine=found.machine, features=found.features, diagnosis=found.diagnosis, edit=found.edit,
                language=found.language, ratios=(*known.ratios, *found.ratios),
                failures=known.failures + found.failures,
            )  # fmt: skip
    rows = sorted(merged.values(), key=lambda item: (item.features, item.edit))
    chosen.out.write_text("".join(wire.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{len(rows)} effects")


if __name__ == "__main__":
    main()
