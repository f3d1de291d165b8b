# SPDX-License-Identifier: Apache-2.0
"""Writes the README's table of results from benchmarks/results/*/examples.json; with --check it only compares."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- results: written by benchmarks/readme_table.py -->", "<!-- end of results -->"
HEADINGS = ("task", "sizes", "result", "best baseline", "time", "x eager", "of bound", "bits lost")


def main() -> int:
    """Rewrite README.md, or say whether it is up to date."""
    path = ROOT / "README.md"
    text = path.read_text()
    wanted = replaced(text, render(records()))
    if "--check" in sys.argv[1:]:
        return int(text != wanted)
    path.write_text(wanted)
    return 0


def records() -> list[dict[str, Any]]:
    """Every recorded machine."""
    return [json.loads(path.read_text()) for path in sorted(ROOT.glob("benchmarks/results/*/examples.json"))]


def replaced(text: str, table: str) -> str:
    """The text with the table between the markers."""
    head, _, rest = text.partition(BEGIN)
    _, found, tail = rest.partition(END)
    if not found:
        raise SystemExit("README.md has lost its markers")
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def render(found: Sequence[Mapping[str, Any]]) -> str:
    """One table per machine, under its name, commit and date."""
    if not found:
        return "No results are recorded in this checkout; `python benchmarks/examples.py` records them."
    parts = []
    for record in found:
        machine = record["machine"]
        versions = ", ".join(f"{name} {value}" for name, value in machine["versions"] if name in ("torch", "triton"))
        parts.append(
            f"**{machine['name']}** ({versions}; commit `{record['commit']}`, {record['recorded_at'][:10]},"
            f" `{record['command']}`)\n\n" + table(record["rows"])
        )
    return "\n\n".join(parts)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown rows; speedups with their 95 % interval."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|---|--:|---|--:|--:|--:|--:|"]
    return "\n".join(lines + ["| " + " | ".join(cells(row)) + " |" for row in rows])


def cells(row: Mapping[str, Any]) -> list[str]:
    """One task. What is no win says so, with the interval that was not enough."""
    sizes = " x ".join(str(size) for size in row["axes"].values())
    timed = row["outcome"]
    if timed is None:
        return [row["task"], sizes, "nothing faster", "", "", "", "", ""]
    won = row["status"] == "faster"
    speedup = f"{timed['speedup']:.2f}x ({timed['speedup_low']:.2f} to {timed['speedup_high']:.2f})"
    eager = next((b["speedup"] for b in timed["baselines"] if b["name"] == "eager"), None)
    bound = timed["bound_fraction"]
    return [
        row["task"],
        sizes,
        speedup if won else f"not proved: {speedup}",
        timed["best_baseline"],
        micros(statistics.median(timed["timing"]["samples_us"])),
        "" if eager is None else f"{eager:.2f}",
        "" if bound is None else f"{100 * bound:.0f} %",
        f"{timed['proof']['bits_lost']:.2f}",
    ]


def micros(value: float) -> str:
    """Microseconds with three digits, in the unit that fits."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} us"


if __name__ == "__main__":
    sys.exit(main())
