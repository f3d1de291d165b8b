# SPDX-License-Identifier: Apache-2.0
"""From a trace and a Machine to microseconds: the unavoidable bound, the bound as written, and a row per operator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from kernelwright.limits.trace import Operator, Trace
from kernelwright.machine import Machine

MIXES = (
    (0.0, ("bandwidth.read.dram_GBps", "bandwidth.read_kernel.dram_GBps")),
    (0.5, ("bandwidth.copy.dram_GBps", "bandwidth.copy_kernel.dram_GBps")),
    (1.0, ("bandwidth.write.dram_GBps",)),
)
"""Share of the bytes that are written, and the facts of which the fastest says how fast that mix moves."""

_STAIR = re.compile(r"bandwidth\.(?:read|copy)\.([\d.]+)(KiB|MiB|GiB)_GBps$")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One operator's own bound, run alone: its bytes and its work, whichever takes longer."""

    operator: Operator
    bound_us: float
    limiter: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """All in microseconds per call."""

    unavoidable_us: float
    """Bytes only. The only bound that may reject a time."""
    as_written_us: float
    """The reference's arithmetic on the fastest unit its dtype allows, fused ideally."""
    unfused_us: float
    """Sum over operators, each run alone: what a perfect library without fusion would take."""
    limiter: str
    """What ``as_written_us`` is made of: ``memory``, ``compute`` or ``launch``."""
    rows: tuple[OperatorRow, ...]
    warnings: tuple[str, ...]


def us_per_byte(machine: Machine, written_share: float) -> float | None:
    """Least microseconds per byte for a mix of reads and writes, or None where no bandwidth was measured.

    Reads and writes differ (2-core Zen 4: 34 GB/s read, 95 GB/s with streaming stores, 52 GB/s for a copy), so
    the cost is interpolated between the measured mixes, in time per byte, which is linear where they queue.
    """
    best = [(share, max(machine.value(name) or 0.0 for name in names)) for share, names in MIXES]
    points = [(share, 1e-3 / rate) for share, rate in best if rate]
    if not points:
        return None
    if written_share <= points[0][0]:
        return points[0][1]
    for (left, slow), (right, fast) in pairwise(points):
        if written_share <= right:
            return slow + (fast - slow) * (written_share - left) / (right - left)
    return points[-1][1]


def unavoidable_us(read: int, written: int, machine: Machine, *, resident: int = 0) -> float | None:
    """Least time to read and write so many bytes, of which ``resident`` may stay in the last-level cache."""
    moved = read + written
    cost = us_per_byte(machine, written / moved if moved else 0.0)
    return None if cost is None else max(0, moved - resident) * cost


def reach_us(machine: Machine, moved: int) -> float | None:
    """Least time in which ``moved`` bytes pass when the program runs again and again on the same data, so that what
    fits a cache stays there. None where no working set was measured.

    The rate is the best of the working set below and of every larger one: a smaller set is never slower to reach, and
    a step that was measured beside other load must not make honest times impossible.
    """
    stairs: dict[int, float] = {}
    for fact in machine.facts:
        found = _STAIR.match(fact.name)
        if found and fact.value:
            size = int(float(found[1]) * _UNITS[found[2]])
            stairs[size] = max(stairs.get(size, 0.0), fact.value)
    if not stairs:
        return None
    below = max((size for size in stairs if size <= moved), default=min(stairs))
    return moved / max(rate for size, rate in stairs.items() if size >= below) * 1e-3


def bounds(found: Trace, machine: Machine) -> Bounds | None:
    """Every bound of a trace, or None where the machine's memory bandwidth was not measured."""
    unavoidable = unavoidable_us(found.input_bytes, found.output_bytes, machine)
    cost = us_per_byte(machine, 0.5)
    if unavoidable is None or cost is None:
        return None
    launch = machine.value("latency.launch_us") or 0.0
    rows, work, warnings = [], {"matmul": 0.0, "vector": 0.0, "sfu": 0.0}, list(found.warnings)
    for operator in found.operators:
        seconds = _work_us(operator, machine)
        if seconds is None:
            warnings.append(f"{operator.name}: no measured peak for {operator.unit} {operator.dtype}")
            seconds = 0.0
        work[operator.unit] = work.get(operator.unit, 0.0) + seconds
        moving = operator.bytes * cost
        rows.append(OperatorRow(operator, max(moving, seconds, launch), _limiter(moving, seconds, launch)))
    busiest = max(work.values())
    return Bounds(
        unavoidable_us=unavoidable,
        as_written_us=max(unavoidable, busiest, launch),
        unfused_us=sum(row.bound_us for row in rows),
        limiter=_limiter(unavoidable, busiest, launch),
        rows=tuple(rows),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _work_us(operator: Operator, machine: Machine) -> float | None:
    """Microseconds of arithmetic; float32 matrix work is bounded by the float32 rate, never by TF32's."""
    if operator.unit not in ("matmul", "vector", "sfu") or not operator.known:
        return 0.0
    unit = "gemm" if operator.unit == "matmul" else "simd"
    peak = machine.value(f"peak.{unit}.{operator.dtype}_TFLOPs") or machine.value("peak.simd.float32_TFLOPs")
    if operator.unit != "matmul" and not operator.dtype.startswith("float") and operator.dtype != "bfloat16":
        return 0.0
    return None if not peak else operator.operations / (peak * 1e6)


def _limiter(moving: float, computing: float, launch: float) -> str:
    times = {"memory": moving, "compute": computing, "launch": launch}
    return max(times, key=lambda name: times[name])
