# SPDX-License-Identifier: Apache-2.0
"""Threads of a program stand on different CPUs when it wakes, and are free again afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kernelwright.judge.placing import MOST_THREADS, Places

EVERYWHERE = os.sched_getaffinity(0)
THREADED = """
import sys, threading, time
stay = threading.Event()
for _ in range(int(sys.argv[1])):
    threading.Thread(target=stay.wait, daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""
needs_two = pytest.mark.skipif(len(EVERYWHERE) < 2, reason="one CPU: there is nothing to place")


def threads(pid: int) -> list[int]:
    """Thread ids, the first thread's first."""
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Iterator[int]:
    """A process with the asked number of further threads."""
    child = subprocess.Popen([sys.executable, "-c", THREADED, str(request.param)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child.pid
    child.kill()
    child.wait()
    child.stdout.close()


@needs_two
@pytest.mark.parametrize("program", [len(EVERYWHERE) - 1], indirect=True)
def test_threads_get_a_cpu_each_and_are_freed_in_two_steps(program: int) -> None:
    """As many threads as CPUs share none; the first is freed before the others."""
    first, *others = threads(program)
    places = Places(program)
    homes = [os.sched_getaffinity(thread) for thread in (first, *others)]
    assert [1] * len(homes) == [len(home) for home in homes]
    assert len(homes) == len(set().union(*homes))
    places.free_first()
    assert EVERYWHERE == os.sched_getaffinity(first)
    assert homes[1:] == [os.sched_getaffinity(thread) for thread in others]
    places.free_others()
    assert [EVERYWHERE] * len(others) == [os.sched_getaffinity(thread) for thread in others]


@needs_two
@pytest.mark.parametrize("program", [1], indirect=True)
def test_a_thread_that_was_left_on_one_cpu_is_placed_and_freed(program: int) -> None:
    """It may have been started by one that was not free yet."""
    first, other = threads(program)
    os.sched_setaffinity(other, {min(EVERYWHERE)})
    places = Places(program)
    assert set() == os.sched_getaffinity(first) & os.sched_getaffinity(other)
    places.free_first()
    places.free_others()
    assert EVERYWHERE == os.sched_getaffinity(other)


@needs_two
@pytest.mark.parametrize("program", [MOST_THREADS], indirect=True)
def test_a_crowd_is_left_where_it_stands(program: int) -> None:
    """One thread over the limit, and none is moved."""
    Places(program)
    assert {frozenset(EVERYWHERE)} == {frozenset(os.sched_getaffinity(thread)) for thread in threads(program)}


def test_a_process_that_is_gone_has_nothing_to_place() -> None:
    """No error, and freeing does nothing."""
    places = Places(2**22 + 1)
    places.free_first()
    places.free_others()
