# SPDX-License-Identifier: Apache-2.0
"""Two projects with a file of one name beside their references, in one judge and in one proposer host."""

from __future__ import annotations

import importlib
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kernelwright
from kernelwright import wire
from kernelwright.judge.reference import Reference
from kernelwright.judge.session import Session
from kernelwright.neighbours import Neighbours, placed
from kernelwright.proposers.loaded import loaded
from kernelwright.task import Task

SOURCE = """
import torch
from kw_layers import FACTOR
from kw_parts.deep import SHIFT

class Model(torch.nn.Module):
    def forward(self, x):
        import kw_late
        return x * FACTOR + SHIFT + kw_late.MORE

def get_inputs():
    return [torch.ones(3)]

def get_init_inputs():
    return []
"""


def project(folder: Path, number: float) -> Task:
    """A task whose files are named as those of another project, and say another number."""
    (folder / "kw_parts").mkdir(parents=True)
    (folder / "kw_layers.py").write_text(f"FACTOR = {number}\n")
    (folder / "kw_parts" / "deep.py").write_text(f"SHIFT = {10 * number}\n")  # a package without __init__.py
    (folder / "kw_late.py").write_text(f"MORE = {100 * number}\n")
    return Task(name=folder.name, form="kernelbench", reference=SOURCE, imports=(str(folder),))


@pytest.fixture(autouse=True)
def _nobodys_turn() -> Iterator[None]:
    yield
    Neighbours(()).enter()


@pytest.fixture
def tasks(tmp_path: Path) -> tuple[Task, Task]:
    """One text, two projects."""
    return project(tmp_path / "one", 1.0), project(tmp_path / "two", 2.0)


def answer(reference: Reference) -> float:
    """What the reference makes of ones."""
    case = reference.task.timed_case()
    return float(reference.instance(case).eager([torch.ones(3)], None)[0][0])


def test_tasks_of_two_folders_are_two_tasks(tasks: tuple[Task, Task]) -> None:
    """Their text is the same, what it imports is not."""
    assert tasks[0].digest() != tasks[1].digest()


def test_each_reference_gets_the_files_beside_it(tasks: tuple[Task, Task]) -> None:
    """Those imported when it is called, too; nothing of the second is left for a third."""
    before = list(sys.path)
    one = Reference(tasks[0], "cpu")
    assert 111.0 == answer(one)
    two = Reference(tasks[1], "cpu")
    assert 222.0 == answer(two)
    kept = one.module.__dict__["FACTOR"]
    Neighbours(()).enter()
    assert not [name for name in sys.modules if name.startswith(("kw_layers", "kw_parts", "kw_late"))]
    assert (1.0, before) == (kept, sys.path)


def test_a_judge_that_holds_two_tasks_turns_from_one_to_the_other(tasks: tuple[Task, Task]) -> None:
    """A module is imported once for each: what it holds stays."""
    made: Any = Session.__new__(Session)
    made.device, made.state, made._refused = "cpu", None, None
    made.programs = SimpleNamespace(allow=lambda imports: None)
    references = [Reference(task, "cpu") for task in tasks]
    made._benches = OrderedDict(
        ((task.digest(), "cpu"), SimpleNamespace(reference=reference))
        for task, reference in zip(tasks, references, strict=True)
    )
    seen = set()
    for index in (0, 1, 0, 1):
        bench = made._bench({"task": wire.to_data(tasks[index]), "device": "cpu", "job": "judge"})
        assert (111.0, 222.0)[index] == answer(bench.reference)
        seen.add(id(sys.modules["kw_late"]))
    assert 2 == len(seen)


def test_proposers_see_the_files_of_the_task_they_look_at(tasks: tuple[Task, Task]) -> None:
    """One within another as well, as a rewritten program is looked at."""
    with loaded(tasks[0]) as outer:
        with loaded(tasks[1]) as inner:
            assert (1.0, 2.0) == (outer.FACTOR, inner.FACTOR)
            assert 222.0 == float(inner.Model()(torch.ones(3))[0])
        assert 111.0 == float(outer.Model()(torch.ones(3))[0])
    assert "kw_layers" not in sys.modules


def test_modules_from_elsewhere_stay_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may hold its environment, this package, and what was imported before it was looked at."""
    site = tmp_path / "env" / "site-packages"
    site.mkdir(parents=True)
    for place in (site / "kw_library.py", tmp_path / "kw_earlier.py", tmp_path / "kw_own.py"):
        place.write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(site), str(tmp_path)])
    monkeypatch.delitem(sys.modules, "kernelwright.model_server", raising=False)
    importlib.import_module("kw_earlier")
    source = Path(kernelwright.__file__).parents[1]
    with Neighbours((str(tmp_path), str(source))).turn():
        for name in ("kw_library", "kw_own", "kernelwright.model_server"):
            importlib.import_module(name)
    found = {
        name for name in ("kw_library", "kw_earlier", "kw_own", "kernelwright.model_server") if name in sys.modules
    }
    for name in ("kw_library", "kw_earlier"):
        monkeypatch.delitem(sys.modules, name)
    assert {"kw_library", "kw_earlier", "kernelwright.model_server"} == found


def test_modules_of_a_task_lie_in_a_folder_of_their_own_byte_for_byte(tmp_path: Path) -> None:
    """One folder per content, never written twice, readable by programs of other users; none for no modules."""
    files = (("kw_a.py", "A = 1\r\n"), ("kw_pack/deep/b.py", "B = 2\n"))
    (folder,) = placed(files, tmp_path / "new" / "root")
    assert [b"A = 1\r\n", b"B = 2\n"] == [(Path(folder) / name).read_bytes() for name, _ in files]
    assert {0o755} == {path.stat().st_mode & 0o777 for path in (Path(folder), Path(folder) / "kw_pack" / "deep")}
    before = (Path(folder) / "kw_a.py").stat().st_mtime_ns
    assert ((folder,), before) == (
        placed(files, tmp_path / "new" / "root"),
        (Path(folder) / "kw_a.py").stat().st_mtime_ns,
    )
    assert [Path(folder).name] == [path.name for path in (tmp_path / "new" / "root").iterdir()]
    assert (folder,) != placed((("kw_a.py", "A = 2\n"),), tmp_path / "new" / "root")
    assert () == placed((), tmp_path / "none") and not (tmp_path / "none").exists()
