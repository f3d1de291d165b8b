# SPDX-License-Identifier: Apache-2.0
"""Extensions that candidates build with torch.utils.cpp_extension: once for all processes of a candidate."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from kernelwright.candidate import Candidate
from kernelwright.judge import warm as module
from kernelwright.judge.programs import Programs
from kernelwright.judge.warm import Warm
from kernelwright.sandbox import environment

SOURCE = """import torch
from torch.utils.cpp_extension import load_inline

load_inline("three", ['extern "C" int three() { return 3; }'], is_python_module=False, no_implicit_headers=True)


class ModelNew(torch.nn.Module):
    pass
"""
USELESS = '#!/bin/sh\ncase " $* " in *" -c "*) exit 1;; esac\nexec /usr/bin/c++ "$@"\n'
"""A compiler that compiles nothing."""


def test_what_one_process_built_the_next_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ninja goes by absolute paths, so a copy elsewhere was built again: here the second compilation would fail."""
    if not shutil.which("ninja") or not shutil.which("c++"):
        pytest.skip("no ninja or no c++")
    folder, tools, owns = tmp_path / "source", tmp_path / "tools", [tmp_path / name for name in ("first", "second")]
    folder.mkdir()
    (folder / "new.py").write_text(SOURCE)
    tools.mkdir()
    (tools / "c++").write_text(USELESS)
    (tools / "c++").chmod(0o755)
    programs = Programs(1, tmp_path / "cache")
    programs.allow([str(tools)])
    zygote = programs.fresh()
    try:
        if not zygote.own_root:
            pytest.skip("no root of its own here")
        with programs.start(zygote, "cpu", folder, 60.0, owns[0]) as first:
            first.load("new.py::ModelNew")
        shutil.copytree(*owns)
        monkeypatch.setitem(environment._FIXED, "PATH", f"{tools}:{environment._FIXED['PATH']}")
        with programs.start(zygote, "cpu", folder, 60.0, owns[1]) as second:
            second.load("new.py::ModelNew")
    finally:
        zygote.close()


class Warmed(Warm):
    """Counts warm-ups, each of which leaves a file."""

    count = 0

    def _warm_up(self, bench: Any, candidate: Candidate, folder: Path, seconds: float) -> None:
        self.count += 1
        made = self._mine / "made"
        made.mkdir(parents=True)
        (made / "built").write_text("built")
        self._keep(made, self.left(candidate))


class Started:
    """Stands in for ``Programs``: what each process finds in its folder."""

    pid = 1 << 30

    def __init__(self) -> None:
        self.found: list[bool] = []

    def fork(self, device: str, folder: Path, seconds: float, own: Path | None) -> Started:
        assert own is not None
        self.found.append((own / "built").is_file())
        return self


class OnCpu:
    """As much of a bench as is asked for."""

    device = "cpu"


def test_stages_and_judges_share_one_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coarse, precise, and another judge later; other sources, another torch or compiler build for themselves."""
    programs = Started()

    def start(candidate: Candidate, *, several: bool) -> int:
        warm = Warmed(cast(Any, programs), tmp_path / "state", tmp_path / "cache")
        warm.start(cast(Any, OnCpu()), candidate, tmp_path, 1.0, several=several)
        warm.close()
        return warm.count

    def candidate(text: str) -> Candidate:
        return Candidate(task="t" * 64, language="torch", entry="new.py::M", sources=(("new.py", text),), proposer="p")

    one, two = candidate("load_inline(1)"), candidate("load_inline(2)")
    assert [1, 0, 0] == [start(one, several=several) for several in (False, True, False)]
    assert 1 == start(two, several=False)
    assert 0 == start(candidate("torch.compile"), several=False), "one process compiles for itself"
    assert [True, True, True, True, False] == programs.found
    monkeypatch.setattr(module, "_compiler", lambda: "another")
    assert 1 == start(one, several=False)
    monkeypatch.setattr(module.torch, "__version__", "3.0")
    assert 1 == start(one, several=False)
