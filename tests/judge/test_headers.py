# SPDX-License-Identifier: Apache-2.0
"""Headers compiled once: made by whoever may write there, read by the others, and nobody misses them."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path

import pytest
import torch

from kernelwright.errors import JudgeFailed
from kernelwright.judge import headers
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.programs import Programs

HEADER = "torch/csrc/inductor/cpp_prefix.h"


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Torch's compiler as far as it is asked here."""
    made = types.SimpleNamespace(_precompile_header="its own", cpp_cache_precompile_headers=False)
    for name in ("codecache", "config"):
        monkeypatch.setitem(sys.modules, f"torch._inductor.{name}", made)
    return made


def ready(place: Path, command: str) -> Path:
    """Headers for a command as if they had been compiled there."""
    place.mkdir()
    found: list[Path] = []

    def make(path: Path, header: str, options: object) -> None:
        found.append(path)
        Path(f"{path}.gch").write_text(header)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headers, "_make", make)
        headers._found(place, True, HEADER, command)
    return found[0]


def test_only_headers_for_the_same_command_are_read(tmp_path: Path, compiler: types.SimpleNamespace) -> None:
    """g++ would refuse those of other flags, or worse; whoever finds none compiles without."""
    path = ready(tmp_path / "headers", "g++ -O3")
    headers.use(str(tmp_path / "headers"), [str(tmp_path / "own")])
    assert compiler.cpp_cache_precompile_headers
    assert str(path) == compiler._precompile_header(HEADER, "g++ -O3", vec_isa=None)
    assert compiler._precompile_header(HEADER, "g++ -O1", vec_isa=None) is None
    assert compiler._precompile_header("another.h", "g++ -O3", vec_isa=None) is None
    assert 1 == len(list((tmp_path / "headers").iterdir()))


def test_without_headers_nothing_changes(tmp_path: Path, compiler: types.SimpleNamespace) -> None:
    """An empty folder (they could not be made), none at all, a torch without the function."""
    (tmp_path / "empty").mkdir()
    for place in ("", str(tmp_path / "empty"), str(tmp_path / "none")):
        headers.use(place)
        assert "its own" == compiler._precompile_header and not compiler.cpp_cache_precompile_headers
    ready(tmp_path / "headers", "g++")
    del compiler._precompile_header
    headers.use(str(tmp_path / "headers"))
    assert not compiler.cpp_cache_precompile_headers


def test_they_are_made_only_below_what_the_program_may_write(
    tmp_path: Path, compiler: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The primer's own folder, and no other program's."""
    asked: list[Path] = []
    monkeypatch.setattr(headers, "_make", lambda path, header, options: asked.append(path))
    headers.use(str(tmp_path / "own" / "headers"), [str(tmp_path / "own")])
    assert compiler._precompile_header(HEADER, "g++") is None and 1 == len(asked)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "one.h.gch").write_text("")
    headers.use(str(tmp_path / "elsewhere"), [str(tmp_path / "own")])
    assert compiler._precompile_header(HEADER, "g++") is None and 1 == len(asked)


def test_headers_of_another_torch_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs would be read in the place of what kernels include."""
    before = headers.folder(tmp_path)
    assert before == headers.folder(tmp_path)
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert before != headers.folder(tmp_path)


COMPILES = """import os
import torch
from torch._inductor import cpp_builder

built = []


class Compiles:
    def __init__(self):
        build = cpp_builder.CppBuilder.build

        def watched(self):
            built.append(self.get_command_line())
            return build(self)

        cpp_builder.CppBuilder.build = watched
        values = torch.ones(8, 8)
        torch.compile(lambda x: torch.sin(x) + x, dynamic=False)(values)
        included = [part for line in built for part in line.split() if part.endswith(".h")]
        assert included and all(os.path.exists(path + ".gch") for path in included), built
        for path in included:
            try:
                open(path + ".gch", "r+b").close()
            except OSError:
                continue
            raise AssertionError("its headers can be written to")
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_a_program_that_compiles_reads_the_headers_and_cannot_write_them(tmp_path: Path) -> None:
    """With the real compiler: the primer makes them, another program's kernels include them."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "program.py").write_text(COMPILES)
    made = Programs(1, tmp_path / "cache")
    try:
        made.prime()
        assert made._priming is not None
        made._priming.join(120)
        if made._probes or not any(headers.folder(tmp_path / "cache").glob("*.gch")):
            pytest.skip("this torch, or this compiler, has none")
        with made.fork("cpu", tmp_path / "source", 120.0, tmp_path / "own") as program:
            program.load("program.py::Compiles")
    except (ChildFailure, JudgeFailed) as failure:
        pytest.fail(f"{failure}\n{getattr(failure, 'detail', '')}")
    finally:
        made.close()
