# SPDX-License-Identifier: Apache-2.0
"""Other load is seen: idle shares from tick counts, waiting from the scheduler's own account."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from kernelwright.judge import load
from kernelwright.judge.load import QUIET, idle_share, strain, waited_us, waiting_policy


def test_idle_share_counts_ticks_between_two_readings(tmp_path: Path) -> None:
    """No ticks in between, or no file: nobody is known to be busy."""
    stat = tmp_path / "stat"
    stat.write_text("cpu 10 0 10 80 0 0 0 0 0 0\n")
    assert 1.0 == idle_share(stat, 0.0)
    assert 1.0 == idle_share(tmp_path / "absent", 0.0)


def test_strangers_are_what_neither_was_idle_nor_was_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPUs this process may run on alone; steal counts, waiting for a disk does not."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2})
    second, stat, ours = 10**9 // os.sysconf("SC_CLK_TCK"), tmp_path / "stat", [0]
    stat.write_text("cpu 9 0 9 9 0 0 0 0\ncpu0 0 0 0 100 0 0 0 0\ncpu1 0 0 0 100 0 0 0 0\ncpu2 0 0 0 100 0 0 0 0\n")
    seen = load.Strangers(lambda: ours[0], stat)
    assert seen.share() == 0.0
    ours[0] = 60 * second
    stat.write_text("cpu 9 0 9 9 0 0 0 0\ncpu0 50 0 0 150 0 0 0 0\ncpu1 900 0 0 100 0 0 0 0\ncpu2 8 0 0 180 10 0 0 2\n")
    assert seen.share() == 0.0
    assert not seen.crowd()
    ours[0] = 20 * second
    assert seen.share() == pytest.approx(40 / 200)
    assert seen.crowd()
    stat.unlink()
    assert seen.share() == 0.0


def test_idle_share_of_this_machine_is_a_share() -> None:
    """Between none and all."""
    assert 0.0 <= idle_share(seconds=0.05) <= 1.0


def test_threads_sleep_only_where_somebody_else_works() -> None:
    """Spinning is for a quiet machine."""
    assert "GOMP_SPINCOUNT" in waiting_policy(QUIET)
    assert {"OMP_WAIT_POLICY": "PASSIVE"} == waiting_policy(QUIET - 0.01)


def test_waiting_grows_and_an_absent_process_never_waited() -> None:
    """The account of a live process never shrinks."""
    before = waited_us(os.getpid())
    sum(range(100_000))
    assert before <= waited_us(os.getpid())
    assert 0.0 == waited_us(2**22 + 1)


def test_where_a_device_computes_only_the_first_thread_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others watch: that one of them waited a millisecond made most rounds unclean."""
    waited = {"7": 1000, "8": 3_000_000}
    monkeypatch.setattr(os, "listdir", lambda place: list(waited))
    monkeypatch.setattr(load, "_content", lambda path: b"9 %d 1" % waited[Path(path).parent.name])
    assert (3001.0, 1.0) == (waited_us(7), waited_us(7, first=True))


def test_strain_counts_fresh_pages() -> None:
    """Touching 1000 new pages shows as at least so many faults of this process, and as none of one that is gone."""
    before = strain(os.getpid())
    pages = mmap.mmap(-1, 1000 * mmap.PAGESIZE)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    for start in range(0, len(pages), mmap.PAGESIZE):
        pages[start] = 1
    assert strain(os.getpid()).since(before).faults >= 1000
    assert 0 == strain(2**22 + 1).faults


def test_of_a_window_without_calls_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one file is opened; with a call they are."""
    opened: list[str] = []
    monkeypatch.setattr(load, "_content", lambda path: opened.append(path) or b"1 (a) R 1 2 3 4 5 6 7 8 9")
    assert strain(os.getpid(), 0) == load.Strain(0.0, 0)
    assert not opened
    strain(os.getpid(), 1)
    assert opened
