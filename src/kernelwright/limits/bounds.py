# SPDX-License-Identifier: Apache-2.0
"""From a trace and a Machine to microseconds: the unavoidable bound, the bound as written, and a row per operator."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.limits.trace import Operator, Trace
from kernelwright.machine import Machine

BANDWIDTH_FACTS = ("bandwidth.read.dram_GBps", "bandwidth.copy.dram_GBps", "bandwidth.write.dram_GBps")


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


def bandwidth(machine: Machine) -> float | None:
    """Fastest measured device-memory rate in bytes per microsecond, or None. The fastest of read, copy and write,
    so that a bound made from it is never above what the device can do."""
    rates = [machine.value(name) for name in BANDWIDTH_FACTS]
    known = [rate for rate in rates if rate]
    return max(known) * 1e3 if known else None


def unavoidable_us(moved: int, machine: Machine, *, resident: int = 0) -> float | None:
    """Least time to move ``moved`` bytes, of which ``resident`` may stay in the last-level cache."""
    rate = bandwidth(machine)
    return None if rate is None else max(0, moved - resident) / rate


def bounds(found: Trace, machine: Machine) -> Bounds | None:
    """Every bound of a trace, or None where the machine's memory bandwidth was not measured."""
    rate = bandwidth(machine)
    if rate is None:
        return None
    launch = machine.value("latency.launch_us") or 0.0
    rows, work, warnings = [], {"matmul": 0.0, "vector": 0.0, "sfu": 0.0}, list(found.warnings)
    for operator in found.operators:
        seconds = _work_us(operator, machine)
        if seconds is None:
            warnings.append(f"{operator.name}: no measured peak for {operator.unit} {operator.dtype}")
            seconds = 0.0
        work[operator.unit] = work.get(operator.unit, 0.0) + seconds
        moving = operator.bytes / rate
        rows.append(OperatorRow(operator, max(moving, seconds, launch), _limiter(moving, seconds, launch)))
    unavoidable = found.unavoidable_bytes / rate
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
