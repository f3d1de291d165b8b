# SPDX-License-Identifier: Apache-2.0
"""Builds share the device, timing has it alone, and two judges take turns."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelwright.sandbox import lease as lease_room
from kernelwright.sandbox.lease import Lease, told


def test_shares_overlap(tmp_path: Path) -> None:
    """Two threads hold a share at once."""
    lease, both = Lease("cpu", tmp_path), threading.Barrier(2)

    def holder() -> None:
        with lease.shared():
            both.wait(10)

    other = threading.Thread(target=holder)
    other.start()
    holder()
    other.join(10)
    assert not both.broken


def test_a_thread_with_a_share_asks_again_while_somebody_waits_to_be_alone(tmp_path: Path) -> None:
    """It has what it asks for; were it to wait, both would, for each other."""
    lease, done = Lease("cpu", tmp_path), threading.Event()

    def timer() -> None:
        with lease.alone():
            done.set()

    def holder() -> None:
        with lease.shared():
            threading.Thread(target=timer, daemon=True).start()
            while not lease._alone:  # the timer is waiting
                pass
            with lease.shared():
                assert not done.is_set()

    thread = threading.Thread(target=holder, daemon=True)
    thread.start()
    thread.join(10)
    assert done.wait(10)


def test_alone_waits_for_shares_and_keeps_new_ones_out(tmp_path: Path) -> None:
    """The order of events is: share ends, alone runs, and only then does the next share begin."""
    lease = Lease("cpu", tmp_path)
    order: list[str] = []
    inside, release = threading.Event(), threading.Event()

    def holder() -> None:
        with lease.shared():
            inside.set()
            release.wait(10)
            order.append("share ends")

    def timer() -> None:
        with lease.alone():
            order.append("alone")

    threads = [threading.Thread(target=holder)]
    threads[0].start()
    inside.wait(10)
    threads.append(threading.Thread(target=timer))
    threads[1].start()
    while not lease._alone:  # the timer is waiting
        pass

    def late() -> None:
        with lease.shared():
            order.append("late share")

    threads.append(threading.Thread(target=late))
    threads[2].start()
    release.set()
    for thread in threads:
        thread.join(10)
    assert ["share ends", "alone", "late share"] == order


@pytest.mark.parametrize("held", ["alone", "shared"])
def test_nobody_times_while_another_judge_times_or_checks(tmp_path: Path, held: str) -> None:
    """A second lease on the same device cannot be alone while the first is, or has a share."""
    first, second = Lease("cuda:0", tmp_path), Lease("cuda:0", tmp_path)
    order: list[str] = []
    with first.alone() if held == "alone" else first.shared():
        other = threading.Thread(target=lambda: _note(second, order))
        other.start()
        other.join(0.05)
        order.append("first")
    other.join(10)
    assert ["first", "second"] == order


def _note(lease: Lease, order: list[str]) -> None:
    with lease.alone():
        order.append("second")


def test_judges_check_at_once(tmp_path: Path) -> None:
    """Shares of two judges overlap."""
    with Lease("cuda:0", tmp_path).shared(), Lease("cuda:0", tmp_path).shared():
        pass


def test_no_check_overtakes_a_judge_that_waits_to_time(tmp_path: Path) -> None:
    """Were shares given while somebody waits for the last one to end, a judge among busy ones would never time."""
    checks, times, late = (Lease("cuda:0", tmp_path) for _ in range(3))
    order: list[str] = []

    def check() -> None:
        with late.shared():
            order.append("late")

    with checks.shared():
        timer = threading.Thread(target=lambda: _note(times, order))
        timer.start()
        while _free(times.gate):  # the timer is waiting
            pass
        follower = threading.Thread(target=check)
        follower.start()
        follower.join(0.05)
        order.append("first")
    timer.join(10)
    follower.join(10)
    assert ["first", "second", "late"] == order


def _free(path: Path) -> bool:
    with path.open() as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_devices_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """cpu and cuda:0 are leased apart."""
    with Lease("cpu", tmp_path).alone(), Lease("cuda:0", tmp_path).alone():
        pass


def test_background_work_is_hushed_while_alone(tmp_path: Path) -> None:
    """The hush is entered before and left after."""
    order: list[str] = []

    @contextlib.contextmanager
    def hush() -> Iterator[None]:
        order.append("hush")
        yield
        order.append("resume")

    lease = Lease("cpu", tmp_path)
    lease.while_alone(hush)
    with lease.alone():
        order.append("time")
    assert ["hush", "time", "resume"] == order


def test_background_work_goes_on_while_another_judge_s_checks_are_waited_for(tmp_path: Path) -> None:
    """That may take minutes, in which a frozen baseline would have compiled."""
    first, second = Lease("cpu", tmp_path), Lease("cpu", tmp_path)
    order: list[str] = []

    @contextlib.contextmanager
    def hush() -> Iterator[None]:
        order.append("hush")
        yield

    second.while_alone(hush)
    with first.shared():
        waiting = threading.Thread(target=lambda: _note(second, order))
        waiting.start()
        while _free(second.gate):  # it is waiting
            pass
        waiting.join(0.05)
        order.append("first ends")
    waiting.join(10)
    second.close()
    assert ["first ends", "hush", "second"] == order


def test_a_lock_that_only_another_user_may_write_still_makes_judges_take_turns(tmp_path: Path) -> None:
    """Reading is enough to lock; where not even that is possible, the lease says that it holds in this judge only."""
    first, second = Lease("cpu", tmp_path), Lease("cpu", tmp_path)
    first.path.touch(mode=0o444)
    first.gate.touch(mode=0o444)
    order: list[str] = []
    with first.alone():
        other = threading.Thread(target=lambda: _note(second, order))
        other.start()
        other.join(0.05)
        order.append("first")
    other.join(10)
    assert ["first", "second"] == order and "" == first.apart
    nowhere = Lease("cpu", tmp_path / "none")
    with nowhere.alone():
        assert "not kept out" in nowhere.apart


def test_who_waits_long_says_so_once_and_for_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words that name the device's lock and the process that has it; another thread's waits are its own."""
    monkeypatch.setattr(lease_room, "SAID_AFTER_S", 0.0)
    first, second = Lease("cuda:0", tmp_path), Lease("cuda:0", tmp_path)
    heard: list[str] = []
    waits = threading.Event()

    def tell(text: str) -> None:
        heard.append(text)
        waits.set()

    def timer() -> None:
        with told(tell):
            for _ in range(2):
                with second.alone():
                    waits.set()

    with first.shared():
        other = threading.Thread(target=timer)
        other.start()
        assert waits.wait(10)
    other.join(10)
    (text,) = heard
    lock = tmp_path / "kernelwright-cuda0.lock"
    names = (f" (process {os.getpid()})", "")  # not every kernel says whose a lock is
    assert text in [f"waiting for the device: another judge{name} has {lock}" for name in names]


