# SPDX-License-Identifier: Apache-2.0
"""A small named set of hardware counters through Nsight Compute, where it is installed and permitted.

A missing tool, a refused permission or a counter this device lacks is a note in the result, never a failure.
"""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelwright.judge.profile.sass import plain

STALLS = {
    "memory": ("long_scoreboard", "lg_throttle", "tex_throttle"),
    "dependency": ("wait",),
    "shared": ("short_scoreboard",),
    "barrier": ("barrier", "membar"),
    "issue": ("math_pipe_throttle", "mio_throttle", "dispatch_stall", "not_selected"),
    "other": ("drain", "branch_resolving", "no_instruction", "imc_miss", "sleeping", "selected"),
}
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
_USED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"
TIME = "gpu__time_duration.sum"
SINGLE = {
    "device_bytes": ("dram__bytes.sum", 1.0),
    "memory_throughput": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
    "issue_active": ("smsp__issue_active.avg.pct_of_peak_sustained_active", 0.01),
    "uniform_branches": ("smsp__sass_average_branch_targets_threads_uniform.pct", 0.01),
    "active_lanes": ("smsp__thread_inst_executed_per_inst_executed.ratio", 1 / 32),
    "predicated_lanes": ("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio", 1 / 32),
    "shared_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", 1.0),
    "bank_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 1.0),
    "cycles_busiest": ("sm__cycles_active.max", 1.0),
    "cycles_mean": ("sm__cycles_active.avg", 1.0),
    "memory_thread_operations": ("smsp__sass_thread_inst_executed_op_memory_pred_on.sum", 1.0),
    "global_loads_run": ("smsp__inst_executed_op_global_ld.sum", 1.0),
    "global_stores_run": ("smsp__inst_executed_op_global_st.sum", 1.0),
    "shared_loads_run": ("smsp__inst_executed_op_shared_ld.sum", 1.0),
    "shared_stores_run": ("smsp__inst_executed_op_shared_st.sum", 1.0),
}
PIPES = ("fma", "alu", "xu", "fp64", "lsu")
"""Multiply-adds, integers and comparisons, special functions and conversions, float64, loads and stores."""
SINGLE |= {f"pipe_{name}": (f"sm__inst_executed_pipe_{name}.avg.pct_of_peak_sustained_active", 0.01) for name in PIPES}
SINGLE |= {
    "pipe_tensor": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", 0.01),
    "cache_throughput": ("lts__throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
    "cache_port": ("l1tex__m_xbar2l1tex_read_bytes.sum.pct_of_peak_sustained_elapsed", 0.01),
}
_OPERATIONS = ("ld", "st", "atom", "red")
METRICS = (
    TIME,
    *(name for name, _ in SINGLE.values()),
    *(_STALL.format(name) for group in STALLS.values() for name in group),
    *(_SECTORS.format(name) for name in ("ld", "st")),
    *(_REQUESTS.format(name) for name in _OPERATIONS),
    *(_USED.format(name) for name in ("ld", "st")),
)
_RUN = ("global_loads_run", "global_stores_run", "shared_loads_run", "shared_stores_run")
ADDED = {"device_bytes", "shared_wavefronts", "bank_conflicts", "memory_thread_operations", *_RUN}
MOST_LAUNCHES = 24


def tool() -> str | None:
    """Where ncu is, or None."""
    found = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if found is None:
        places = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"))
        found = str(places[-1]) if places else None
    return found


def command(ncu: str, metrics: Sequence[str] = METRICS) -> list[str]:
    """ncu up to the program it starts: it counts what lies between profiler start and stop, clocks left alone."""
    return [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--profile-from-start", "off", "--launch-count", str(MOST_LAUNCHES), "--metrics", ",".join(metrics),
    ]  # fmt: skip


def rows(text: str) -> list[dict[str, str]]:
    """The table in ncu's output: one row for each kernel launch."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    table = [line for line in lines[start:] if line.startswith('"')]
    found = list(csv.DictReader(io.StringIO("\n".join(table))))
    return [row for row in found if row.get("ID")]  # the row of units has no ID


def refusal(text: str) -> str:
    """The line in which ncu says why it measured nothing."""
    said = [line.strip() for line in text.splitlines() if "==ERROR==" in line]
    said = said or [line.strip() for line in text.splitlines() if "==WARNING==" in line and "clocks" not in line]
    return said[0][:200] if said else (text.strip()[-200:] or "no output")


def unknown(text: str, metrics: Sequence[str]) -> set[str]:
    """Those of ``metrics`` that ncu's errors name."""
    errors = " ".join(line for line in text.splitlines() if "==ERROR==" in line or "==WARNING==" in line)
    return {name for name in metrics if name in errors or name.rpartition(".")[0] in errors.split()}


def occupied(text: str) -> bool:
    """Whether the driver refused in the way it does while another profiler is at work on the device."""
    return "An error was reported by the driver" in text


def facts(found: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """Counters of all launches as the rules name them: bytes added up, the rest weighted by time."""
    spent = [_number(row, TIME) or 0.0 for row in found]
    total = sum(spent)
    if not found or total <= 0:
        return {}
    weighted = {name: _mean(found, spent, metric) for name, (metric, _) in SINGLE.items()}
    values = {name: value * SINGLE[name][1] for name, value in weighted.items() if value is not None}
    for name in ADDED & values.keys():
        values[name] = sum(_number(row, SINGLE[name][0]) or 0.0 for row in found)
    values |= _stalls(found, spent) | _access(found)
    if "cache_port" in values:  # the last-level cache can give more than the ways to the multiprocessors carry
        values["cache_throughput"] = max(values.pop("cache_port"), values.get("cache_throughput", 0.0))
    wavefronts = values.pop("shared_wavefronts", 0.0)
    values["bank_conflict_share"] = values.pop("bank_conflicts", 0.0) / wavefronts if wavefronts else 0.0
    mean, busiest = values.pop("cycles_mean", 0.0), values.pop("cycles_busiest", 0.0)
    if mean > 0:
        values["busiest_over_mean"] = busiest / mean
    if "predicated_lanes" in values and values.get("active_lanes", 0.0) > 0:
        useful = values.pop("predicated_lanes") / values["active_lanes"]
        ran = sum(values.pop(name, 0.0) for name in _RUN)
        moving = values.pop("memory_thread_operations", 0.0) / (32 * ran) if ran else 0.0
        # A masked tile computes in all lanes and loads in few, so the lanes that load count too.
        values["useful_lanes"] = min(1.0, useful, moving / values["active_lanes"] if moving else 1.0)
    values["counted_us"] = total / 1e3
    return values


def _stalls(found: Sequence[Mapping[str, str]], spent: Sequence[float]) -> dict[str, float]:
    """Shares of the warps' time, by what they wait for."""
    means = {
        group: sum(_mean(found, spent, _STALL.format(name)) or 0.0 for name in names) for group, names in STALLS.items()
    }
    everything = sum(means.values())
    if everything <= 0:
        return {}
    return {
        f"stall_{group}": means[group] / everything for group in ("memory", "dependency", "shared", "barrier", "issue")
    }


def _access(found: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """Sectors a request and bytes used of a sector, of loads or stores, whichever move more sectors."""
    sums = {
        name: sum(_number(row, pattern.format(kind)) or 0.0 for row in found)
        for kind in _OPERATIONS
        for name, pattern in ((f"sectors_{kind}", _SECTORS), (f"requests_{kind}", _REQUESTS))
    }
    kind = "ld" if sums["sectors_ld"] >= sums["sectors_st"] else "st"
    if not sums[f"requests_{kind}"]:
        return {}
    used = [_number(row, _USED.format(kind)) for row in found]
    known = [value for value in used if value]
    result = {"sectors_per_request": sums[f"sectors_{kind}"] / sums[f"requests_{kind}"]}
    if known:
        result["bytes_used_per_sector"] = sum(known) / len(known)
    result["atomic_requests"] = sums["requests_atom"] + sums["requests_red"]
    result["memory_requests"] = sum(sums[f"requests_{name}"] for name in _OPERATIONS)
    return result


def _mean(found: Sequence[Mapping[str, str]], spent: Sequence[float], metric: str) -> float | None:
    read = [(_number(row, metric), time) for row, time in zip(found, spent, strict=True)]
    pairs = [(value, time) for value, time in read if value is not None]
    weight = sum(time for _, time in pairs)
    return sum(value * time for value, time in pairs) / weight if weight > 0 else None


def _number(row: Mapping[str, str], metric: str) -> float | None:
    text = (row.get(metric) or "").replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None


def names(found: Sequence[Mapping[str, str]]) -> list[str]:
    """Kernels counted, in order."""
    return [plain(row.get("Kernel Name", "")) for row in found]
