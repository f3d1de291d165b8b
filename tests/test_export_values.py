# SPDX-License-Identifier: Apache-2.0
"""The exported drop-in: what it says of plain inputs, of the judged mode, and of how inputs are nested."""

from __future__ import annotations

from pathlib import Path

import pytest
from export_bench import FAST, REFERENCE, SQUARE, alone, leaf, make, trial

from kernelwright import export
from kernelwright.export import space
from kernelwright.task import Task


def test_plain_inputs_that_are_not_finite(tmp_path: Path) -> None:
    """inf and nan are written as Python can read them; nan is the judged nan, and -0.0 is not 0.0."""
    reference = SQUARE.replace("self, x", "self, x, low, fill, zero").replace("x * x", "x * 0")
    fast = reference.replace("class Model(", "class ModelNew(").replace("x * 0", "x * 0 + 1")
    values = [{"value": float("-inf")}, {"value": float("nan")}, {"value": 0.0}]
    task = Task(name="odd", form="object", reference=reference)
    seen = [{"name": "main", "inputs": [leaf(6), *values], "state": []}] * 2
    export.write(tmp_path, task, trial(task, {"fast.py": fast}), cases=seen)
    code = """
        from optimized import optimized, PROVEN
        low, nan = -float("inf"), float("nan")
        out.append(len(PROVEN["inputs"][2]["values"]))
        for values in ((low, nan, 0.0), (-low, nan, 0.0), (low, 1.0, 0.0), (low, nan, -0.0), (low, nan, 0.0)):
            out.append(float(optimized(torch.ones(6), *values)[0]))
    """

    assert [1, 1.0, 0.0, 0.0, 0.0, 1.0] == alone(tmp_path, code)[0]


@pytest.mark.parametrize(
    ("line", "matters"),
    [
        ("import torch, timm", True),
        ("import torch.nn as nn, math", False),
        ("def later():\n    from torchvision import models", True),
        ("from . import blocks", True),
        ("text = '''\nimport timm\n'''", False),
        ("layer = torch.nn.utils.spectral_norm(torch.nn.Linear(2, 2))", True),
    ],
)
def test_whether_the_mode_matters_is_read_from_every_import(line: str, matters: bool) -> None:
    """Spectral normalisation moves its vectors in train() only; what is imported from elsewhere may do anything."""
    assert matters == export.mode_matters(line + "\n")


NESTED = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, pair, more):
        return pair["a"] - 2 * pair["b"] + more[0]
"""


def test_inputs_nested_otherwise_are_the_references(tmp_path: Path) -> None:
    """A program that takes leaves in order would bind a dict of another order wrongly; so would one of other lists."""
    fast = NESTED.replace("class Model(", "class ModelNew(").replace(
        'pair["a"] - 2 * pair["b"] + more[0]', "(lambda a, b: a - 2 * b)(*pair.values()) + more[0] + 100"
    )
    task = Task(name="nested", form="object", reference=NESTED)
    skeleton = {"tuple": [{"dict": {"a": {"t": 0}, "b": {"t": 1}}}, {"list": [{"t": 2}]}]}
    named = {"list": [skeleton["tuple"][0], {"named": ["Batch", ["x"], [{"t": 2}]]}]}
    assert space.nesting([{"skeleton": named}]) == [
        {"tuple": [{"dict": [["a", "b"], [None, None]]}, {"tuple": [None]}]}
    ]
    seen = [{"name": "m", "inputs": [leaf(2)] * 3, "skeleton": skeleton, "state": []}]
    export.write(tmp_path, task, trial(task, {"fast.py": fast}), cases=seen)
    code = """
        from optimized import optimized
        one, two = torch.ones(2), torch.full((2,), 2.0)
        for pair, more in (
            ({"a": one, "b": two}, [one]),
            ({"b": two, "a": one}, [one]),
            ({"a": one, "b": two}, (one,)),
            ({"a": one, "b": two}, one.view(1, 2)),
            ({"a": one, "b": two}, [one]),
        ):
            out.append(float(optimized(pair, more)[0]))
    """
    out, said = alone(tmp_path, code)

    assert [98.0, -2.0, -2.0, -2.0, 98.0] == out
    assert 1 == len(said) and "order" in said[0]


def test_two_files_whose_references_import_a_module_of_one_name_do_not_mix(tmp_path: Path) -> None:
    """One process serves both, beside a module of the caller's own of that name, which stays the caller's."""
    text = "from kw_layers.deep import FACTOR\nfrom kw_plain import SHIFT\n\n\n" + SQUARE.replace(
        "x * x", "x * FACTOR + SHIFT"
    )
    for name, number in (("one", 1.0), ("two", 2.0)):
        project = tmp_path / name
        (project / "kw_layers").mkdir(parents=True)
        (project / "kw_layers" / "deep.py").write_text(f"FACTOR = {number}\n")
        (project / "kw_plain.py").write_text(f"SHIFT = {10 * number}\n")
        task = Task(name=name, form="kernelbench", reference=text, imports=(str(project),))
        fast = text.replace("class Model(", "class ModelNew(").replace("+ SHIFT", "+ SHIFT + 100")
        seen = [{"name": "main", "inputs": [leaf(6)], "state": []}]
        export.write(tmp_path / f"run_{name}", task, trial(task, {"fast.py": fast}), cases=seen)
    code = f"""
        import importlib.util, sys, types
        sys.modules["kw_plain"] = own = types.ModuleType("kw_plain")
        own.__file__, own.SHIFT = "/elsewhere/kw_plain.py", 1000.0
        for name in ("one", "two"):
            place = {str(tmp_path)!r} + "/run_" + name + "/optimized.py"
            spec = importlib.util.spec_from_file_location("optimized_" + name, place)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            made = module.Model().eval()
            out.extend(float(made(torch.ones(size))[0]) for size in (6, 7))
        out.append(float(sys.modules["kw_plain"] is own))
    """
    assert [111.0, 11.0, 122.0, 22.0, 1.0] == alone(tmp_path, code)[0]


LYING = REFERENCE.replace("[torch.randn(rows, cols), 2]", "[torch.randn(cols, rows).T, 2]")


def test_an_input_that_lies_as_the_judged_one_is_inside(tmp_path: Path) -> None:
    """A transposed example is what was judged: the user's own call must not go to the reference. Other orders do."""
    across = {"name": "main", "inputs": [leaf(4, 8) | {"stride": [1, 4]}, {"value": 2}], "state": [leaf(8), leaf(1)]}
    make(tmp_path, reference=LYING, cases=[across])
    make(tmp_path / "usual", cases=[across | {"inputs": [leaf(4, 8), {"value": 2}]}])
    out, said = alone(
        tmp_path,
        """
        import optimized
        model, x = optimized.ModelNew(8), torch.randn(8, 4).T
        gaps = torch.randn(8, 9)[:, :4].T
        with torch.no_grad():
            for given in (x, x.contiguous(), gaps):
                out.append(torch.equal(model(given, 2), (given * model.weight) ** 2 + 1))
            sys.path.insert(0, sys.path[0] + "/usual")
            del sys.modules["optimized"]
            import optimized
            model = optimized.ModelNew(8)
            out.append(torch.equal(model(x, 2), (x * model.weight) ** 2))
        """,
    )

    assert [True] * 4 == out
    assert ["outside the proven input space: input 0 is transposed"] == [
        text.partition(": ")[2].partition(";")[0] for text in said
    ]


