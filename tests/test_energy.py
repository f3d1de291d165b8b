# SPDX-License-Identifier: Apache-2.0
"""Counters of a processor that begin anew: joules only where two readings can tell them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelwright import energy
from kernelwright.judge.calibration import cpu
from kernelwright.judge.calibration import energy as calibration


def zone(folder: Path, number: str, name: str, joules: float, watts: float | None = 200.0) -> None:
    """One zone as Linux shows it, with the range of many Intel processors."""
    path = folder / f"intel-rapl:{number}"
    path.mkdir(exist_ok=True)
    texts = {"name": name, "energy_uj": f"{joules * 1e6:.0f}", "max_energy_range_uj": "262143000000"}
    if watts is not None:
        texts["constraint_0_power_limit_uw"] = f"{watts * 1e6:.0f}"
    for file, text in texts.items():
        (path / file).write_text(text + "\n")


def read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the judge answers about a processor's counters that lie here."""
    zones = energy.packages(folder)
    monkeypatch.setattr(energy, "packages", lambda: zones)
    return calibration.reading("cpu")


def test_a_processor_s_energy_is_that_of_its_packages_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole machine's zone holds the packages, and a part of a package is in it already."""
    for number, name, joules in (("0", "package-0", 3.0), ("1", "psys", 9.0), ("2", "package-1", 0.5)):
        zone(tmp_path, number, name, joules)
    zone(tmp_path, "0:0", "core", 2.0)
    assert 3.5 == read(tmp_path, monkeypatch)["joules"]


@pytest.mark.parametrize(
    ("last", "seconds", "joules"),
    [
        (262_000.0, 60.0, 1000.0),  # no wrap
        (857.0, 60.0, 2000.0),  # one, added back
        (857.0, 1400.0, None),  # 262 kJ last 1311 s at 200 W: one wrap or two
        (262_000.0, 1400.0, None),  # and a larger number tells no more
    ],
)
def test_a_wrap_is_added_back_where_two_cannot_have_been(
    last: float, seconds: float, joules: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 200 W the counter begins anew after 22 minutes; a second package has its own range."""
    zone(tmp_path, "0", "package-0", 261_000.0)
    zone(tmp_path, "1", "package-1", 10.0)
    before = read(tmp_path, monkeypatch)
    monkeypatch.undo()
    zone(tmp_path, "0", "package-0", last)
    after = read(tmp_path, monkeypatch)
    found, why = energy.spent(before, after, seconds)
    assert found == (None if joules is None else pytest.approx(joules))
    assert (joules is None) == ("can begin anew every 1311 s" in why)


def test_a_driver_that_states_no_limit_gets_a_socket_s(tmp_path: Path) -> None:
    """262 kJ are not taken to last longer than 262 s."""
    zone(tmp_path, "0", "package-0", 5.0, watts=None)
    (found,) = energy.packages(tmp_path)
    assert energy.SOCKET_WATTS == found["limit_W"]
    reading = {"joules": 5.0, "note": "", "zones": [found]}
    assert (0.0, "") == energy.spent(reading, reading, 262.0)
    assert energy.spent(reading, reading, 263.0)[0] is None


def test_without_a_package_the_reason_is_given(tmp_path: Path) -> None:
    """Neither a guess nor the whole machine's counter."""
    zone(tmp_path, "1", "psys", 9.0)
    with pytest.raises(OSError, match="no RAPL"):
        energy.packages(tmp_path)


def test_calibration_adds_a_wrap_back_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One second over which the counter begins anew: 143 J to the end of its range, 57 J after it."""
    zone(tmp_path, "0", "package-0", 262_000.0)
    readings = energy.packages

    def wrap() -> None:
        zone(tmp_path, "0", "package-0", 57.0)

    def stopwatch(run: Any) -> float:
        run()
        return 1.0

    monkeypatch.setattr(energy, "packages", lambda: readings(tmp_path))
    monkeypatch.setattr(cpu.measure, "stopwatch", stopwatch)
    assert 200.0 == pytest.approx(cpu._watts(wrap, 1)[0])
