# SPDX-License-Identifier: Apache-2.0
"""The exported drop-in of a compiled program: the file beside it, one that is missing, one for another machine."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
from export_bench import (
    BINDING,
    COMMAND,
    CPP,
    SQUARE,
    alone,
    leaf,
    trial,
)

from kernelwright import export
from kernelwright.task import Task


@pytest.fixture(scope="module")
def square(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported C++ program with its compiled file."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    folder, built = tmp_path_factory.mktemp("square"), tmp_path_factory.mktemp("built")
    (built / "square.cpp").write_text(CPP)
    command = [part.format(source=built / "square.cpp", output=built / "square.so") for part in COMMAND]
    subprocess.run(command, check=True)
    task = Task(name="square", form="folder", reference=SQUARE)
    export.write(
        folder,
        task,
        trial(task, {"fast.py": BINDING, "square.cpp": CPP}, "cpp"),
        cases=[{"name": "main", "inputs": [leaf(6)], "state": []}],
        built=built,
        commands={"square.cpp": COMMAND},
    )
    return folder


CALL = """
import optimized
out += optimized.optimized(torch.arange(6.0)).tolist()
out.append(getattr(optimized.ModelNew, "calls", 0))
"""
SQUARES = [0.0, 1.0, 4.0, 9.0, 16.0, 25.0]


def test_the_compiled_file_beside_the_module_is_used(square: Path) -> None:
    """No compiler is needed where the compiled file fits."""
    assert [[*SQUARES, 1], []] == alone(square, CALL, path="")


def test_the_proof_names_each_file_by_its_own_digest(square: Path) -> None:
    """The compiled file's is not its source's."""
    digests = json.loads((square / "proof.json").read_text())["optimized"]
    assert set(digests) == {"optimized.py", "square.cpp", "square.so"}
    assert digests == {name: hashlib.sha256((square / name).read_bytes()).hexdigest() for name in digests}


def test_a_missing_compiled_file_is_built_again(square: Path, tmp_path: Path) -> None:
    """With a compiler the file comes back; the second import finds it."""
    copy = shutil.copytree(square, tmp_path / "copy")
    (copy / "square.so").unlink()

    assert [[*SQUARES, 1], []] == alone(copy, CALL)
    assert [[*SQUARES, 1], []] == alone(copy, CALL, path="")


def test_a_compiled_file_for_another_machine_is_not_loaded(square: Path, tmp_path: Path) -> None:
    """Unknown instruction sets mean a rebuild; without a compiler the reference answers, with one warning."""
    copy = shutil.copytree(square, tmp_path / "copy")
    record = json.loads((copy / "square.so.json").read_text())
    (copy / "square.so.json").write_text(json.dumps(record | {"features": ["avx9000"]}))
    (copy / "square.so").write_bytes(b"would crash")
    out, said = alone(copy, CALL, path="")

    assert [*SQUARES, 0] == out
    assert 1 == len(said) and "g++" in said[0]
    assert [[*SQUARES, 1], []] == alone(copy, CALL)


def test_a_folder_that_cannot_be_written_is_left_alone(square: Path, tmp_path: Path) -> None:
    """What does not fit is built in a private folder, which has the weights that lie beside the module too."""
    copy = shutil.copytree(square, tmp_path / "copy")
    (copy / "square.so").unlink()
    (copy / "0123.pt").write_bytes(b"weights")
    code = """
    import os
    allowed = os.access
    os.access = lambda path, mode, **more: mode != os.W_OK and allowed(path, mode, **more)
    """
    where = "out.append(sorted(os.listdir(os.path.dirname(sys.modules['optimized_fast'].__file__))))\n"
    found = [*SQUARES, 1, ["0123.pt", "square.so", "square.so.json"]]
    assert [found, []] == alone(copy, textwrap.dedent(code) + CALL + where)
    assert not (copy / "square.so").exists()


def test_a_triton_candidate_finds_its_own_source(tmp_path: Path) -> None:
    """The kernel text lives inside the module; Triton (here interpreted) still reads it."""
    pytest.importorskip("triton")
    kernel = """
        import torch
        import triton
        import triton.language as tl
        from torch import nn


        @triton.jit
        def _square(x, y, n, BLOCK: tl.constexpr):
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            value = tl.load(x + offsets, mask=offsets < n)
            tl.store(y + offsets, value * value, mask=offsets < n)


        class ModelNew(nn.Module):
            calls = 0

            def forward(self, x):
                type(self).calls += 1
                y = torch.empty_like(x)
                _square[(1,)](x, y, x.numel(), BLOCK=16)
                return y
    """
    task = Task(name="square", form="folder", reference=SQUARE)
    export.write(
        tmp_path,
        task,
        trial(task, {"fast.py": textwrap.dedent(kernel)}),
        cases=[{"name": "main", "inputs": [leaf(6)], "state": []}],
    )

    assert [[*SQUARES, 1], []] == alone(tmp_path, CALL, TRITON_INTERPRET="1")


UNWRITABLE = (
    """
import os
allowed = os.access
os.access = lambda path, mode, **more: mode != os.W_OK and allowed(path, mode, **more)
"""
    + CALL
)


def test_where_the_folder_is_read_only_the_file_is_built_once_for_all_processes(square: Path, tmp_path: Path) -> None:
    """In a private folder of the user's cache; the next process needs no compiler."""
    copy = shutil.copytree(square, tmp_path / "copy")
    (copy / "square.so").unlink()
    cache = tmp_path / "cache"

    assert [[*SQUARES, 1], []] == alone(copy, UNWRITABLE, XDG_CACHE_HOME=str(cache))
    assert not (copy / "square.so").exists()
    assert [[*SQUARES, 1], []] == alone(copy, UNWRITABLE, path="", XDG_CACHE_HOME=str(cache))
    (folder,) = (cache / "optimized-programs").iterdir()
    assert 0o700 == folder.stat().st_mode & 0o777


def test_a_folder_that_others_may_write_to_is_not_trusted(square: Path, tmp_path: Path) -> None:
    """Then the file is built for one process, in a folder that goes with it."""
    copy = shutil.copytree(square, tmp_path / "copy")
    (copy / "square.so").unlink()
    cache, temporary = tmp_path / "cache", tmp_path / "temporary"
    temporary.mkdir()
    where = {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(temporary)}
    alone(copy, UNWRITABLE, **where)
    (folder,) = (cache / "optimized-programs").iterdir()
    (folder / "square.so").write_bytes(b"planted")
    folder.chmod(0o777)

    assert [[*SQUARES, 1], []] == alone(copy, UNWRITABLE, **where)
    assert [] == list(temporary.glob("optimized-*"))
