# SPDX-License-Identifier: Apache-2.0
"""The shipped examples and task folders: they run, agree with each other, and their decoys are wrong."""

from __future__ import annotations

import ast
import inspect
import tomllib
import types
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.task import Contract

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TASKS = sorted(path.parent for path in ROOT.glob("tasks/*/*/task.toml"))
CASE_KEYS = {"name", "timed", "axes", "device"}


def load(path: Path) -> types.ModuleType:
    """The file as a fresh module."""
    module = types.ModuleType(path.stem)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def cases(folder: Path) -> dict[str, dict[str, int]]:
    """Case name to axes."""
    data = tomllib.loads((folder / "task.toml").read_text())
    return {case["name"]: case.get("axes", {}) for case in data["case"]}


def programs(module: types.ModuleType) -> list[type[nn.Module]]:
    """Public nn.Module classes defined in a file."""
    return [
        cls
        for name, cls in vars(module).items()
        if isinstance(cls, type) and issubclass(cls, nn.Module) and not name.startswith("_")
    ]


def same(got: object, expected: object) -> bool:
    """Close in float32 terms, with the same structure; what a decoy must fail on some input."""
    if isinstance(expected, tuple):
        return isinstance(got, tuple) and all(same(a, b) for a, b in zip(got, expected, strict=True))
    assert isinstance(got, torch.Tensor) and isinstance(expected, torch.Tensor)
    if got.shape != expected.shape or not torch.equal(got.isfinite(), expected.isfinite()):
        return False
    error = (got.double() - expected.double()).square().mean().sqrt()
    return bool(error <= 1e-5 * expected.double().square().mean().sqrt())


def test_there_are_the_ten_promised_examples() -> None:
    """One file per example, and one task folder for each."""
    expected = [
        "cross_entropy",
        "diag_matmul",
        "gelu_chain",
        "layernorm_residual",
        "linear_gelu",
        "matmul_plain",
        "mlp_block",
        "rmsnorm",
        "softmax",
        "sum_matmul",
    ]

    assert expected == [path.stem for path in EXAMPLES]
    assert expected == sorted(folder.name for folder in TASKS)


@pytest.mark.parametrize("folder", TASKS, ids=lambda p: p.name)
def test_a_task_folder_holds_the_example_byte_for_byte(folder: Path) -> None:
    """The raw file and the task folder ask the same question."""
    assert (ROOT / "examples" / f"{folder.name}.py").read_bytes() == (folder / "reference.py").read_bytes()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_imports_only_torch_and_asks_for_no_device(path: Path) -> None:
    """The same text means the same inputs on every machine."""
    roots = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).split(".")[0])

    assert {"torch"} == roots
    assert "cuda" not in path.read_text()


@pytest.mark.parametrize("folder", TASKS, ids=lambda p: p.name)
def test_a_task_file_is_well_formed(folder: Path) -> None:
    """Known keys, contract fields that exist, one timed case per device, axes that the reference accepts."""
    data = tomllib.loads((folder / "task.toml").read_text())
    reference = load(folder / "reference.py")
    timed = [case["device"] for case in data["case"] if case.get("timed")]

    assert {"summary", "case"} <= set(data) <= {"summary", "case", "contract", "entry"}
    assert set(data.get("contract", {})) <= {name for name in Contract.__dataclass_fields__}
    assert ["cpu", "cuda"] == sorted(timed)
    for case in data["case"]:
        assert set(case) <= CASE_KEYS
        for function in (reference.get_inputs, reference.get_init_inputs):
            assert set(case["axes"]) == set(inspect.signature(function).parameters)
    for device in ("cpu", "cuda"):
        names = [case["name"] for case in data["case"] if case.get("device", device) == device]
        assert len(names) == len(set(names)) >= 4
    defaults = {name: p.default for name, p in inspect.signature(reference.get_inputs).parameters.items()}
    assert defaults == cases(folder)["main"]


@pytest.mark.parametrize("folder", TASKS, ids=lambda p: p.name)
def test_every_small_case_runs(folder: Path) -> None:
    """The hidden shapes are legal inputs with finite outputs."""
    reference = load(folder / "reference.py")
    for name, axes in cases(folder).items():
        if name in ("main", "large") or "inner" in axes and max(axes.values()) > 4096 or name.endswith("_large"):
            continue
        model = reference.Model(*reference.get_init_inputs(**axes))
        with torch.no_grad():
            out = model(*reference.get_inputs(**axes))
        for leaf in out if isinstance(out, tuple) else (out,):
            assert leaf.isfinite().all(), name


@pytest.mark.parametrize("folder", TASKS, ids=lambda p: p.name)
def test_every_decoy_is_wrong_somewhere_and_fits_the_reference(folder: Path) -> None:
    """A decoy takes the reference's arguments and weights, and differs on some scale or after new weights."""
    reference, decoys = load(folder / "reference.py"), load(folder / "decoys.py")
    axes = cases(folder)["odd"]
    assert len(programs(decoys)) >= 3
    for decoy in programs(decoys):
        torch.manual_seed(0)
        right, wrong = (cls(*reference.get_init_inputs(**axes)) for cls in (reference.Model, decoy))
        state = {name: torch.randn_like(value) + 0.5 for name, value in right.state_dict().items()}
        right.load_state_dict(state)
        wrong.load_state_dict(state)
        agreements = []
        for scale in (1.0, 1e-3, 1e3):
            inputs = [x * scale if x.is_floating_point() else x for x in reference.get_inputs(**axes)]
            with torch.no_grad():
                agreements.append(same(wrong(*inputs), right(*inputs)))
        assert not all(agreements), decoy.__name__


def test_the_large_sizes_name_tasks_and_axes_that_exist() -> None:
    """Every row of the H200 list can be bound, and begins with the task's own large case."""
    rows = tomllib.loads((ROOT / "benchmarks" / "tasks_h200.toml").read_text())["task"]

    assert sorted(str(folder.relative_to(ROOT)) for folder in TASKS) == sorted(row["folder"] for row in rows)
    for row in rows:
        known = cases(ROOT / row["folder"])
        assert known["large"] == row["axes"][0]
        assert all(set(axes) == set(known["main"]) for axes in row["axes"])