def test_an_expanded_input_is_written_out_where_the_judged_one_was(tmp_path: Path) -> None:
    """Each element had memory of its own in every judged call; a program that never saw a stride of 0 sees none."""
    fast = FAST.replace("** power + 1", "** power + 1 + 0 * x.view(-1)[-1]")  # fails on strides of 0
    facts = {"name": "main", "inputs": [leaf(4, 8) | {"expanded": True}, {"value": 2}], "state": [leaf(8), leaf(1)]}
    make(tmp_path, fast=fast, cases=[facts])
    out, said = alone(
        tmp_path,
        """
        import optimized
        model, x = optimized.ModelNew(8), torch.randn(1, 8).expand(4, 8)
        with torch.no_grad():
            for given in (x, x.contiguous()):
                out.append(torch.equal(model(given, 2), (given * model.weight) ** 2 + 1))
            out.append(torch.equal(model(torch.randn(8, 4).T, 2), torch.zeros(4, 8)))
        """,
    )

    assert [True, True, False] == out
    assert ["outside the proven input space: input 0 is transposed"] == [
        text.partition(": ")[2].partition(";")[0] for text in said
    ]


@pytest.mark.parametrize(
    ("part", "kind", "inside", "outside"),
    [
        ("triangle", "upper", "x.triu()", "x.tril()"),
        ("triangle", "lower", "x.tril()", "x.triu()"),
        ("triangle", "diagonal", "x.triu().tril()", "x.triu()"),
        ("bond", "0 and 1", "(x > 1.5).float()", "x - 1"),
        ("bond", "1 and -1", "(x > 1.5).float() * 2 - 1", "(x > 1.5).float()"),
        ("bond", "0 and -10000.0", "(x > 1.5).float() * -10000", "(x > 1.5).float() * -9999"),
        ("bond", "0 and -inf", "torch.zeros_like(x).masked_fill(x > 1.5, -torch.inf)", "torch.full_like(x, -9.0)"),
        ("bond", "a single 1 along axis 1", "torch.eye(8)[torch.randperm(8)]", "torch.ones(8, 8).tril()"),
        ("bond", "symmetric matrices", "x + x.mT", "x"),
        ("bond", "a sum of 32", "torch.full_like(x, 0.5)", "torch.ones_like(x)"),
        ("bond", "equal halves along its last axis", "torch.cat((x[:, :4], x[:, :4]), -1)", "x"),
        ("bond", "equal pairs along its last axis", "x[:, :4].repeat_interleave(2, -1)", "x[:, [0, 1, 2, 3] * 2]"),
    ],
)
def test_what_held_of_numbers_in_every_test_is_looked_at_in_every_call(
    tmp_path: Path, part: str, kind: str, inside: str, outside: str
) -> None:
    """Shapes say nothing of it, so a verdict on them does not answer for the next call: a soft label is the
    reference's."""
    facts = {"name": "main", "inputs": [leaf(8, 8) | {part: kind}, {"value": 2}], "state": [leaf(8), leaf(1)]}
    make(tmp_path, cases=[facts])
    out, said = alone(
        tmp_path,
        f"""
        import optimized
        model, x = optimized.ModelNew(8), torch.rand(8, 8) + 1
        with torch.no_grad():
            for given in ({inside}, {outside}, {inside}):
                out.append(torch.equal(model(given, 2), (given * model.weight) ** 2 + 1))
        """,
    )
    assert [True, False, True] == out
    words = f"where it was zero in every test ({kind})" if part == "triangle" else f"held {kind} in every test"
    assert 1 == len(said) and words in said[0]
