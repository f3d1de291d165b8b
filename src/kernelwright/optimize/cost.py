# SPDX-License-Identifier: Apache-2.0
"""What a run and a call cost: device-hours, kWh and kg CO2e, from the device's own energy counter and a stated grid.

Where there is no counter the energy is not measured, and then neither is the carbon: no figure is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelwright.energy import spent
from kernelwright.machine import Machine
from kernelwright.settings import WORLD_GRID

WORLD_SOURCE = "world average of 2023, Ember"
GIVEN = "as given"


def grid(kg_per_kwh: float) -> dict[str, Any]:
    """The factor with where it comes from."""
    return {"kg_CO2e_per_kWh": kg_per_kwh, "source": WORLD_SOURCE if kg_per_kwh == WORLD_GRID else GIVEN}


def job(
    seconds: float, before: Mapping[str, Any], after: Mapping[str, Any], device: str, kg_per_kwh: float
) -> dict[str, Any]:
    """Cost of ``seconds`` on one device between two readings of its counter (see ``kernelwright.energy``).

    The counter is the device's: what else ran on it, and what it draws at rest, is in the figure.
    """
    joules, why = spent(before, after, seconds)
    kwh = None if joules is None else joules / 3.6e6
    note = why if kwh is None else "the whole device's counter, rest included"
    return {
        "seconds": seconds,
        "device": device,
        "device_hours": seconds / 3600.0,
        "kWh": kwh,
        "kg_CO2e": None if kwh is None else kwh * kg_per_kwh,
        "grid": grid(kg_per_kwh),
        "note": note,
    }


def call(energy_mj: float | None, kg_per_kwh: float) -> dict[str, Any]:
    """Cost of one call from its millijoules: per call and for a million calls."""
    kwh = None if energy_mj is None else energy_mj * 1e-3 / 3.6e6
    return {
        "mJ": energy_mj,
        "kWh_per_million": None if kwh is None else kwh * 1e6,
        "kg_CO2e_per_million": None if kwh is None else kwh * 1e6 * kg_per_kwh,
        "grid": grid(kg_per_kwh),
    }


def least(bounds: Mapping[str, Any] | None, machine: Machine, kg_per_kwh: float) -> dict[str, Any]:
    """Least energy of a call above rest, from the task's unavoidable bytes and the device's measured energy of each.

    The reference's operations are left out: a rewrite may do without them, so they are no part of a least.
    """
    per_byte = machine.value("energy.per_byte_pJ")
    if bounds is None or per_byte is None:
        return {**call(None, kg_per_kwh), "note": "energy per byte is not measured on this device"}
    moved = bounds["read_bytes"] + bounds["written_bytes"]
    return {**call(moved * per_byte * 1e-9, kg_per_kwh), "note": "unavoidable bytes alone, no arithmetic"}


def least_words(found: Mapping[str, Any]) -> str:
    """One line for a person about ``least``."""
    if found["mJ"] is None:
        return f"energy       not measured: {found['note']}\n"
    factor = found["grid"]
    return (
        f"energy       {found['mJ']:.4g} mJ a call at least, above rest ({found['note']}); a million calls: "
        f"{found['kg_CO2e_per_million']:.3g} kg CO2e at {factor['kg_CO2e_per_kWh']:.3g} kg/kWh ({factor['source']})\n"
    )


def words(cost: Mapping[str, Any]) -> str:
    """One line for a person about a job."""
    text = f"{cost['device_hours']:.3g} device-hours ({cost['device']})"
    if cost["kWh"] is None:
        return f"{text}; energy not measured: {cost['note']}"
    factor = cost["grid"]
    return (
        f"{text}, {cost['kWh']:.3g} kWh, {cost['kg_CO2e']:.3g} kg CO2e "
        f"at {factor['kg_CO2e_per_kWh']:.3g} kg/kWh ({factor['source']})"
    )


def call_words(facts: Mapping[str, float], kg_per_kwh: float) -> str:
    """One line for a person about one call, from a profile's facts."""
    found = call(facts.get("energy_mJ"), kg_per_kwh)
    if found["mJ"] is None:
        return "Energy: not measured here."
    factor = found["grid"]
    return (
        f"Energy: {found['mJ']:.4g} mJ a call at {facts.get('watts', 0.0):.0f} W; a million calls: "
        f"{found['kWh_per_million']:.3g} kWh, {found['kg_CO2e_per_million']:.3g} kg CO2e "
        f"at {factor['kg_CO2e_per_kWh']:.3g} kg/kWh ({factor['source']})."
    )
