# SPDX-License-Identifier: Apache-2.0
"""judge/entrants.py: a baseline that cannot be started is missed aloud; eager is sized by its calls alone."""

from __future__ import annotations

import errno
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernelwright import sandbox
from kernelwright.candidate import Candidate
from kernelwright.errors import DiskFull
from kernelwright.judge import entrants as entrants_module
from kernelwright.judge.bench import Bench
from kernelwright.judge.child import Program, Zygote
from kernelwright.judge.entrant import Entrant
from kernelwright.judge.entrants import Entrants
from kernelwright.judge.programs import Programs

COMPILED = Candidate(task="t", language="torch", entry="m.py::M", sources=(("m.py", "M = 1\n"),), proposer="x")


class NoRoom:
    """Programs of a judge whose disk is full: their folders cannot be made."""

    def fork(self, *_: object) -> Any:  # noqa: ANN401 - it never returns
        raise OSError(errno.ENOSPC, "No space left on device", "/state/baselines")


def begun(state: Path) -> tuple[Entrants, Entrant]:
    """A compiled baseline that was begun there."""
    entrants = Entrants(cast(Programs, NoRoom()), state, state)
    entrant = Entrant(name="compile", program=None, failure="", warming=None)
    bench = cast(Bench, SimpleNamespace(timed=SimpleNamespace(instance=None), device="cpu", eager_us=100.0))
    entrants._begin(bench, entrant, COMPILED, state, state / "own", [])
    return entrants, entrant


def test_a_baseline_without_room_says_so_in_the_conditions(tmp_path: Path) -> None:
    """Ended by an error of the system it was left out without a word, and the speedup over eager alone flattered."""
    _, entrant = begun(tmp_path)
    assert "No space left" in entrant.failure and entrant.program is None


@pytest.mark.parametrize("free", [1 << 10, 1 << 40])
def test_no_verdict_without_a_baseline_that_a_full_disk_kept_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """Where the disk is full indeed."""
    entrants, entrant = begun(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=free))
    if free < 1 << 20:
        with pytest.raises(DiskFull):
            entrants.blame_disk([entrant])
    else:
        entrants.blame_disk([entrant])


class Clocked:
    """A program whose windows take ``empty`` microseconds, and ``each`` more for every call."""

    watched = False

    def __init__(self, empty: float, each: float) -> None:
        self.empty, self.each = empty, each

    def window(self, order: list[int], *, grad: bool = False) -> Any:  # noqa: ANN401 - stands for a window
        return SimpleNamespace(call_us=self.empty + self.each * len(order), aliases=(), whereabouts=None)


def test_eager_is_sized_without_what_an_empty_window_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that is several calls long; yet a tenth of the window is the calls', whatever the clock says."""
    monkeypatch.setattr(entrants_module, "bind", lambda *_: None)
    for empty, each, expected in ((350.0, 66.0, 66.0), (350.0, 0.0, 350.0 * 0.1 / 3)):
        bench = SimpleNamespace(eager_us=100.0, sized=False, contract=SimpleNamespace(gradients=False), timed=None)
        Entrants._size_up(cast(Bench, bench), cast(Program, Clocked(empty, each)), [])
        assert bench.sized and expected == pytest.approx(bench.eager_us)


class One:
    """Programs of a judge that has one to give, after ``wait``."""

    def __init__(self, zygote: Zygote, folder: Path, wait: threading.Event) -> None:
        self.zygote, self.folder, self.wait = zygote, folder, wait

    def fork(self, *_: object) -> Program:
        self.wait.wait(20)
        limits = sandbox.Limits(
            seconds=60.0, memory_bytes=1 << 30, processes=64, file_bytes=1 << 20, output_bytes=1 << 16
        )
        return self.zygote.fork(self.folder, device="cpu", limits=limits, threads=1)


@pytest.mark.parametrize("started", [True, False])
def test_a_baseline_that_is_still_warmed_is_ended_by_its_own_thread(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    """Two threads that close one program close descriptors twice: by then they are another file's."""
    (tmp_path / "slow.py").write_text("import time\nclass M:\n    def __init__(self):\n        time.sleep(60)\n")
    tmp_path.chmod(0o755)
    wait = threading.Event()
    monkeypatch.setattr(entrants_module, "load", lambda program, entry, instance: program.load("slow.py::M"))
    entrants = Entrants(cast(Programs, One(zygote, tmp_path, wait)), tmp_path, tmp_path)
    bench = cast(Bench, SimpleNamespace(timed=SimpleNamespace(instance=None), device="cpu", eager_us=100.0))
    entrant = Entrant(name="compile", program=None, failure="", warming=None)
    work = threading.Thread(target=entrants._begin, args=(bench, entrant, COMPILED, tmp_path, None, []))
    entrant.warming = work
    work.start()
    if started:
        wait.set()
        while entrant.program is None or entrant.program.leash._stood_at:
            time.sleep(0.01)
        time.sleep(0.2)  # it is asked to load
    entrant.close()
    wait.set()
    work.join(20)
    assert not work.is_alive() and entrant.program is None
    assert entrant.failure and "descriptor" not in entrant.failure
