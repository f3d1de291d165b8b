# SPDX-License-Identifier: Apache-2.0
"""Joules between two readings of energy counters, some of which begin anew within minutes.

A reading is {"joules": the sum, "note", "zones": [{"zone", "joules", "range_J", "limit_W"}]}; only a processor's has
zones. A zone counts up to its range and begins again at nought. One such wrap is added back where two cannot have
happened: where the time is shorter than the range lasts at the power limit. Beyond that nothing is told from the two
numbers, even where the second is the larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

RAPL = Path("/sys/class/powercap")
SOCKET_WATTS = 1000.0
"""Power that one processor package is not taken to exceed where its driver states no limit, as AMD's does not: twice
the 500 W at which the largest packages of servers are rated (AMD EPYC 9965, Intel Xeon 6980P)."""


def packages(folder: Path = RAPL) -> list[dict[str, Any]]:
    """Every processor package's counter now. Raises OSError where there is none that may be read.

    A zone of another name is left out: ``psys`` counts the whole machine, the packages included.
    """
    zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if _text(zone / "name").startswith("package")]
    if not zones:
        raise OSError("there is no RAPL energy counter")
    try:
        return [_zone(zone) for zone in zones]
    except PermissionError as error:
        raise OSError("the RAPL energy counter is readable by root alone") from error


def _zone(zone: Path) -> dict[str, Any]:
    limit = _text(zone / "constraint_0_power_limit_uw")
    return {
        "zone": zone.name,
        "joules": int((zone / "energy_uj").read_text()) / 1e6,
        "range_J": int((zone / "max_energy_range_uj").read_text()) / 1e6,
        "limit_W": int(limit) / 1e6 if limit.isdigit() and int(limit) > 0 else SOCKET_WATTS,
    }


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def spent(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> tuple[float | None, str]:
    """(joules between two readings ``seconds`` apart, why not): None where the counters cannot tell."""
    first, last = before.get("joules"), after.get("joules")
    if first is None or last is None:
        return None, str(after.get("note") or before.get("note") or "the counter was not read")
    if "zones" not in before or "zones" not in after:
        return (last - first, "") if last >= first else (None, "the counter began anew")
    olds = {zone["zone"]: zone for zone in before["zones"]}
    if olds.keys() != {zone["zone"] for zone in after["zones"]}:
        return None, "the counters are not the same ones"
    total = 0.0
    for zone in after["zones"]:
        lasts = zone["range_J"] / zone["limit_W"]
        if seconds >= lasts:
            return None, f"the processor's counter can begin anew every {lasts:.0f} s, and this took {seconds:.0f} s"
        moved = zone["joules"] - olds[zone["zone"]]["joules"]
        total += moved if moved >= 0 else moved + zone["range_J"]
    return total, ""
