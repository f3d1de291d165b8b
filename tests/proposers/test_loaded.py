# SPDX-License-Identifier: Apache-2.0
"""References as proposers see them: with their own imports, and as the file itself would be read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from templates_bench import request

from kernelwright.proposers.loaded import loaded
from kernelwright.proposers.rewrites.trace import trace
from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.ir import Fused
from kernelwright.proposers.templates.lower import lower
from kernelwright.task import Task

HELPED = """
import dataclasses
import torch
import shift_beside

@dataclasses.dataclass
class Size:
    rows: int = 3

class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        return shift_beside.shifted(x)

def get_inputs():
    return [torch.randn(Size().rows, 4)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A reference that imports a file beside it."""
    (tmp_path / "shift_beside.py").write_text("def shifted(x):\n    return x + 1\n")
    return Task(name="helped", form="kernelbench", reference=HELPED, imports=(str(tmp_path),))


def test_rewrites_see_what_a_reference_imports_from_its_folder(task: Task) -> None:
    """It is traced like any other."""
    assert "shift(leaf(x), 1.0)" in str(trace(task).root)


def test_annotations_are_what_the_file_says(task: Task) -> None:
    """A future statement of the file that executes it would make texts of them; nothing is left on the path."""
    before = list(sys.path)
    with loaded(task) as module:
        assert {"rows": int} == module.Size.__annotations__
    assert before == sys.path
    assert module.__name__ not in sys.modules


TWICE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y, more):
        return torch.sqrt(x * y) + more["z"]

def get_inputs():
    x = torch.rand(5, 4)
    return [x, x, {"z": x}]

def get_init_inputs():
    return []
"""


def test_a_tensor_that_is_given_twice_is_two_inputs() -> None:
    """torch.export reads one of them for all, and the judge gives them other values: no such program is right."""
    flat = TWICE.replace('more["z"]', "more").replace('{"z": x}', "x")
    assert all(f"leaf({name})" in str(trace(request(flat).task).root) for name in ("x", "y", "more"))
    fused = next(step for step in lower(capture(request(TWICE).task)).steps if isinstance(step, Fused))
    assert 3 == len(fused.inputs)
