# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from kernelwright.judge.states import States


def test_states_of_threads_are_told_anew_each_time_and_of_one_that_is_gone() -> None:
    """Their files stay open meanwhile, until they are closed."""
    states = States()
    sleeper = subprocess.Popen(["sleep", "60"])
    own = f"/proc/{sleeper.pid}/stat"
    assert states.of(own) in (b"S", b"R", b"D")
    sleeper.send_signal(signal.SIGSTOP)
    while (now := states.of(own)) != b"T":
        assert now in b"SRD"
    sleeper.kill()
    sleeper.wait()
    assert b"X" == states.of(own)
    states.of("/proc/self/stat")
    before = len(os.listdir("/proc/self/fd"))
    states.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_a_thread_waits_only_once_it_is_off_its_cpu() -> None:
    """One that runs does not, one that stands does, and one that is gone is none."""
    states = States()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    own = f"/proc/{busy.pid}/wchan"
    try:
        if not states.waits(f"/proc/{os.getppid()}/wchan"):
            pytest.skip("this kernel does not say where threads wait")
        assert not all(states.waits(own) for _ in range(1000))
        busy.send_signal(signal.SIGSTOP)
        while not (said := states.waits(own)):
            assert said is False
    finally:
        busy.kill()
        busy.wait()
    assert states.waits(own) is None
    states.close()
