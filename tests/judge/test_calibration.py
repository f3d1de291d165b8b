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


class _Stepping:
    """A counter of 700 W that moves every 100 ms of a clock that calls advance."""

    def __init__(self) -> None:
        self.now = 30_000_000
        self.called = 0

    def call(self) -> None:
        """Three milliseconds."""
        self.called += 1
        self.now += 3_000_000

    def joules(self) -> float:
        """As of the last whole step."""
        return 70.0 * (self.now // 100_000_000)


def test_energy_is_read_where_the_counter_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """700 W for half a second, to within one look at the counter; read anywhere else it is off by up to a fifth."""
    counter = _Stepping()
    monkeypatch.setattr(energy.measure, "clock", lambda: counter.now)
    monkeypatch.setattr(energy.torch.cuda, "synchronize", lambda device: None)
    joules, seconds, calls = energy.spend(counter, "cuda:0", counter.call, 0.5)  # type: ignore[arg-type]
    assert (700.0, 0.5) == (pytest.approx(joules / seconds, rel=0.01), pytest.approx(seconds, abs=0.11))
    assert calls * 0.003 == pytest.approx(seconds)


def test_a_counter_that_stands_still_is_read_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """No endless wait for it: after its patience the joules are what the counter says, here none."""
    counter = _Stepping()
    monkeypatch.setattr(energy.measure, "clock", lambda: counter.now)
    monkeypatch.setattr(energy.torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(counter, "joules", lambda: 5.0)
    assert 0.0 == energy.spend(counter, "cuda:0", counter.call, 0.5)[0]  # type: ignore[arg-type]