def test_nobody_hears_of_a_device_that_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However soon it would be said."""
    monkeypatch.setattr(lease_room, "SAID_AFTER_S", 0.0)
    heard: list[str] = []
    with told(heard.append), Lease("cpu", tmp_path).alone():
        pass
    assert [] == heard


def test_what_is_in_the_background_stands_still_while_another_judge_is_alone(tmp_path: Path) -> None:
    """Frozen once the other has the device, let go after it, and never let go while this one is alone itself."""
    mine, other = Lease("cpu", tmp_path), Lease("cpu", tmp_path)
    frozen, free = threading.Event(), threading.Event()
    inside = 0

    @contextlib.contextmanager
    def hush() -> Iterator[None]:
        nonlocal inside
        inside += 1
        assert 1 == inside  # leaving one of two would let go on what the other holds
        frozen.set()
        yield
        inside -= 1
        free.set()

    mine.while_alone(hush)
    try:
        with other.alone():
            assert frozen.wait(10)
            assert not free.is_set()
        assert free.wait(10)
        for begin in (mine.alone, mine.shared):  # waiting for its turn is no reason to go on
            frozen.clear()
            with other.alone():
                waiting = threading.Thread(target=_hold, args=[begin])
                waiting.start()
                assert frozen.wait(10)
            waiting.join(10)
            with mine.alone():
                assert 1 == inside
    finally:
        mine.close()


def test_nobody_is_waited_for_where_no_other_judge_has_anything_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what others may have has to stand still first, and only for as long as they are there."""
    waits: list[float] = []
    monkeypatch.setattr(lease_room, "STILL_SECONDS", -1.0)
    sleep = time.sleep
    monkeypatch.setattr(lease_room.time, "sleep", lambda s: waits.append(s) if s == -1.0 else sleep(s))
    mine, other = Lease("cpu", tmp_path), Lease("cpu", tmp_path)

    def waited() -> int:
        waits.clear()
        with mine.alone():
            pass
        return len(waits)

    try:
        assert 1 == waited()  # nobody knows yet
        mine.while_alone(contextlib.nullcontext)
        assert 0 == waited()
        other.while_alone(contextlib.nullcontext)
        assert [1, 1] == [waited(), waited()]
        other.close()
        assert 0 == waited()
    finally:
        mine.close()
        other.close()


def test_nothing_is_looked_after_once_closed(tmp_path: Path) -> None:
    """The thread that watches ends."""
    lease = Lease("cpu", tmp_path)
    lease.while_alone(contextlib.nullcontext)
    assert lease._watcher is not None
    lease.close()
    lease._watcher.join(10)
    assert not lease._watcher.is_alive()


def _hold(begin: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
    with begin():
        pass


def test_a_share_is_lent_while_what_is_waited_for_stands_still(tmp_path: Path) -> None:
    """Inside another thread, and another judge, can be alone; afterwards the share is there again, and with none
    nothing is lent."""
    lease, other = Lease("cpu", tmp_path), Lease("cpu", tmp_path)
    with lease.lent():
        assert not lease.path.exists()
    with lease.shared(), lease.shared():
        assert not _free(lease.path)
        with lease.lent():
            for each in (lease, other):
                alone = threading.Thread(target=lambda each=each: _note(each, []))
                alone.start()
                alone.join(20.0)
                assert not alone.is_alive()
        assert not _free(lease.path)
    assert _free(lease.path)


def test_who_lent_a_share_waits_for_who_is_alone_meanwhile(tmp_path: Path) -> None:
    """And is counted no more where it cannot have one again."""
    lease, order = Lease("cpu", tmp_path), list[str]()
    entered, done = threading.Event(), threading.Event()

    def loads() -> None:
        with lease.shared():
            with lease.lent():
                entered.set()
                done.wait(20.0)
                order.append("loaded")
            order.append("has a share")

    thread = threading.Thread(target=loads)
    thread.start()
    entered.wait(20.0)
    with lease.alone():
        done.set()
        while not order:
            pass
        thread.join(0.05)
        order.append("timed")
    thread.join(20.0)
    assert ["loaded", "timed", "has a share"] == order
