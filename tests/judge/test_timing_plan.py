# SPDX-License-Identifier: Apache-2.0
"""Call sets outgrow the cache, long calls need few, and nothing exceeds its cap."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.judge import timing_plan

MIB = 1 << 20


def planned(call_bytes: int, call_us: float, processes: int = 1) -> timing_plan.TimingPlan:
    """A precise plan on a 32 MiB cache."""
    return timing_plan.plan(
        timing_plan.PRECISE, call_bytes=call_bytes, call_us=call_us, cache_bytes=32 * MIB, processes=processes
    )


@pytest.mark.parametrize("call_bytes", [MIB, 3 * MIB, 20 * MIB])
def test_sets_rotate_through_twice_the_cache(call_bytes: int) -> None:
    """Short calls rotate until their bytes exceed 64 MiB."""
    assert planned(call_bytes, 100.0).sets * call_bytes >= 64 * MIB


def test_tiny_calls_are_capped() -> None:
    """Sixty-four sets are enough; the flush does the rest."""
    assert 64 == planned(1000, 5.0).sets


def test_long_calls_use_one_set() -> None:
    """A call longer than the window is measured alone."""
    assert 1 == planned(MIB, 700_000.0).sets


def test_memory_is_capped() -> None:
    """Sets never take more than a gibibyte."""
    assert planned(600 * MIB, 100.0).sets == 1


def test_two_processes_share_one_budget() -> None:
    """Rounds and seconds are split between fresh processes."""
    one, two = planned(MIB, 100.0), planned(MIB, 100.0, processes=2)
    assert (one.least, one.most, one.seconds) == (2 * two.least, 2 * two.most, 2 * two.seconds)


def test_windows_on_a_device_are_long_enough_for_its_context_switch() -> None:
    """A 25 us kernel is called often enough that 100 us of switching is a few percent."""
    found = timing_plan.plan(
        timing_plan.COARSE, call_bytes=32 * MIB, call_us=25.0, cache_bytes=50 * MIB, processes=1, device_bytes=140 << 30
    )
    assert found.sets * 25.0 >= timing_plan.DEVICE_WINDOW_US


def test_cache_size_is_that_of_the_last_level(tmp_path: Path) -> None:
    """The highest level wins, suffixes are understood, nonsense is skipped."""
    caches = (("index0", "1", "48K"), ("index1", "3", "32M"), ("index2", "2", "2048K"), ("index3", "x", ""))
    for name, level, size in caches:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "level").write_text(level)
        (folder / "size").write_text(size)
    assert 32 * MIB == timing_plan.cpu_cache_bytes(tmp_path)


def test_unknown_cache_size_is_guessed_large(tmp_path: Path) -> None:
    """Where the kernel says nothing, the guess errs on the cold side."""
    assert timing_plan.FALLBACK_CACHE == timing_plan.cpu_cache_bytes(tmp_path)
