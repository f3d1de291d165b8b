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


def test_windows_on_a_device_are_no_longer_for_the_sake_of_its_cache() -> None:
    """That is walked before each, so small calls are no colder for being many."""
    common = {"cache_bytes": 50 * MIB, "processes": 2, "device_bytes": 140 << 30}
    small = timing_plan.plan(timing_plan.PRECISE, call_bytes=MIB // 8, call_us=50.0, **common)
    assert small.sets * 50.0 == timing_plan.DEVICE_WINDOW_US and small.flush_bytes == 100 * MIB


def test_windows_of_a_program_faster_than_eager_are_long_enough_too() -> None:
    """Of work, not of launches; as far as the longest window goes."""
    common = {"cache_bytes": 50 * MIB, "processes": 1, "device_bytes": 140 << 30}
    for us in (200.0, 1_600.0):
        found = timing_plan.plan(timing_plan.PRECISE, call_bytes=64 * MIB, call_us=us, **common)
        assert found.sets * us / timing_plan.LEAD >= timing_plan.DEVICE_WINDOW_US
    long = timing_plan.plan(timing_plan.PRECISE, call_bytes=64 * MIB, call_us=25_000.0, **common)
    assert long.sets * 25_000.0 <= timing_plan.PRECISE.window_us


@pytest.mark.parametrize(
    ("call", "result"), [(1 << 30, 1 << 29), (2 << 30, 1 << 30), (1 << 30, 1 << 10), (64 << 20, 1 << 25)]
)
@pytest.mark.parametrize("memory", [140 << 30, 80 << 30, 24 << 30])
def test_the_call_sets_and_results_of_all_programs_fit_the_device(call: int, result: int, memory: int) -> None:
    """With room for what each holds inside: eleven sets of the first filled 140 GiB, five of the second did."""
    common = {"cache_bytes": 50 * MIB, "processes": 2, "device_bytes": memory, "call_bytes": call}
    found = timing_plan.plan(timing_plan.PRECISE, call_us=200.0, result_bytes=result, **common)
    inside = (24 if found.sets > 2 else 8) * call
    assert found.sets == 1 or 6 * found.sets * (call + result) + inside < 0.9 * memory
    assert found.sets >= (2 if memory >= 80 << 30 else 1), "one alone does not show what lies in another's place"
    fewer = timing_plan.plan(timing_plan.PRECISE, call_us=200.0, result_bytes=result, most_sets=2, **common)
    assert fewer.sets == min(found.sets, 2)
    assert (found.sets > 2) == any("for want of memory" in words for words in fewer.words())
    least = (5 << 30) + 24 * call + 6 * found.sets * (call + result)
    assert found.sets <= 2 or least / (0.9 * memory) <= found.share <= 1.0


def test_cache_size_is_that_of_the_last_level(tmp_path: Path) -> None:
    """The highest level wins, suffixes are understood, nonsense is skipped."""
    caches = (("index0", "1", "48K"), ("index1", "3", "32M"), ("index2", "2", "2048K"), ("index3", "x", ""))
    for name, level, size in caches:
        cache(tmp_path, 0, name, level, size, "0-1")
        cache(tmp_path, 1, name, level, size, "0-1")
    assert 32 * MIB == timing_plan.cpu_cache_bytes(tmp_path, {0, 1})


def cache(system: Path, cpu: int, name: str, level: str, size: str, shared: str | None) -> None:
    """What a kernel says of one cache that a CPU has."""
    folder = system / f"cpu{cpu}" / "cache" / name
    folder.mkdir(parents=True)
    (folder / "level").write_text(level)
    (folder / "size").write_text(size)
    if shared is not None:
        (folder / "shared_cpu_list").write_text(f"{shared}\n")


def test_several_last_level_caches_add_up(tmp_path: Path) -> None:
    """Eight of 32 MiB with four CPUs each, and of those only the ones this process may use."""
    for cpu in range(32):
        cache(tmp_path, cpu, "index2", "2", "1024K", str(cpu))
        first = cpu // 4 * 4
        cache(tmp_path, cpu, "index3", "3", "32768K", f"{first}-{first + 3}")
    assert 256 * MIB == timing_plan.cpu_cache_bytes(tmp_path, range(32))
    assert 64 * MIB == timing_plan.cpu_cache_bytes(tmp_path, {3, 4, 5})
    found = timing_plan.last_caches(tmp_path, {3, 4, 5})
    assert [(32 * MIB, {3}), (32 * MIB, {4, 5})] == [(one.size, one.cpus) for one in found]


def test_caches_of_which_no_sharers_are_told_are_one(tmp_path: Path) -> None:
    """A CPU of which nothing is known has no part in it."""
    for cpu in range(2):
        cache(tmp_path, cpu, "index3", "3", "8M", None)
    found = timing_plan.last_caches(tmp_path, {0, 1, 2})
    assert [(8 * MIB, {0, 1})] == [(one.size, one.cpus) for one in found]
    assert 8 * MIB == timing_plan.cpu_cache_bytes(tmp_path, {0, 1, 2})


def test_unknown_cache_size_is_guessed_large(tmp_path: Path) -> None:
    """Where the kernel says nothing, the guess errs on the cold side."""
    assert timing_plan.FALLBACK_CACHE == timing_plan.cpu_cache_bytes(tmp_path, {0})


def test_a_device_gets_more_rounds_and_seconds_but_for_slow_calls() -> None:
    """Whatever the level; and what drawing a round may cost is no more than a round."""
    for spend in (timing_plan.COARSE, timing_plan.PRECISE):
        tiny, short, quick, slow = (
            timing_plan.plan(
                spend, call_bytes=MIB, call_us=us, cache_bytes=50 * MIB, processes=1, device_bytes=140 << 30
            )
            for us in (20.0, 80.0, 150.0, 300_000.0)
        )
        assert [(plan.most, plan.seconds) for plan in (tiny, short)] == [(8, quick.seconds), (8, quick.seconds)]
        assert (quick.most, quick.seconds) == (4 * spend.most, 2 * spend.seconds)
        assert (slow.most, slow.seconds) == (spend.most, spend.seconds)
        assert quick.sets * quick.draw_seconds <= timing_plan.DEVICE_DRAWS


def test_a_window_on_a_device_has_two_calls_where_they_are_short_enough() -> None:
    """A call of 10 ms that no cache holds would be alone; one of 50 ms is."""
    common = {"call_bytes": 1 << 30, "cache_bytes": 50 * MIB, "processes": 1, "device_bytes": 140 << 30}
    plans = [timing_plan.plan(timing_plan.PRECISE, call_us=us, **common) for us in (10_000.0, 50_000.0)]
    assert [plan.sets for plan in plans] == [2, 1]
