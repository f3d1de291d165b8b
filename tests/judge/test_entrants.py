# SPDX-License-Identifier: Apache-2.0
"""judge/entrants.py: a baseline that cannot be started is missed aloud."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernelwright.candidate import Candidate
from kernelwright.errors import DiskFull
from kernelwright.judge.bench import Bench, Entrant
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
