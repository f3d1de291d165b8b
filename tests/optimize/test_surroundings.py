# SPDX-License-Identifier: Apache-2.0
"""What prompts say of a task: every tensor, what is checked beyond it, the compiler; hidden sizes stay hidden."""

from __future__ import annotations

from typing import Any

import pytest

from kernelwright.optimize import surroundings
from kernelwright.task import Task
from kernelwright.testing import FakeWorker

TASK = Task(name="relu", form="kernelbench", reference="class Model: pass")
FACTS: dict[str, Any] = {
    "inputs": [{"name": "x", "shape": [4, 8], "stride": [1, 4], "dtype": "float32"}],
    "outputs": [{"name": "", "shape": [4], "stride": [1], "dtype": "float32"}],
    "parameters": [{"name": "weight", "shape": [8], "dtype": "bfloat16"}],
    "eager_us": 12345.6, "bound_us": 12.5, "cases": ["main"], "variants": ["as given", "scale 1000", "sparse"],
}  # fmt: skip


class Compiler(FakeWorker):
    """Answers a build with a command and the facts of its object."""

    def run(self, job: dict[str, Any], on_event: object = None) -> dict[str, Any]:
        """As the judge's job ``build``."""
        assert job["facts"]
        command = ["g++", "-O3", "-o", "{output}", "{source}"]
        return {"commands": {"probe.cpp": command}, "compiler": "g++ 12", "facts": {"machine_bits": 256.0}}


def described(**more: Any) -> dict[str, Any]:
    """The description of the task above."""
    return surroundings.describe(TASK, FACTS | more, "cpu", "cpp", Compiler(lambda _: 1.0), None)


def test_every_tensor_has_a_line() -> None:
    """Inputs with odd strides say so; a state without weights is said to be empty."""
    lines = described()["shapes"]
    wanted = ["input x: float32 [4, 8], strides [1, 4]", "output 0: float32 [4]", "state_dict weight: bfloat16 [8]"]
    assert wanted == lines
    assert "state_dict: empty" == described(parameters=[])["shapes"][-1]


def test_times_are_stated_without_exponents() -> None:
    """Eager's time and the bound, in microseconds a person reads at once."""
    assert "about 12346 us a call" in described()["eager"] and "by a first look" in described()["eager"]
    assert "takes 12.5 us" in described()["bound"]
    assert "" == described(eager_us=None)["eager"] == described(bound_us=None)["bound"]


@pytest.mark.parametrize(("cases", "words"), [(["main"], "may be relied on"), (["main", "hidden:rows=37"], "odd ones")])
def test_sizes_are_relied_on_only_where_no_others_are_checked(cases: list[str], words: str) -> None:
    """Variations are named; a hidden size is announced and not given away."""
    text = described(cases=cases)["cases"]
    assert words in text and "scale 1000, sparse" in text and "37" not in text and "as given" not in text


def test_the_command_is_the_judges_own() -> None:
    """As it compiles, with the file names a writer knows; vectors are as wide as the judge found."""
    found = described()
    assert ("g++ -O3 -o NAME.so NAME.cpp", 256) == (found["toolchain"], found["vector_bits"])
    assert "g++ 12" == surroundings.about(found).compiler
    assert {} == surroundings._toolchain("cuda:0", "triton", Compiler(lambda _: 1.0))
