# SPDX-License-Identifier: Apache-2.0
"""Compilers' folders after a judge was killed over them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.judge.unfinished import written

WRITER = """
import sys, time
from pathlib import Path
from kernelwright.judge.unfinished import written
folder = Path(sys.argv[1])
with written(folder):
    (folder / "zt").mkdir(parents=True, exist_ok=True)
    for name in ("half.so", "half.o", "whole.py"):
        (folder / "zt" / name).write_bytes(b"")
    print("writing", flush=True)
    sys.stdin.read()
"""


def writer(folder: Path) -> subprocess.Popen[str]:
    """Another process, in the middle of writing."""
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert "writing\n" == child.stdout.readline()
    return child


def names(folder: Path) -> set[str]:
    """Files below a folder."""
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_what_a_killed_judge_had_half_written_is_gone_before_the_next(tmp_path: Path) -> None:
    """An empty shared object would be loaded again and again; older ones and what is written whole stay."""
    folder = tmp_path / "compile"
    folder.mkdir()
    (folder / "older.so").write_bytes(b"whole")
    os.utime(folder / "older.so", (1e9, 1e9))
    child = writer(folder)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert {"older.so", "half.so", "half.o", "whole.py"} == names(folder)
    with written(folder):
        assert {"older.so", "whole.py"} == names(folder)
        (folder / "mine.so").write_bytes(b"whole")
    with written(folder):
        assert "mine.so" in names(folder)
    assert ["compile.marks"] == [path.name for path in tmp_path.iterdir() if path.is_file()]


def test_what_another_judge_is_writing_is_left_alone(tmp_path: Path) -> None:
    """Two judges may compile one program at a time; torch's own locks keep them apart."""
    folder = tmp_path / "compile"
    dead, alive = writer(folder), writer(folder)
    dead.kill()
    dead.communicate()
    with written(folder):
        assert "half.so" in names(folder)
    alive.communicate("")
    assert 0 == alive.returncode
    with written(folder):
        assert {"whole.py"} == names(folder)


def test_one_that_failed_is_no_better_than_one_that_was_killed(tmp_path: Path) -> None:
    """A program that is ended over its time is ended in the middle of a file too."""
    folder = tmp_path / "compile"
    with pytest.raises(TimeoutError), written(folder):
        folder.mkdir()
        (folder / "half.so").write_bytes(b"")
        raise TimeoutError
    with written(folder):
        assert set() == names(folder)
    with written(None):
        pass
