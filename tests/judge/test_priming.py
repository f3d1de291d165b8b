# SPDX-License-Identifier: Apache-2.0
"""Judges that share a cache: one of them primes it, the others find that done."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kernelwright.judge import programs as module
from kernelwright.judge.programs import Programs


def test_one_judge_primes_and_the_other_finds_it_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ask at once; the primer runs once, and neither goes on before it has."""
    began, go_on, runs = threading.Event(), threading.Event(), list[str]()

    def run(self: Programs, zygote: object) -> bool:
        runs.append("primer")
        began.set()
        assert go_on.wait(10)
        self._seed.mkdir()
        self._headers.mkdir()
        return True

    monkeypatch.setattr(Programs, "_zygote", lambda self, **k: None)
    monkeypatch.setattr(Programs, "_run_primer", run)
    done: list[Any] = []
    judges = [threading.Thread(target=lambda: done.append(Programs(1, tmp_path)._primed())) for _ in range(2)]
    for judge in judges:
        judge.start()
    assert began.wait(10)
    judges[0].join(0.05)
    assert [] == done
    go_on.set()
    for judge in judges:
        judge.join(10)
    assert [True, True] == done
    assert ["primer"] == runs


def test_a_cache_that_cannot_hold_a_lock_is_primed_all_the_same(tmp_path: Path) -> None:
    """Nothing to wait for is no reason to give up."""
    (tmp_path / "file").write_text("")
    with module._one_at_a_time(tmp_path / "file" / "priming.lock"):
        pass


def test_the_plain_zygote_does_not_wait_for_the_one_that_imports_compilers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes seconds, in the background; candidates and eager come from the plain one. Each is started once."""
    importing, started = threading.Event(), list[tuple[str, ...]]()

    def start(preload: tuple[str, ...], **more: object) -> object:
        started.append(preload)
        if preload != ("torch",):
            assert importing.wait(10)
        return object()

    monkeypatch.setattr(module.Zygote, "start", start)
    programs = Programs(1, tmp_path)
    programs.waiting = {"OMP_WAIT_POLICY": "PASSIVE"}
    background = threading.Thread(target=lambda: programs._zygote(compiles=True))
    background.start()
    plain = threading.Thread(target=lambda: programs._zygote(compiles=False))
    plain.start()
    plain.join(5)
    waited = plain.is_alive()
    importing.set()
    background.join(10)
    assert not waited
    assert programs._zygote(compiles=True) is programs._zygote(compiles=True)
    assert sorted(map(len, started)) == [1, len(module.COMPILER)]
