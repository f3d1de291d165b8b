# SPDX-License-Identifier: Apache-2.0
"""One zygote for all tests that fork confined programs, and a way to write small candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kernelwright import sandbox
from kernelwright.judge import skeletons
from kernelwright.judge.buffers import CallPlan, TensorSpec
from kernelwright.judge.child import Zygote
from kernelwright.judge.measure import clock
from kernelwright.judge.program import Program

LIMITS = sandbox.Limits(seconds=20.0, memory_bytes=512 << 20, processes=64, file_bytes=1 << 20, output_bytes=1 << 16)


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """torch preloaded, shared by the whole run."""
    started = Zygote.start(clock=clock)
    yield started
    started.close()


@pytest.fixture
def program(zygote: Zygote, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """program(forward, init="", **limits): a loaded candidate with that body of ``forward(self, x)``."""
    made: list[Program] = []

    def make(
        forward: str, *, init: str = "", load: bool = True, head: str = "", execute: bool = False, **limits: float
    ) -> Program:
        folder = tmp_path / f"candidate{len(made)}"
        folder.mkdir()
        body = "\n".join("        " + line for line in forward.splitlines())
        start = "\n".join("        " + line for line in init.splitlines())
        (folder / "new.py").write_text(
            f"import torch\n{head}\nclass ModelNew(torch.nn.Module):\n    def __init__(self):\n"
            f"        super().__init__()\n{start}\n    def forward(self, x):\n{body}\n"
        )
        folder.chmod(0o755)
        given = {name: getattr(LIMITS, name) for name in LIMITS.__slots__} | limits
        one = zygote.fork(folder, device="cpu", limits=sandbox.Limits(**given), threads=1, execute=execute)
        made.append(one)
        if load:
            one.load("new.py::ModelNew")
        return one

    yield make
    for one in made:
        one.close()


@pytest.fixture
def plan() -> Callable[..., CallPlan]:
    """plan(shape, sets=, dtype=): one tensor in, one tensor of the same shape out."""

    def make(shape: tuple[int, ...] = (4,), *, sets: int = 2, dtype: torch.dtype = torch.float32) -> CallPlan:
        spec = TensorSpec.contiguous(shape, dtype)
        skeleton, _ = skeletons.flatten([torch.empty(0)])
        return CallPlan(arguments=skeleton, inputs=(spec,), results={"t": 0}, outputs=(spec,), sets=sets)

    return make
