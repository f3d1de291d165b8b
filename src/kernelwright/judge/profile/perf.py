# SPDX-License-Identifier: Apache-2.0
"""A processor's hardware counters over a few calls, through ``perf stat`` where it is installed and permitted.

A missing tool, a refused permission or a machine without counters (most virtual ones) is a note, never a failure.
"""

from __future__ import annotations

import shutil
from pathlib import Path

EVENTS = (
    "task-clock", "cycles:u", "instructions:u", "cache-references:u", "cache-misses:u", "branches:u", "branch-misses:u",
)  # fmt: skip
CONTROL, TABLE = "perf.control", "perf.csv"


def tool() -> str | None:
    """Where perf is, or None."""
    return shutil.which("perf")


def command(perf: str, folder: Path) -> list[str]:
    """perf up to the program it starts: it counts between "enable" and "disable" in the pipe ``folder/CONTROL``."""
    return [
        perf, "stat", "-x", ",", "-o", str(folder / TABLE), "-e", ",".join(EVENTS), "-D", "-1",
        "--control", f"fifo:{folder / CONTROL}", "--",
    ]  # fmt: skip


def counts(table: str) -> tuple[dict[str, float], list[str]]:
    """(event to count, events that this machine or its settings refuse) from perf's table."""
    found, refused = {}, []
    for line in table.splitlines():
        cells = line.split(",")
        if len(cells) < 3 or line.startswith("#"):
            continue
        value, name = cells[0], cells[2].removesuffix(":u")
        try:
            found[name] = float(value)
        except ValueError:
            refused.append(f"{name} {value.strip('<>')}")
    return found, refused


def facts(found: dict[str, float], calls: float) -> dict[str, float]:
    """Counters as the rules name them: per cycle, per thousand instructions, per call."""
    result = {}
    cycles, instructions = found.get("cycles", 0.0), found.get("instructions", 0.0)
    if cycles and instructions:
        result["instructions_per_cycle"] = instructions / cycles
        result["instructions_a_call"] = instructions / calls
    for event, fact in (("cache-misses", "cache_misses_per_thousand"), ("branch-misses", "branch_misses_per_thousand")):
        if event in found and instructions:
            result[fact] = 1000.0 * found[event] / instructions
    return result
