# SPDX-License-Identifier: Apache-2.0
"""Checks in a fork of the judge: what they give, what they raise, and that nothing is left of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import LIMITS

from kernelwright.errors import JudgeFailed
from kernelwright.judge.checks import Wrong
from kernelwright.judge.child import Zygote
from kernelwright.judge.leash import ChildFailure
from kernelwright.sandbox import forked
from kernelwright.sandbox.forked import Fork

RELAYED = (Wrong, ChildFailure)


def gone(pid: int) -> bool:
    """Within ten seconds."""
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not Path(f"/proc/{pid}").exists()


def test_it_gives_what_it_found() -> None:
    found = Fork(lambda: (os.getpid(), "x" * (1 << 20)), RELAYED).result()
    assert found is not None and found[0] != os.getpid() and len(found[1]) == 1 << 20
    assert gone(found[0])


@pytest.mark.parametrize("error", [Wrong("verify", "it errs", "by 3"), ChildFailure("smoke", "raised", "detail")])
def test_what_a_candidate_did_wrong_is_raised_here(error: Exception) -> None:
    def work() -> None:
        raise error

    fork = Fork(work, RELAYED)
    deadline = time.monotonic() + 20
    with pytest.raises(type(error)) as caught:
        while time.monotonic() < deadline:
            fork.glance()
            time.sleep(0.01)
    assert vars(caught.value) == vars(error)
    with pytest.raises(type(error)):
        fork.result()


def _raises() -> None:
    raise ValueError("of its own")


@pytest.mark.parametrize(
    "work",
    [_raises, lambda: os._exit(3), lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: lambda: 1],
    ids=["raises", "exits", "is killed", "no data"],
)
def test_where_nothing_comes_of_it_there_is_no_result(work: Callable[[], object]) -> None:
    """Who asks does the work himself."""
    found = Fork(work, RELAYED).result()
    assert found is None


def test_one_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "PATIENCE_S", 0.3)
    fork = Fork(lambda: time.sleep(600), RELAYED)
    pid = fork._pid
    assert fork.result() is None and gone(pid)


def test_programs_that_it_leaves_end_with_it(zygote: Zygote, tmp_path: Path) -> None:
    """Stopped ones, which would not end by themselves; those of the judge itself go on."""
    own = zygote.fork(tmp_path, device="cpu", limits=LIMITS)
    with zygote.lend() as channel:

        def work() -> int:
            return zygote.lent(channel).fork(tmp_path, device="cpu", limits=LIMITS).pid

        pid = Fork(work, RELAYED).result()
    assert pid is not None and gone(pid) and not gone_at_once(own.pid)
    own.close()


def gone_at_once(pid: int) -> bool:
    """Now."""
    return not Path(f"/proc/{pid}").exists()


def test_a_fork_neither_ends_the_zygote_nor_starts_another(zygote: Zygote, tmp_path: Path) -> None:
    """Not where it cannot fork, either."""
    before = zygote.pid
    with zygote.lend() as channel:

        def work() -> str:
            lent = zygote.lent(channel)
            lent.close()
            try:
                return f"forked {lent.fork(tmp_path, device='cpu', limits=LIMITS).pid}"
            except JudgeFailed as failed:
                return str(failed)

        said = Fork(work, RELAYED).result()
    assert said is not None and "closed" in said
    assert zygote.pid == before and not gone_at_once(before)
    zygote.fork(tmp_path, device="cpu", limits=LIMITS).close()
