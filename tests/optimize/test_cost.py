# SPDX-License-Identifier: Apache-2.0
"""Cost from two readings of a counter and a stated grid; without a counter nothing is guessed."""

from __future__ import annotations

import pytest

from kernelwright.machine import Fact, Machine
from kernelwright.optimize import cost


def test_a_job_costs_the_difference_of_the_counter_at_the_grid_named() -> None:
    """Half an hour and 3.6 MJ are half a device-hour, one kWh and the factor in kg."""
    found = cost.job(1800.0, {"joules": 1e6}, {"joules": 4.6e6}, "cuda:0", 0.05)
    assert (0.5, 1.0, 0.05) == (found["device_hours"], found["kWh"], found["kg_CO2e"])
    assert "0.5 device-hours (cuda:0), 1 kWh, 0.05 kg CO2e at 0.05 kg/kWh (as given)" == cost.words(found)


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        ({}, {"joules": None, "note": "there is no RAPL energy counter"}, "there is no RAPL energy counter"),
        ({"joules": 5.0}, {"joules": 4.0, "note": ""}, "the counter began anew"),
    ],
)
def test_without_two_readings_energy_and_carbon_are_not_measured(before: dict, after: dict, note: str) -> None:
    """The hours remain; no figure takes the place of the rest."""
    found = cost.job(360.0, before, after, "cpu", 0.481)
    assert (0.1, None, None, note) == (found["device_hours"], found["kWh"], found["kg_CO2e"], found["note"])
    assert f"0.1 device-hours (cpu); energy not measured: {note}" == cost.words(found)


def test_a_counter_that_may_have_begun_anew_more_than_once_gives_no_energy() -> None:
    """An hour at up to 200 W on a counter of 262 kJ: the second number is the larger one, and says nothing."""
    zone = {"zone": "intel-rapl:0", "joules": 1000.0, "range_J": 262_143.0, "limit_W": 200.0}
    before = {"joules": 1000.0, "note": "", "zones": [zone]}
    after = {"joules": 196_714.0, "note": "", "zones": [{**zone, "joules": 196_714.0}]}
    found = cost.job(3600.0, before, after, "cpu", 0.481)
    assert (None, None) == (found["kWh"], found["kg_CO2e"])
    assert "can begin anew every 1311 s, and this took 3600 s" in found["note"]


def test_a_call_is_counted_by_the_million_and_names_its_grid() -> None:
    """3.6 mJ a call are a Wh for a million of them; the default factor says where it is from."""
    found = cost.call(3.6, 0.481)
    assert (0.001, 0.000481, "world average of 2023, Ember") == (
        round(found["kWh_per_million"], 9),
        round(found["kg_CO2e_per_million"], 9),
        found["grid"]["source"],
    )
    assert "Energy: not measured here." == cost.call_words({}, 0.481)


def test_least_energy_counts_unavoidable_bytes_alone() -> None:
    """100 pJ for each of 1e9 bytes: 100 mJ. The reference's product is no part of it: diag(v) @ x needs none."""
    facts = (("energy.per_byte_pJ", 100.0), ("energy.per_flop_pJ", 1.0))
    machine = Machine(
        device="cuda:0", name="x", fingerprint="0", versions=(), measured_at=0.0,
        facts=tuple(Fact(name=name, value=value, unit="", spread=0.0, note="") for name, value in facts),
    )  # fmt: skip
    rows = [{"operator": {"operations": int(1e9), "unit": unit}} for unit in ("matmul", "vector")]
    bounds = {"rows": rows, "read_bytes": 6 * 10**8, "written_bytes": 4 * 10**8}
    found = cost.least(bounds, machine, 0.481)
    assert 100.0 == pytest.approx(found["mJ"])
    assert "100 mJ a call at least, above rest (unavoidable bytes alone, no arithmetic)" in cost.least_words(found)
    assert cost.least(None, machine, 0.481)["mJ"] is None
