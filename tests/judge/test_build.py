# SPDX-License-Identifier: Apache-2.0
"""Builds are complete or absent, found again by content, and write nothing outside their folder."""

from __future__ import annotations

import concurrent.futures
import ctypes
from pathlib import Path

import pytest

from kernelwright.candidate import Candidate
from kernelwright.judge.build import build, refuse
from kernelwright.judge.toolchains.cpp import FLAGS
from kernelwright.trial import Rejected

PYTHON = ("optimized.py", "class ModelNew: pass\n")
ADD = 'extern "C" int add(int a, int b) { return a + b; }\n'


def candidate(*sources: tuple[str, str], language: str = "cpp", entry: str = "optimized.py::ModelNew") -> Candidate:
    """A candidate of these sources and a Python file."""
    return Candidate(task="t", language=language, entry=entry, sources=(PYTHON, *sources), proposer="test")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests of this file."""
    return tmp_path_factory.mktemp("cache")


def test_compiled_library_lies_beside_its_source(cache: Path) -> None:
    """NAME.cpp becomes NAME.so in the same folder, and works."""
    folder = build(candidate(("add.cpp", ADD)), "cpu", cache)
    assert isinstance(folder, Path)
    assert 5 == ctypes.CDLL(str(folder / "add.so")).add(2, 3)


def test_equal_sources_build_once(cache: Path) -> None:
    """The second build of equal content is the first one's folder, untouched."""
    first = build(candidate(("add.cpp", ADD)), "cpu", cache)
    assert isinstance(first, Path)
    stamp = (first / "add.so").stat().st_mtime_ns
    assert first == build(candidate(("add.cpp", ADD)), "cpu", cache)
    assert stamp == (first / "add.so").stat().st_mtime_ns


def test_builds_of_one_content_may_race(cache: Path) -> None:
    """Four at once end with one folder and no leftovers."""
    asked = candidate(("mul.cpp", ADD.replace("add", "mul")))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: build(asked, "cpu", cache), range(4)))
    assert 1 == len(folders)
    assert [] == list(cache.rglob("tmp-*"))


def test_compiler_errors_are_evidence(cache: Path) -> None:
    """What g++ says is in the detail, and nothing is left in the cache."""
    outcome = build(candidate(("bad.cpp", "int f( { return no_such_name; }\n")), "cpu", cache)
    assert isinstance(outcome, Rejected)
    assert ("build", "bad.cpp does not compile") == (outcome.stage, outcome.reason)
    assert "error" in outcome.detail
    assert [] == list(cache.rglob("tmp-*"))


def test_the_compiler_is_confined(cache: Path, tmp_path: Path) -> None:
    """A source cannot include a file from outside the system's folders."""
    secret = tmp_path / "secret.h"
    secret.write_text("#define SECRET 1\n")
    outcome = build(candidate(("spy.cpp", f'#include "{secret}"\n{ADD}')), "cpu", cache)
    assert isinstance(outcome, Rejected)


@pytest.mark.parametrize(
    "name",
    ["/etc/x.cpp", "../x.cpp", "a/../../x.cpp", "a\\b.cpp", "./x.cpp", ".hidden.cpp", "torch.py", "torch/x.py", "x.so",
     "a\x00.cpp", "", "numpy.py"],
)  # fmt: skip
def test_paths_that_escape_or_shadow_are_refused(name: str) -> None:
    """Absolute, climbing, hidden, binary and shadowing names never reach the disk."""
    outcome = refuse(candidate((name, ADD)))
    assert outcome is not None and outcome.stage == "build"


@pytest.mark.parametrize("entry", ["optimized.py", "absent.py::ModelNew", "optimized.py::not a name", "::ModelNew"])
def test_entries_must_name_a_class_in_a_source(entry: str) -> None:
    """FILE.py::Class, and the file is one of the sources."""
    outcome = refuse(candidate(entry=entry))
    assert outcome is not None and "entry" in outcome.reason


def test_a_reasonable_candidate_is_not_refused() -> None:
    """Folders, dashes and several files are fine."""
    assert refuse(candidate(("kernels/row-wise_2.cpp", ADD), ("kernels/__init__.py", ""))) is None


def test_no_flag_gives_precision_away() -> None:
    """fast-math and its unsafe parts are absent."""
    unsafe = {"-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-fassociative-math", "-ffinite-math-only"}
    assert set() == unsafe & set(FLAGS)
