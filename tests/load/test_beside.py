# SPDX-License-Identifier: Apache-2.0
"""load/beside.py: modules that a reference imports from beside it are part of the task; its decoys never are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kernelwright.errors import TaskError
from kernelwright.load import load_task
from kernelwright.load.beside import MOST_BYTES

REFERENCE = """import torch
from kw_helper import scale
import kw_parts.deep

class Model(torch.nn.Module):
    def forward(self, x):
        return scale(x) + kw_parts.deep.SHIFT

def get_inputs():
    return [torch.randn(8)]

def get_init_inputs():
    return []
"""
MODULES = {
    "kw_helper.py": "from kw_number import NUMBER\r\n\r\n\r\ndef scale(x):\r\n    return x * NUMBER\r\n",
    "kw_number.py": "NUMBER = 3\n",
    "kw_parts/deep.py": "SHIFT = 1\n",
    "kw_parts/inner/__init__.py": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task folder whose reference imports a module, which imports another, and a package."""
    texts = {**MODULES, "reference.py": REFERENCE, "task.toml": "", "decoys.py": "", "kw_unused.py": "U = 1\n"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "kw_parts" / "notes.txt").write_text("not a module")
    return tmp_path


def test_modules_are_part_of_the_task_however_deep_and_nothing_else_is(folder: Path) -> None:
    """With their line ends, for they are exported byte for byte; and no folder is left to be read."""
    task = load_task(folder)
    assert (MODULES, ()) == (dict(task.beside), task.imports)
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in MODULES.items()}
    assert hashes.items() <= dict(task.raw).items()
    assert {*MODULES, "reference.py", "task.toml", "decoys.py"} == {name for name, _ in task.raw}


def test_the_task_is_another_one_when_a_module_of_a_module_changes(folder: Path) -> None:
    """Else a run would go on with verdicts on another program."""
    before = load_task(folder).digest()
    (folder / "kw_number.py").write_text("NUMBER = 4\n")
    assert before != load_task(folder).digest()


def test_a_file_of_the_one_file_form_keeps_its_modules_too(folder: Path) -> None:
    """Beside task folders or not."""
    (folder / "reference.py").rename(folder / "single.py")
    task = load_task(folder / "single.py")
    assert (MODULES, ()) == (dict(task.beside), task.imports)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("from pathlib import Path\nNUMBER = int(Path(__file__).with_name('n.txt').read_text())\n", "where it lies"),
        ("NUMBER = 3\n#" + "x" * MOST_BYTES, "over 200 files or 1 MiB"),
        ("# caf\xe9".encode("latin-1") + b"\nNUMBER = 3\n", "not UTF-8"),
    ],
)
def test_modules_that_need_their_folder_stay_there_where_programs_may_read_it(
    folder: Path, text: str | bytes, words: str
) -> None:
    """A folder with cases and decoys they may not: that is said before anything starts."""
    (folder / "kw_number.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TaskError, match=words) as caught:
        load_task(folder)
    assert "task.toml" in caught.value.expected and caught.value.what_next
    (folder / "task.toml").unlink()
    (folder / "reference.py").rename(folder / "single.py")
    task = load_task(folder / "single.py")
    assert ((), (str(folder),)) == (task.beside, task.imports)


def test_a_compiled_package_stays_where_it_lies(folder: Path) -> None:
    """Its files are no text."""
    (folder / "kw_parts" / "fast.so").write_bytes(b"\x7fELF")
    with pytest.raises(TaskError, match=r"fast\.so, which is compiled"):
        load_task(folder)


def test_a_reference_that_imports_its_decoys_is_refused(folder: Path) -> None:
    """Programs could read there what is known to be wrong, and so what is looked for."""
    (folder / "kw_number.py").write_text("import decoys\nNUMBER = 3\n")
    with pytest.raises(TaskError, match=r"decoys\.py"):
        load_task(folder)
