# SPDX-License-Identifier: Apache-2.0
"""The effects that ship with the package, from the measured times of the Triton templates on an H200.

    python benchmarks/knowledge_seed.py [--out src/kernelwright/knowledge_seed.jsonl]

Each ratio is one case's median time before over after, both from one file of ``benchmarks/results/h200``: torch.compile
and each template against eager, and each template's variants against its default. Nothing else goes in.
"""

from __future__ import annotations

import argparse
import json
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
    for name in FILES:
        for found in effects(name):
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
