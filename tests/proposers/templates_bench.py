# SPDX-License-Identifier: Apache-2.0
"""References written in a line, and their C++ candidates built and loaded: what the tests of templates share."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelwright.candidate import Candidate
from kernelwright.proposers import Request
from kernelwright.proposers.templates import TemplatesProposer
from kernelwright.task import Task

FLAGS = "-O1 -march=native -fopenmp -shared -fPIC -std=c++20 -fno-fast-math".split()
PROPOSER = TemplatesProposer()


def reference(forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> str:
    """Source of a KernelBench-form file from its few lines."""
    body = "\n".join(f"        {line}" for line in forward.splitlines())
    setup = "\n".join(f"        {line}" for line in init.splitlines())
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n{setup}\n\n"
        f"    def forward(self, {arguments}):\n{body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def request(source: str, device: str = "cpu") -> Request:
    """A request for that reference."""
    return Request(task=Task(name="t", form="kernelbench", reference=source), device=device, machine=None)


def propose(source: str, **values: int | float | str | bool) -> Candidate | None:
    """The first candidate of the reference, or None where no structure applies."""
    asked = request(source)
    found = PROPOSER.structures(asked)
    return PROPOSER.render(asked, found[0].name, values) if found else None


@functools.cache
def folder() -> Path:
    """One folder of built candidates for the test run."""
    return Path(tempfile.mkdtemp(prefix="kernelwright-templates-"))


def load(candidate: Candidate) -> ModuleType:
    """Build and import a candidate: its ``Model`` is the reference, its ``ModelNew`` the replacement."""
    home = folder() / candidate.digest()[:16]
    home.mkdir(exist_ok=True)
    for name, text in candidate.sources:
        (home / name).write_text(text)
        if name.endswith(".cpp"):
            built = home / name.replace(".cpp", ".so")
            subprocess.run(["g++", *FLAGS, str(home / name), "-o", str(built)], check=True, capture_output=True)
    spec = importlib.util.spec_from_file_location(f"candidate_{candidate.digest()[:16]}", home / "optimized.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pair(module: ModuleType) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Reference and replacement with equal weights, in eval mode."""
    torch.manual_seed(3)
    reference_module = module.Model().eval()
    replacement = module.ModelNew().eval()
    replacement.load_state_dict(reference_module.state_dict(), strict=True)
    return reference_module, replacement


def leaves(result: Any) -> list[torch.Tensor]:
    """Output tensors in order."""
    return [result] if isinstance(result, torch.Tensor) else list(result)


def double(value: Any) -> Any:
    """A floating tensor in float64; anything else as it is."""
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def error_ratios(module: ModuleType, inputs: list[Any]) -> list[float]:
    """Per output: the replacement's RMS error against float64 over the reference's, floored at a quarter ulp."""
    old, new = pair(module)
    with torch.no_grad():
        assert new._kw_ready(tuple(inputs))
        got, eager = leaves(new(*inputs)), leaves(old(*inputs))
        exact = leaves(old.double()(*[double(x) for x in inputs]))
    ratios = []
    for mine, theirs, truth in zip(got, eager, exact, strict=True):
        assert theirs.shape == mine.shape
        assert theirs.dtype == mine.dtype
        if not mine.is_floating_point():
            ratios.append(0.0 if torch.equal(mine, theirs) else float("inf"))
            continue
        assert torch.equal(torch.isfinite(mine), torch.isfinite(theirs))
        here = torch.isfinite(truth) & torch.isfinite(theirs)
        floor = float(truth[here].square().mean().sqrt()) * 2.0**-26
        mine_rms = float((mine.double() - truth)[here].square().mean().sqrt())
        theirs_rms = float((theirs.double() - truth)[here].square().mean().sqrt())
        ratios.append(mine_rms / max(theirs_rms, floor, 1e-300))
    return ratios
