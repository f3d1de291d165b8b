# SPDX-License-Identifier: Apache-2.0
"""Threads of a program stand on different CPUs when it wakes, and are free again afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kernelwright.judge import placing
from kernelwright.judge.placing import ALONE_MS, MOST_THREADS, SETTLED_MS, Places

EVERYWHERE = os.sched_getaffinity(0)
THREADED = """
import os, sys, threading, time
stay = threading.Event()
for _ in range(int(sys.argv[1])):
    threading.Thread(target=stay.wait, daemon=True).start()
busy = [threading.Thread(target=lambda: [os.urandom(1 << 20) for _ in range(400)]) for _ in range(int(sys.argv[2]))]
print("ready", flush=True)
sys.stdin.readline()
for thread in busy:
    thread.start()
print("begun", flush=True)
time.sleep(600)
"""
needs_two = pytest.mark.skipif(len(EVERYWHERE) < 2, reason="one CPU: there is nothing to place")


def threads(pid: int) -> list[int]:
    """Thread ids, the first thread's first."""
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the asked numbers of further threads: of those that wait, and of those that will work."""
    counts = [str(count) for count in request.param]
    process = subprocess.Popen([sys.executable, "-c", THREADED, *counts], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


@pytest.fixture
def program(child: subprocess.Popen[bytes]) -> int:
    """Its id."""
    return child.pid


def worked(child: subprocess.Popen[bytes]) -> Places:
    """The places of a process after a stretch in which its working threads worked, and no other did."""
    places = Places(child.pid, learns=True)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"\n")
    child.stdin.flush()
    child.stdout.readline()
    places.put()
    places.free_first()
    places.free_others()
    time.sleep(0.5)
    os.kill(child.pid, signal.SIGSTOP)
    places.look(1)
    return places


@needs_two
@pytest.mark.parametrize("child", [(len(EVERYWHERE) - 1, 0)], indirect=True)
def test_threads_get_a_cpu_each_and_are_freed_in_two_steps(program: int) -> None:
    """As many threads as CPUs share none; the first is freed before the others."""
    first, *others = threads(program)
    places = Places(program, learns=True)
    places.put()
    homes = [os.sched_getaffinity(thread) for thread in (first, *others)]
    assert [1] * len(homes) == [len(home) for home in homes]
    assert len(homes) == len(set().union(*homes))
    places.free_first()
    assert EVERYWHERE == os.sched_getaffinity(first)
    assert homes[1:] == [os.sched_getaffinity(thread) for thread in others]
    places.free_others()
    assert [EVERYWHERE] * len(others) == [os.sched_getaffinity(thread) for thread in others]


@needs_two
@pytest.mark.parametrize("child", [(1, 0)], indirect=True)
def test_a_thread_that_was_left_on_one_cpu_is_placed_and_freed(program: int) -> None:
    """It may have been started by one that was not free yet."""
    first, other = threads(program)
    os.sched_setaffinity(other, {min(EVERYWHERE)})
    places = Places(program, learns=True)
    places.put()
    assert set() == os.sched_getaffinity(first) & os.sched_getaffinity(other)
    places.free_first()
    places.look(1)
    assert EVERYWHERE == os.sched_getaffinity(other)


@needs_two
@pytest.mark.parametrize("child", [(MOST_THREADS, 0)], indirect=True)
def test_a_crowd_is_left_where_it_stands(program: int) -> None:
    """One thread over the limit, and none is moved."""
    Places(program, learns=True).put()
    assert {frozenset(EVERYWHERE)} == {frozenset(os.sched_getaffinity(thread)) for thread in threads(program)}


def test_a_process_that_is_gone_has_nothing_to_place() -> None:
    """No error, and freeing does nothing."""
    places = Places(2**22 + 1, learns=True)
    places.put()
    places.free_first()
    places.free_others()


@needs_two
@pytest.mark.parametrize("child", [(1, len(EVERYWHERE))], indirect=True)
def test_workers_of_an_idle_first_thread_take_its_cpu(child: subprocess.Popen[bytes]) -> None:
    """As many of them as CPUs share none and stay for long; one that never ran is left alone."""
    places = worked(child)
    places.put()
    _, idle, *busy = threads(child.pid)
    assert EVERYWHERE == set().union(*(os.sched_getaffinity(thread) for thread in busy))
    assert [1] * len(busy) == [len(os.sched_getaffinity(thread)) for thread in busy]
    assert EVERYWHERE == os.sched_getaffinity(idle)
    assert places.settled_ms == ALONE_MS


@needs_two
@pytest.mark.parametrize("child", [(0, len(EVERYWHERE) + 1)], indirect=True)
def test_threads_that_share_a_cpu_are_freed_soon(child: subprocess.Popen[bytes]) -> None:
    """One worker more than CPUs."""
    places = worked(child)
    places.put()
    assert places.settled_ms == SETTLED_MS


@needs_two
@pytest.mark.parametrize("child", [(len(EVERYWHERE) - 1, 0)], indirect=True)
def test_where_nobody_asks_which_threads_ran_they_are_freed_soon(program: int) -> None:
    """A program of a device has twenty threads, of which hardly any ever runs."""
    places = Places(program, learns=False)
    places.put()
    places.look(1)
    places.put()
    assert places.settled_ms == SETTLED_MS


def test_a_core_gets_its_second_thread_when_every_core_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours share a core here; where the system does not say, every CPU counts as a core."""
    monkeypatch.setattr(placing, "_core", lambda cpu: f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}")
    assert (10, 12, 14, 11, 13) == placing._apart(frozenset({10, 11, 12, 13, 14}))
    monkeypatch.undo()
    assert "100000" == placing._core(100_000)


def test_two_programs_stand_on_one_cpu_apart_from_ours_and_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """By lot; where all cores are ours they stay where they are, and one that is gone is no fault."""
    own = os.sched_getaffinity(0)
    with subprocess.Popen(["sleep", "30"]) as one, subprocess.Popen(["sleep", "30"]) as other:
        monkeypatch.setattr(placing, "_current_cpu", lambda: min(own))
        monkeypatch.setattr(placing, "_core", lambda cpu: str(cpu))
        with placing.on_one_cpu([one.pid, other.pid]):
            stand = [os.sched_getaffinity(child.pid) for child in (one, other)]
            assert stand[0] == stand[1] and (len(own) == 1 or (len(stand[0]) == 1 and min(own) not in stand[0]))
        assert [own, own] == [os.sched_getaffinity(child.pid) for child in (one, other)]
        monkeypatch.setattr(placing, "_core", lambda cpu: "one for all")
        with placing.on_one_cpu([one.pid, other.pid]):
            assert own == os.sched_getaffinity(one.pid)
        one.kill()
        other.kill()
    with placing.on_one_cpu([one.pid, other.pid]):
        pass
    assert own == os.sched_getaffinity(0)
