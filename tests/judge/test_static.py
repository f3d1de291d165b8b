# SPDX-License-Identifier: Apache-2.0
"""Compiled facts without a run: equal objects are recognised, vectors and regions are read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernelwright.judge.profile import static

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None or shutil.which("objdump") is None, reason="no g++ here")


def built(folder: Path, text: str, *flags: str) -> Path:
    """A folder with one shared object."""
    folder.mkdir()
    (folder / "kernel.cpp").write_text(text)
    command = ["g++", "-O3", "-fopenmp", "-shared", "-fPIC", *flags, "-o", "kernel.so", "kernel.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


LOOP = """extern "C" void f(float* x, long n) {{
  {pragma}
  for (long {i} = 0; {i} < n; ++{i}) x[{i}] = x[{i}] * 3.0f;  // {note}
}}
"""


@needs_gcc
def test_other_words_for_the_same_loop_make_the_same_object(tmp_path: Path) -> None:
    """A renamed variable and a comment change nothing that was compiled; another constant does."""
    one = static.facts(built(tmp_path / "a", LOOP.format(pragma="", i="i", note="first")), "cpp")
    two = static.facts(built(tmp_path / "b", LOOP.format(pragma="", i="row", note="second")), "cpp")
    three = static.facts(built(tmp_path / "c", LOOP.format(pragma="", i="i", note="").replace("3.0f", "5.0f")), "cpp")
    assert one["object"] == two["object"] != three["object"]


@needs_gcc
def test_regions_and_packed_arithmetic_are_counted(tmp_path: Path) -> None:
    """One OpenMP region where there is one; packed instructions where the loop was vectorised and not otherwise."""
    regions = LOOP.format(pragma="#pragma omp parallel for", i="i", note="")
    parallel = static.facts(built(tmp_path / "a", regions), "cpp")
    plain = static.facts(built(tmp_path / "b", LOOP.format(pragma="", i="i", note=""), "-fno-tree-vectorize"), "cpp")
    assert (1.0, 0.0) == (parallel["parallel_regions"], plain["parallel_regions"])
    assert float(parallel["packed_instructions"]) > 0 == float(plain["packed_instructions"])


def test_languages_that_compile_later_have_no_facts_yet(tmp_path: Path) -> None:
    """Triton before its first run, and torch for ever."""
    assert {} == static.facts(tmp_path, "torch") == static.facts(tmp_path, "triton", tmp_path / "none")
