# SPDX-License-Identifier: Apache-2.0
"""Programs start with what they will need: those that compile begin with a cache that others of ours filled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.judge.programs import Programs

PLAIN = """class Plain:
    def __init__(self):
        import sys
        assert "torch._inductor" not in sys.modules
"""
COMPILING = """import os


class Compiling:
    def __init__(self):
        found = sorted(os.listdir(os.environ["TORCHINDUCTOR_CACHE_DIR"]))
        assert found == ["answered"], found
        open(os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "mine"), "w").close()
"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """With a cache that is primed already, so that nothing has to be compiled here."""
    (tmp_path / "cache" / "primed").mkdir(parents=True)
    (tmp_path / "cache" / "primed" / "answered").write_text("yes")
    made = Programs(1, tmp_path / "cache")
    yield made
    made.close()


def write(folder: Path, source: str) -> Path:
    """A folder with one program."""
    folder.mkdir()
    (folder / "program.py").write_text(source)
    return folder


def test_a_program_without_a_folder_of_its_own_comes_from_the_plain_zygote(programs: Programs, tmp_path: Path) -> None:
    """It has torch and no compiler, and nothing runs in the background for it."""
    with programs.fork("cpu", write(tmp_path / "plain", PLAIN), 60.0, None) as program:
        program.load("program.py::Plain")
    assert [] == programs.in_background()


@pytest.mark.slow
def test_a_program_that_compiles_begins_with_a_copy_of_the_primed_cache(programs: Programs, tmp_path: Path) -> None:
    """What it writes stays in its own copy."""
    with programs.fork("cpu", write(tmp_path / "compiling", COMPILING), 60.0, tmp_path / "own") as program:
        program.load("program.py::Compiling")
    assert ["answered", "mine"] == sorted(path.name for path in (tmp_path / "own" / "inductor").iterdir())
    assert ["answered"] == [path.name for path in (tmp_path / "cache" / "primed").iterdir()]
