# SPDX-License-Identifier: Apache-2.0
"""Facts of a device: what a fact takes from its samples, what it says of unsteady ones, energy or the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.judge.calibration import energy
from kernelwright.judge.calibration.facts import fact, label, staircase


def test_a_rate_is_the_best_sample_and_a_time_the_least() -> None:
    """A limit is what the device can do undisturbed."""
    assert (12.0, 10.0) == (fact("r", "GB/s", [10.0, 12.0, 11.0]).value, fact("t", "us", [10.0, 12.0, 11.0]).value)


def test_samples_far_apart_are_said_to_be_so() -> None:
    """A shared device, or one whose clocks change, shows in the spread; a steady one is left alone."""
    unsteady = fact("r", "GB/s", [10.0, 20.0, 15.0], "read")
    assert "read; samples spread by 67%: shared, or its clocks change" == unsteady.note
    assert "read" == fact("r", "GB/s", [10.0, 10.5, 10.2], "read").note


def test_a_processor_s_energy_is_the_sum_of_its_packages(tmp_path: Path) -> None:
    """Two packages in microjoules; parts of a package are in it already."""
    for name, value in (("intel-rapl:0", 3_000_000), ("intel-rapl:1", 500_000), ("intel-rapl:0:0", 9_000_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{value}\n")
    assert 3.5 == energy.processor_joules(tmp_path)


def test_without_a_counter_the_reason_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a guess nor an error."""
    monkeypatch.setattr(energy, "RAPL", tmp_path)
    with pytest.raises(OSError, match="no RAPL"):
        energy.processor_joules(tmp_path)


def test_a_staircase_has_two_steps_an_octave() -> None:
    """Named by their sizes."""
    assert ["1MiB", "1.5MiB", "2MiB", "3MiB", "4MiB"] == [label(size) for size in staircase(1 << 20, 4 << 20)]
