# SPDX-License-Identifier: Apache-2.0
"""Programs start with what they will need: those that compile begin with a cache that others of ours filled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.judge import programs as module
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


PICKY = """import os
from torch._inductor import config


class Primer:
    def __init__(self):
        folder = os.environ["TORCHINDUCTOR_CACHE_DIR"]
        os.makedirs(folder)
        with open(os.path.join(folder, "asked"), "w") as file:
            file.write(str(config.cpp.vec_isa_ok))
        assert not %r or config.cpp.vec_isa_ok is None
"""


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_the_processor_is_probed_only_where_the_primer_fails_by_its_word(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor that says more than the compiler, or the system, lets through costs the time of probing it."""
    monkeypatch.setattr(module, "PRIMER", PICKY % fails)
    monkeypatch.setattr(module, "COMPILER", ("torch", "torch._inductor.config"))
    for _ in range(2):  # the second time it is known
        made = Programs(1, tmp_path / "cache")
        try:
            made.prime()
            assert made._priming is not None
            made._priming.join(60)
            found = {path.parent.name: path.read_text() for path in (tmp_path / "cache").glob("*/asked")}
        finally:
            made.close()
        assert ({"primed-probing": "None"} if fails else {"primed": "True"}) == found


def test_a_program_may_read_the_folders_its_reference_imports_from(programs: Programs, tmp_path: Path) -> None:
    """Those of the task; a home as a whole is nobody's folder of imports."""
    helper = tmp_path / "beside"
    helper.mkdir()
    (helper / "kw_helper.py").write_text("VALUE = 3\n")
    folder = write(tmp_path / "importing", f"from kw_helper import VALUE\n\n\n{PLAIN}")
    told = tmp_path / "tasks"
    (told / "norms" / "rms").mkdir(parents=True)
    (told / "norms" / "rms" / "task.toml").write_text("")  # cases and tolerances are nothing for candidates
    programs.allow([str(Path.home()), "/", str(told), str(told / "norms" / "rms"), str(helper)])
    assert {str(helper)} == programs._imports
    with programs.fork("cpu", folder, 60.0, None) as program:
        program.load("program.py::Plain", imports=[str(helper)])
