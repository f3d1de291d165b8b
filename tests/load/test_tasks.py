# SPDX-License-Identifier: Apache-2.0
"""load/tasks.py: both forms of a task are read, every mistake gets its own message, nothing is executed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelwright.errors import (
    CandidateError,
    KernelwrightError,
    TaskDoesNotImport,
    TaskError,
    TaskIncomplete,
    TaskNotFound,
)
from kernelwright.load import load_candidate, load_task
from kernelwright.task import Case, Contract, Task

GOOD = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs(n=8):
    return [torch.randn(n)]

def get_init_inputs(n=8):
    return []
"""


def write(folder: Path, **files: str) -> Path:
    """A folder with files; ``task_toml`` is ``task.toml``."""
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


def test_a_kernelbench_file_is_read_unmodified(tmp_path: Path) -> None:
    """The reference is the file's text, the name its stem, and its hash is kept."""
    (tmp_path / "7_Add.py").write_text(GOOD)
    task = load_task(tmp_path / "7_Add.py")
    assert ("7_Add", "kernelbench", GOOD, "Model") == (task.name, task.form, task.reference, task.entry)
    assert ((Case(name="main", timed=True),), Contract()) == (task.cases, task.contract)
    assert ["7_Add.py"] == [name for name, _ in task.raw]


@pytest.mark.parametrize(
    "cookie", ["# -*- coding: latin-1 -*-", "#!/usr/bin/python\n# vim: set fileencoding=latin-1 :"]
)
def test_a_file_is_read_by_the_encoding_that_it_declares(tmp_path: Path, cookie: str) -> None:
    """It is kept as UTF-8 and says so, or the judge's copy of it would be read wrongly."""
    text = f"{cookie}\n\n# coding=latin-1, the same in a later line\nNAME = 'caf\xe9'\n"
    for name, entry in (("t.py", "Model"), ("new.py", "ModelNew")):
        (tmp_path / name).write_bytes((text + GOOD.replace("Model", entry)).encode("latin-1"))
    task = load_task(tmp_path / "t.py")
    candidate = load_candidate(tmp_path / "new.py", task)
    for kept in (task.reference, dict(candidate.sources)["new.py"]):
        assert kept.startswith(text.replace("latin-1", "utf-8", 1))
        made: dict[str, str] = {}
        exec(compile(kept.partition("import torch")[0].encode(), "kept", "exec"), made)  # noqa: S102
        assert "caf\xe9" == made["NAME"]


def test_an_encoding_that_nobody_knows_is_named(tmp_path: Path) -> None:
    """And no traceback."""
    (tmp_path / "t.py").write_text("# coding: klingon\n" + GOOD)
    with pytest.raises(TaskDoesNotImport, match="klingon"):
        load_task(tmp_path / "t.py")
    with pytest.raises(CandidateError, match="klingon"):
        load_candidate(tmp_path / "t.py", Task(name="t", form="kernelbench", reference=GOOD))


def test_reading_a_task_executes_nothing(tmp_path: Path) -> None:
    """A file that would exit, print or write when imported is still just text here."""
    trap = GOOD + f"\nopen({str(tmp_path / 'trap')!r}, 'w')\nraise SystemExit\n"
    (tmp_path / "t.py").write_text(trap)
    assert trap == load_task(tmp_path / "t.py").reference
    assert not (tmp_path / "trap").exists()


def test_names_may_be_bound_by_import_assignment_or_under_if(tmp_path: Path) -> None:
    """What matters is that the module has them."""
    text = "from here import get_inputs\nif True:\n    class Model: pass\nget_init_inputs = list\n"
    (tmp_path / "t.py").write_text(text)
    assert text == load_task(tmp_path / "t.py").reference


def test_a_module_beside_the_file_is_part_of_the_task_only_when_imported(tmp_path: Path) -> None:
    """What nobody imports could shadow a library."""
    (tmp_path / "parts.py").write_text("x = 1\n")
    (tmp_path / "a.py").write_text(GOOD)
    (tmp_path / "b.py").write_text("import parts\n" + GOOD)
    assert () == load_task(tmp_path / "a.py").beside
    assert (("parts.py", "x = 1\n"),) == load_task(tmp_path / "b.py").beside


TOML = """
summary = "adds one"
[contract]
bits_lost = 2
layouts = ["contiguous", "transposed"]
index_outputs = [[0, 1]]
gradients = true
[[case]]
name = "small"
axes = { n = 3 }
[[case]]
name = "main"
device = "cpu"
timed = true
axes = { n = 64 }
[[case]]
name = "large"
device = "cuda"
timed = true
axes = { n = 4096 }
"""


def test_a_task_folder_gives_its_contract_and_the_cases_of_the_device(tmp_path: Path) -> None:
    """Cases for another kind of device are dropped, the others kept in order."""
    folder = tmp_path / "addone"
    folder.mkdir()
    write(folder, task_toml=TOML, reference_py=GOOD, decoys_py="class Zero: pass\n")
    task = load_task(folder)
    assert ("addone", "folder", "class Zero: pass\n") == (task.name, task.form, task.decoys)
    assert ["small", "main"] == [case.name for case in task.cases]
    assert Case(name="main", axes=(("n", 64),), timed=True) == task.timed_case()
    assert ["small", "large"] == [case.name for case in load_task(folder, "cuda:1").cases]
    contract = task.contract
    assert (2.0, ("contiguous", "transposed"), ((0, 1),), True) == (
        contract.bits_lost,
        contract.layouts,
        contract.index_outputs,
        contract.gradients,
    )
    assert task == load_task(folder / "task.toml")


