# SPDX-License-Identifier: Apache-2.0
"""Folders that nobody can remove the usual way, and what is kept of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelwright.judge import folders


def nested(folder: Path, depth: int) -> None:
    """Folders below folders, made as no path could name them; what is in them is out of reach."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.fchmod(here, 0)
        os.close(here)
        here = below
    os.close(here)


def test_folders_deeper_than_a_path_can_name_are_removed(tmp_path: Path) -> None:
    """5000 levels, each without rights; nothing stays beside them either, and links are not followed."""
    folder, other = tmp_path / "own", tmp_path / "other"
    other.mkdir()
    (other / "kept").write_text("")
    folder.mkdir()
    (folder / "link").symlink_to(other)
    nested(folder, 5000)
    assert folders.settled(folder) is None
    assert folders.removed(folder)
    assert ["other"] == os.listdir(tmp_path)
    assert (other / "kept").exists()
    assert folders.removed(folder)


def test_what_is_left_is_readable_and_without_links(tmp_path: Path) -> None:
    """Sizes add up; a file nobody may read becomes one that its owner reads; a link and a pipe are dropped."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "kernel.so").write_bytes(b"1234")
    (tmp_path / "a" / "kernel.so").chmod(0)
    (tmp_path / "a" / "run").write_bytes(b"12")
    (tmp_path / "a" / "run").chmod(0o755)
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    assert 6 == folders.settled(tmp_path)
    assert ["a"] == os.listdir(tmp_path)
    modes = [(tmp_path / "a" / name).stat().st_mode & 0o777 for name in ("kernel.so", "run")]
    assert [0o600, 0o755] == modes


def test_more_files_than_a_compiler_leaves_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for millions of them to be copied for every process."""
    for number in range(5):
        (tmp_path / str(number)).write_text("")
    assert 0 == folders.settled(tmp_path)
    monkeypatch.setattr(folders, "MOST_FILES", 4)
    assert folders.settled(tmp_path) is None
