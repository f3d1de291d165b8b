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


def test_energy_counts_between_moves_of_the_counter() -> None:
    """700 W by a counter that moves every 100 ms: what it held before, and moves of the first 250 ms, do not count."""
    moves = [(0, 5.0), *((100_000_000 * step, 5.0 + 70.0 * step) for step in range(1, 9))]
    assert (350.0, 0.5) == energy.between(moves, 250_000_000)


def test_a_counter_that_stands_still_is_no_zero() -> None:
    """One move under load, or none: not measured."""
    for moves in ([(0, 5.0)], [(0, 5.0), (300_000_000, 7.0)]):
        with pytest.raises(OSError, match="did not move"):
            energy.between(moves, 0)


def test_a_counter_is_watched_beside_the_work_and_may_fail() -> None:
    """Each new value once; one that cannot be read any more ends the watch without an error."""
    values = iter([5.0, 5.0, 6.0, 6.0, 8.0])

    class Failing:
        def joules(self) -> float:
            try:
                return next(values)
            except StopIteration as error:
                raise OSError("gone") from error

    watch = energy.Watch(Failing())  # type: ignore[arg-type]
    watch.start()
    watch.join()
    watch.stop()
    assert [5.0, 6.0, 8.0] == [joules for _, joules in watch.moves]
