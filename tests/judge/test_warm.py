# SPDX-License-Identifier: Apache-2.0
"""Folders of programs that compile themselves: fresh for every process, begun from what a warm-up left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from plain_tasks import task

from kernelwright.candidate import Candidate
from kernelwright.judge import taken
from kernelwright.judge.bench import Bench
from kernelwright.judge.program import Program
from kernelwright.judge.warm import Warm


def candidate(language: str = "torch") -> Candidate:
    """Any one that may compile itself."""
    sources = (("new.py", "import helion"),)
    return Candidate(task="t" * 64, language=language, entry="new.py::ModelNew", sources=sources, proposer="p", note="")


class Ended:
    """A program that has ended, or this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid


class Started:
    """Stands in for ``Programs``: notes the folder of each process."""

    def __init__(self, pid: int) -> None:
        self.pid, self.folders = pid, list[Path]()

    def fork(self, device: str, folder: Path, seconds: float, own: Path | None, includes: Path | None = None) -> Ended:
        """What it found there is noted, and something written."""
        assert own is not None
        own.mkdir(parents=True, exist_ok=True)
        self.folders.append(own)
        (own / "note").write_text(str(sorted(path.name for path in own.iterdir())))
        return Ended(self.pid)


class OnCpu:
    """As much of a bench as is asked for."""

    device = "cpu"


def test_no_process_finds_what_another_wrote(tmp_path: Path) -> None:
    """Two after each other get the same place, emptied; two at a time get two."""
    for pid, places in ((1 << 30, 1), (1, 2)):
        programs = Started(pid)
        warm = Warm(cast(Any, programs), tmp_path / "state", tmp_path / "cache")
        for _ in range(2):
            warm.start(cast(Any, OnCpu()), candidate(), tmp_path, 1.0, several=True)
            assert "[]" == (programs.folders[-1] / "note").read_text()
        assert places == len(set(programs.folders))
        warm.close()
        assert not programs.folders[0].exists()


def test_what_a_warm_up_left_is_copied_and_kept_as_it_was(tmp_path: Path) -> None:
    """A process that changes its copy changes nothing for the next; links are not followed."""
    warm = Warm(cast(Any, Started(1 << 30)), tmp_path / "state", tmp_path / "cache")
    left = tmp_path / "left"
    (left / "inductor").mkdir(parents=True)
    (left / "inductor" / "kernel.so").write_text("code")
    (left / "link").symlink_to("/etc/passwd")
    warm._keep(left, warm.left(candidate()))
    for _ in range(2):
        own = warm.aside(candidate())
        assert own is not None
        assert ["inductor"] == [path.name for path in own.iterdir()]
        assert "code" == (own / "inductor" / "kernel.so").read_text()
        (own / "inductor" / "kernel.so").write_text("changed")
    assert warm.aside(candidate("cpp")) is None


def test_what_another_judge_kept_first_is_not_taken_from_under_it(tmp_path: Path) -> None:
    """Four judges of one Triton kernel shared a cache on an H200: one copied what another had just moved away."""
    warm = Warm(cast(Any, Started(1 << 30)), tmp_path / "state", tmp_path / "cache")
    place = warm.left(candidate())
    for number in range(2):
        (tmp_path / "left").mkdir()
        (tmp_path / "left" / "kernel.so").write_text(str(number))
        warm._keep(tmp_path / "left", place)
        assert "0" == (place / "kernel.so").read_text()
        assert [place] == list(place.parent.iterdir())
        assert not (tmp_path / "left").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_a_warm_up_calls_in_each_layout_that_is_checked(
    tmp_path: Path, program: Callable[..., Program], fails: bool
) -> None:
    """What compiles anew for a layout has done so before the checks; who fails there is not refused by a warm-up."""
    bench = Bench(task("x * 2", "[torch.randn(6, 64)]"), "cpu")
    own = "raise ValueError" if fails else "pass"
    body = f"print(list(x.stride()), x.data_ptr() % 64)\nif not x.is_contiguous(): {own}\nreturn x * 2"
    running = program(body, load=False)
    kept: list[str] = []

    class Once:
        """Stands in for ``Programs``: one process, whose words are kept when it ends."""

        def fork(self, *_: object, **__: object) -> Once:
            return self

        def __enter__(self) -> Program:
            return running

        def __exit__(self, *_: object) -> None:
            kept.extend(running.output().split("\n"))

    one = Candidate(task="t" * 64, language="triton", entry="new.py::ModelNew", sources=(), proposer="p", note="")
    warm = Warm(cast(Any, Once()), tmp_path / "state", tmp_path / "cache")
    (warm._mine / "0").mkdir(parents=True)
    warm._warm_up(bench, one, tmp_path, 20.0)
    assert warm.left(one).is_dir()
    layouts = {variant.layout for variant in taken.layouts(bench.timed)}
    assert {"strided", "offset"} <= layouts
    if not fails:
        assert 1 + len(layouts) == len([line for line in kept if line])
        assert 1 + len(layouts) == len({line for line in kept if line})
    bench.close()