def test_every_shipped_task_is_read() -> None:
    """All of tasks/, on both kinds of device, with exactly one timed case each."""
    places = sorted((Path(__file__).parents[2] / "tasks").rglob("task.toml"))
    assert places
    for place in places:
        for device in ("cpu", "cuda:0"):
            assert 1 == sum(case.timed for case in load_task(place.parent, device).cases), place


@pytest.mark.parametrize("name", ["Model", "get_inputs", "get_init_inputs"])
def test_a_missing_definition_is_named(tmp_path: Path, name: str) -> None:
    """The message says which of the three is missing."""
    (tmp_path / "t.py").write_text(GOOD.replace(name, "other"))
    with pytest.raises(TaskIncomplete, match=f"does not define {name}"):
        load_task(tmp_path / "t.py")


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("def f(:\n", TaskDoesNotImport, "line 1"),
        ("x = '\0'\n", TaskDoesNotImport, "null"),
        ("", TaskIncomplete, "Model"),
    ],
)
def test_a_file_that_is_no_python_says_where(
    tmp_path: Path, text: str, kind: type[KernelwrightError], words: str
) -> None:
    """Found by parsing, before any process starts."""
    (tmp_path / "t.py").write_text(text)
    with pytest.raises(kind, match=words):
        load_task(tmp_path / "t.py")


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    """A binary file with a .py name."""
    (tmp_path / "t.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskDoesNotImport):
        load_task(tmp_path / "t.py")


def test_the_mark_that_some_editors_write_first_is_no_part_of_a_file(tmp_path: Path) -> None:
    """Python imports such a file, so it is a task and a candidate."""
    (tmp_path / "t.py").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert GOOD == load_task(tmp_path / "t.py").reference
    (tmp_path / "c.py").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("Model", "ModelNew").encode())
    assert load_candidate(tmp_path / "c.py", load_task(tmp_path / "t.py")).entry.endswith("::ModelNew")


@pytest.mark.parametrize(
    "line",
    ["mutates = ['x']", "mutates = [true]", "as_drawn = [-1]", "aliases = [1]", "aliases = [[0, 1, 2]]",
     "index_outputs = [[0, -1]]", "layouts = []", "scales = []", "scales = [nan]", "scales = [1.0, 0]",
     "scales = [true]"],
)  # fmt: skip
def test_a_list_of_the_contract_that_means_nothing_is_refused_by_name(tmp_path: Path, line: str) -> None:
    """Before any process starts; an empty list would weaken the contract without a word."""
    folder = tmp_path / "t"
    folder.mkdir()
    write(folder, task_toml=f"[contract]\n{line}\n[[case]]\nname = 'm'\ntimed = true\n", reference_py=GOOD)
    with pytest.raises(TaskError, match=f"contract.{line.split()[0]}"):
        load_task(folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.py", "missing.py does not exist"),
        ("to_nothing.py", r"to_nothing.py: No such file .*\(a symbolic link\)"),
        ("to_itself.py", r"Too many levels of symbolic links \(a symbolic link\)"),
        ("a" * 5000, r"a{50}\.\.\.: File name too long"),
        ("a\0b.py", "null byte"),
    ],
)
def test_a_path_to_nothing_says_why(tmp_path: Path, name: str, words: str) -> None:
    """A link that leads nowhere is there to be seen; a name no system takes is no traceback."""
    (tmp_path / "to_nothing.py").symlink_to("nothing")
    (tmp_path / "to_itself.py").symlink_to("to_itself.py")
    with pytest.raises(TaskNotFound) as caught:
        load_task(tmp_path / name)
    assert re.search(words, caught.value.got), caught.value.got


def test_what_is_not_there_or_no_task_is_said_so(tmp_path: Path) -> None:
    """A missing file, a file of another kind, a folder without task.toml."""
    (tmp_path / "k.cu").write_text("")
    for path in (tmp_path / "missing.py", tmp_path / "k.cu", tmp_path):
        with pytest.raises(TaskNotFound):
            load_task(path)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("summary = ", "not valid TOML"),
        ("sumary = 'x'", "sumary"),
        ("[contract]\nbits = 2", r"contract\.bits"),
        ("[contract]\nbits_lost = nan", r"contract\.bits_lost is wrong"),
        ("[contract]\nbits_lost = -1", r"contract\.bits_lost is wrong"),
        ("[contract]\nbits_lost = 'two'", "a number"),
        ("[contract]\ngradients = 1", "true or false"),
        ("[contract]\nlayouts = ['sideways']", "sideways"),
        ("[contract]\nscales = ['1']", "numbers"),
        ("[[case]]\nname = 'a'\nsize = 3", r"case\[0\]\.size"),
        ("[[case]]\naxes = { n = 1.5 }", "whole number"),
        ("[[case]]\naxes = { n = true }", "whole number"),
        ("[[case]]\nname = 'a'\n[[case]]\nname = 'a'", "differ"),
        ("[[case]]\nname='a'\ntimed=true\n[[case]]\nname='b'\ntimed=true", "at most one timed"),
        ("case = 3", "a list"),
    ],
)
def test_a_mistake_in_task_toml_is_named_with_what_is_allowed(tmp_path: Path, toml: str, words: str) -> None:
    """An ignored key would be a contract that nobody enforces."""
    write(tmp_path, task_toml=toml, reference_py=GOOD)
    with pytest.raises(TaskError, match=words):
        load_task(tmp_path)
