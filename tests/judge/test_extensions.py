# SPDX-License-Identifier: Apache-2.0
"""Extensions that candidates build with torch.utils.cpp_extension: once for all processes of a candidate."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from kernelwright import sandbox
from kernelwright.candidate import Candidate
from kernelwright.judge import extensions
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


def inline(more: str, body: str = "") -> str:
    """A candidate that builds an extension with these further arguments."""
    return f"from torch.utils.cpp_extension import load_inline\nload_inline('one', ['{body}']{more})\n"


def candidate(text: str) -> Candidate:
    """One of this source."""
    return Candidate(task="t" * 64, language="torch", entry="new.py::M", sources=(("new.py", text),), proposer="p")


def test_only_flags_from_the_list_are_compiled_with() -> None:
    """A flag may name a plug-in or a file: what runs outside the candidate's own processes takes none of those."""
    for more, wanted in (
        ("", ()),
        (", extra_cflags=['-O3', '-fopenmp']", ("-O3", "-fopenmp")),
        (", extra_cflags=None, extra_cuda_cflags=['-O2']", ()),
        (", extra_cflags=['-O3', '-fplugin=evil.so']", None),
        (", extra_cflags=['-O3 -fplugin=evil.so']", None),
        (", extra_cflags=['-include/etc/passwd']", None),
        (", extra_cflags='-O3'", None),
        (", extra_cflags=FLAGS", None),
        (", no_implicit_headers=True", None),
    ):
        assert wanted == extensions.flags(candidate(inline(more))), more
    assert extensions.flags(candidate("import torch")) is None
    assert extensions.flags(candidate("(")) is None


def test_the_header_is_made_for_the_second_of_the_same_flags_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was made from is spoilt afterwards: who compiles it again fails."""
    if not shutil.which("c++"):
        pytest.skip("no c++")
    monkeypatch.setattr(extensions, "HEADER", "cstddef")
    one, two, other = (candidate(inline(more, "1")) for more in ("", ", extra_cflags=[]", ", extra_cflags=['-O2']"))
    assert extensions.headers(one, tmp_path) is None
    assert extensions.headers(one, tmp_path, make=True) is None, "one alone does not pay"
    assert extensions.headers(two, tmp_path) is None, "nor does who builds nothing"
    found = extensions.headers(two, tmp_path, make=True)
    assert found is not None
    assert found == extensions.headers(one, tmp_path)
    assert extensions.headers(other, tmp_path, make=True) is None
    (found / "cstddef").write_text("#error compiled again\n")
    source = tmp_path / "main.cpp"
    source.write_text("#include <cstddef>\nstd::size_t one() { return 1; }\n")
    command = ["c++", "-DTORCH_EXTENSION_NAME=one", *extensions._as_torch(), "-c", str(source), "-o", "main.o"]
    env = {"CPATH": str(found), "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}

    def run(*more: str) -> sandbox.Finished:
        limits = extensions.LIMITS
        return sandbox.run([*command, *more], limits=limits, writable=(tmp_path,), cwd=tmp_path, env=env)

    assert 0 == run().returncode, run().stderr
    assert "compiled again" in run("-O2").stderr, "of other flags it is not read"


def test_a_header_that_does_not_compile_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And there are few of them: each takes 0.8 GB."""
    monkeypatch.setattr(extensions, "HEADER", "no/such/header.h")
    tried: list[Path] = []
    make = extensions._make
    monkeypatch.setattr(extensions, "_make", lambda folder, wanted: (tried.append(folder), make(folder, wanted)))
    for _ in range(4):
        assert extensions.headers(candidate(inline("")), tmp_path, make=True) is None
    assert 1 == len(tried)
    for flag in ("-O1", "-O2", "-O3", "-g", "-Wall"):
        for _ in range(2):
            extensions.headers(candidate(inline(f", extra_cflags=['{flag}']")), tmp_path, make=True)
    assert extensions.MOST == len(tried)


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

    def fork(self, device: str, folder: Path, seconds: float, own: Path | None, **more: object) -> Started:
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

    one, two = candidate("load_inline(1)"), candidate("load_inline(2)")
    assert [1, 0, 0] == [start(one, several=several) for several in (False, True, False)]
    assert 1 == start(two, several=False)
    assert 0 == start(candidate("torch.compile"), several=False), "one process compiles for itself"
    assert [True, True, True, True, False] == programs.found
    monkeypatch.setattr(extensions, "compiler", lambda: "another")
    assert 1 == start(one, several=False)
    monkeypatch.setattr(module.torch, "__version__", "3.0")
    assert 1 == start(one, several=False)
