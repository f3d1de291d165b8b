# SPDX-License-Identifier: Apache-2.0
"""A measured machine as one page: the bandwidth staircase, the roofline, and every fact; no script, nothing fetched."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from kernelwright.machine import Machine
from kernelwright.report.render import TEMPLATES

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP = 640.0, 300.0, 60.0, 140.0, 40.0, 12.0
GAP = 12.0
"""Between the labels of two lines, in units of the view box: the height of their letters."""
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_STEP = re.compile(r"bandwidth\.(read|write|copy)\.([\d.]+)(B|KiB|MiB|GiB)_GBps")
Line = dict[str, Any]


def staircase(machine: Machine) -> list[Line]:
    """One line for each kind of access: (bytes of the working set, GB/s), smallest first."""
    found: dict[str, list[tuple[float, float]]] = {}
    for fact in machine.facts:
        match = _STEP.fullmatch(fact.name)
        if match and fact.value:
            found.setdefault(match[1], []).append((float(match[2]) * UNITS[match[3]], fact.value))
    return [{"label": kind, "points": sorted(points)} for kind, points in sorted(found.items())]


def roofline(machine: Machine) -> list[Line]:
    """One line for each measured peak: (FLOP per byte, GFLOP/s) along the memory slope and the peak."""
    slope = machine.value("bandwidth.copy.dram_GBps")
    if not slope:
        return []
    lines = []
    for fact in machine.facts:
        match = re.fullmatch(r"peak\.(gemm|simd|scalar)\.(\w+)_TFLOPs", fact.name)
        if match and fact.value:
            peak = fact.value * 1e3
            ridge = peak / slope
            start = min(0.25, ridge / 2)
            points = [(start, start * slope), (ridge, peak), (max(4096.0, 2 * ridge), peak)]
            lines.append({"label": f"{match[2]} {match[1]}", "points": points})
    return lines


def chart(lines: Sequence[Line], across: str, up: str) -> dict[str, Any] | None:
    """Both axes logarithmic: paths, labels at the lines' ends, and ticks at powers of ten or two."""
    points = [point for line in lines for point in line["points"]]
    if not points:
        return None
    low_x, high_x = (math.log2(pick(x for x, _ in points)) for pick in (min, max))
    low_y, high_y = (math.log10(pick(y for _, y in points)) for pick in (min, max))
    low_y, high_y = math.floor(low_y), math.ceil(high_y + 1e-9)

    def x_of(value: float) -> float:
        return LEFT + (math.log2(value) - low_x) / max(high_x - low_x, 1e-9) * (WIDTH - LEFT - RIGHT)

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(value) - low_y) / max(high_y - low_y, 1e-9) * (HEIGHT - BOTTOM - TOP)

    drawn = []
    for line in lines:
        path = " ".join(f"{'L' if i else 'M'}{x_of(x):.1f} {y_of(y):.1f}" for i, (x, y) in enumerate(line["points"]))
        end = line["points"][-1]
        drawn.append({"path": path, "label": line["label"], "x": x_of(end[0]) + 6, "y": y_of(end[1]) + 4})
    apart(drawn)
    steps = range(math.ceil(low_x), math.floor(high_x) + 1, max(1, round((high_x - low_x) / 6)))
    return {
        "lines": drawn,
        "x_ticks": [(x_of(2.0**power), tick(2.0**power, across)) for power in steps],
        "y_ticks": [(y_of(10.0**power), f"{10.0**power:g}") for power in range(low_y, high_y + 1)],
        "across": across,
        "up": up,
    }


def apart(drawn: list[Line]) -> None:
    """Move labels so that no two overlap: each at least ``GAP`` below the one above, the lowest inside the page."""
    ordered = sorted(drawn, key=lambda line: float(line["y"]))
    for above, line in pairwise(ordered):
        line["y"] = max(line["y"], above["y"] + GAP)
    floor = HEIGHT - 4.0
    for line in reversed(ordered):
        line["y"] = floor = min(line["y"], floor)
        floor -= GAP


def tick(value: float, unit: str) -> str:
    """A size in bytes with its unit, any other number plainly."""
    if not unit.startswith("working set"):
        return f"{value:g}"
    name = next(name for name in ("GiB", "MiB", "KiB", "B") if value >= UNITS[name])
    return f"{value / UNITS[name]:g} {name}"


def page(machine: Machine) -> str:
    """The whole page."""
    import jinja2  # noqa: PLC0415 - 60 ms that only a page costs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    charts = [
        ("Bandwidth by working set", chart(staircase(machine), "working set", "GB/s")),
        ("Roofline", chart(roofline(machine), "FLOP per byte", "GFLOP/s")),
    ]
    place = {"left": LEFT, "right": WIDTH - RIGHT, "floor": HEIGHT - BOTTOM}
    return environment.get_template("machine.html.j2").render(
        machine=machine, charts=charts, width=WIDTH, height=HEIGHT, **place
    )
