# SPDX-License-Identifier: Apache-2.0
"""optimize/services.py: work of a run beside judges takes turns with what they time."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kernelwright.errors import DeviceLost
from kernelwright.optimize import services as rooms
from kernelwright.optimize.host import ProposerHost
from kernelwright.optimize.services import Services
from kernelwright.sandbox.lease import Lease, try_lock
from kernelwright.testing import FakeHost, FakeWorker


def others_may_time(path: Path) -> bool:
    """Whether another process could have the device alone now."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        return try_lock(handle, fcntl.LOCK_EX)
    finally:
        os.close(handle)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Services]:
    """Services of a device whose locks are the test's own."""
    known = Lease
    monkeypatch.setattr(rooms.lease, "Lease", lambda device: known(device, tmp_path / "locks"))
    (tmp_path / "locks").mkdir()
    return lambda device: Services(device, worker=FakeWorker(lambda c: 20.0), host=FakeHost({}))


def test_a_share_keeps_judges_from_timing_on_a_cpu_and_on_nothing_else(
    made: Callable[[str], Services], tmp_path: Path
) -> None:
    """On a GPU what traces does not use the device that is timed."""
    for device, free in (("cpu", False), ("cuda:0", True)):
        with made(device).share():
            assert others_may_time(tmp_path / "locks" / "kernelwright-cpu.lock") is free
    assert others_may_time(tmp_path / "locks" / "kernelwright-cpu.lock")


def test_a_share_waits_while_a_judge_is_alone_and_says_how_long(
    made: Callable[[str], Services], tmp_path: Path
) -> None:
    """What a run waited is not held against its budget."""
    services, waits, inside = made("cpu"), list[float](), threading.Event()
    services.waited = waits.append

    def sharer() -> None:
        with services.share():
            inside.set()

    with Lease("cpu", tmp_path / "locks").alone():
        thread = threading.Thread(target=sharer, daemon=True)
        thread.start()
        assert not inside.wait(0.2)
    assert inside.wait(10)
    thread.join(10)
    assert len(waits) == 1
    assert waits[0] > 0.1


def test_who_keeps_the_device_for_minutes_costs_no_run_its_pages(
    made: Callable[[str], Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found is written down beside whatever goes on there."""

    def lost(self: Lease) -> AbstractContextManager[None]:
        raise DeviceLost("The device stayed busy")

    monkeypatch.setattr(Lease, "shared", lost)
    done = []
    with made("cpu").share():
        done.append(1)
    assert done


def test_answers_of_proposers_are_made_inside_a_share(tmp_path: Path) -> None:
    """The real child, asked once: the lock is held until it has answered."""
    own = Lease("cpu", tmp_path)
    server = (
        "import json, sys; from kernelwright.sandbox.lease import fcntl, os, try_lock\n"
        "for line in sys.stdin:\n    free = try_lock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\n"
        "    print(json.dumps({'id': json.loads(line)['id'], 'result': {'structures': [], 'seconds': float(free)}}),"
        " flush=True)\n"
    )
    command = (sys.executable, "-c", server, str(own.path))
    host = ProposerHost(tmp_path, command=command, share=own.shared)
    try:
        assert 0.0 == host._ask({"proposer": "p"}, 20.0)["seconds"]
    finally:
        host.close()
    assert others_may_time(own.path)
