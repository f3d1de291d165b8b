# SPDX-License-Identifier: Apache-2.0
"""Rows of tables on the CPU: embeddings with what reads them in one kernel, and what stays torch's."""

from __future__ import annotations

import pytest
import torch
from templates_bench import error_ratios, load, propose, reference, request

from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.ir import Call, Fused, Program
from kernelwright.proposers.templates.lower import lower

TABLE = "self.w = nn.Parameter(torch.randn(50, 33))"
CASES = {
    "chain": ("return self.e(i) * 3 + 1", "torch.randint(0, 50, (7, 9))", "self.e = nn.Embedding(50, 33)"),
    "normalised": ("return self.n(self.e(i) + self.k(t))", "torch.randint(0, 50, (7, 9)), torch.randint(0, 2, (7, 9))",
                   "self.e, self.k, self.n = nn.Embedding(50, 33), nn.Embedding(2, 33), nn.LayerNorm(33)"),
    "places": ("return self.e(i) + self.k(t)", "torch.randint(0, 50, (7, 9)), torch.arange(9)",
               "self.e, self.k = nn.Embedding(50, 33), nn.Embedding(9, 33)"),
    "two of one table": ("return self.w[i] * self.w.index_select(0, t)",
                         "torch.randint(0, 50, (70,)), torch.randint(0, 50, (70,))", TABLE),
    "from the end": ("return torch.relu(self.w[i])", "torch.randint(-50, 50, (70,))", TABLE),
    "cubes": ("return self.w[i].abs()", "torch.randint(0, 50, (70,))", "self.w = nn.Parameter(torch.randn(50, 3, 11))"),
    "of a result": ("h = torch.tanh(self.w * 2)\nreturn h[i] + 1", "torch.randint(0, 50, (50,))", TABLE),
    "computed indices": ("return self.w[i * 2 + 1] + 1", "torch.randint(0, 20, (70,))", TABLE),
    "sum of rows": ("return self.e(i).sum(1)", "torch.randint(0, 50, (70, 9))", "self.e = nn.Embedding(50, 33)"),
    "mean of many rows": ("return torch.relu(self.e(i).mean(1) + 1)", "torch.randint(0, 50, (70, 100))",
                          "self.e = nn.Embedding(50, 33)"),
    "normalised mean": ("return self.n(self.e(i).mean(-2))", "torch.randint(0, 50, (7, 5, 41))",
                        "self.e, self.n = nn.Embedding(50, 33), nn.LayerNorm(33)"),
    "float64": ("return self.w[i] * 3", "torch.randint(0, 50, (70,))", TABLE.replace("33)", "33).double()")),
    "bfloat16": ("return self.w[i] * 3", "torch.randint(0, 50, (70,))", TABLE.replace("33)", "33).bfloat16()")),
}  # fmt: skip


def _names(inputs: str) -> str:
    return "i, t" if "), torch" in inputs else "i"


def _program(forward: str, inputs: str, init: str) -> Program:
    return lower(capture(request(reference(forward, inputs, init, _names(inputs))).task))


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_that_the_indices_name(name: str) -> None:
    """Another row, or another column of it, would be as far off as the values are large."""
    forward, inputs, init = CASES[name]
    candidate = propose(reference(forward, inputs, init, _names(inputs)))
    assert candidate is not None
    module = load(candidate)
    torch.manual_seed(5)
    assert max(error_ratios(module, module.get_inputs())) <= 1.2


@pytest.mark.parametrize(
    "name", ["chain", "normalised", "places", "two of one table", "sum of rows", "normalised mean"]
)
def test_a_table_is_read_by_the_kernel_that_uses_it(name: str) -> None:
    """The rows taken are not written and read again."""
    (step,) = _program(*CASES[name]).steps
    assert isinstance(step, Fused)


@pytest.mark.parametrize(
    "forward",
    [
        "return self.w[:, i] + 1",
        "return self.w.index_select(1, i) + 1",
        "return self.w[i, i] + 1",
        "return self.w[i > 3] + 1",
        "return self.c[i] + 1",
        "return F.embedding(i.view(5, 10), self.c).sum(1)",
    ],
)
def test_other_ways_to_index_stay_torchs(forward: str) -> None:
    """Columns, several indices, masks (whose result has a size of its own), tables of integers."""
    init = f"{TABLE}\nself.register_buffer('c', torch.arange(50 * 33).view(50, 33))"
    inputs = "torch.randint(0, 30, (50,))"
    candidate = propose(reference(forward, inputs, init, "i"))
    if "> 3" in forward:
        assert candidate is None
        return
    steps = _program(forward, inputs, init).steps
    assert [step.target for step in steps if isinstance(step, Call) and not step.view]
