# SPDX-License-Identifier: Apache-2.0
"""How a graph is captured and cut into regions: kinds, splits, sizes left open, what stays a torch call."""

from __future__ import annotations

import pytest
from templates_bench import reference, request

from kernelwright.proposers.templates.graph import NotCaptured, capture
from kernelwright.proposers.templates.ir import Call, Fused, Program, matmul_epilogues
from kernelwright.proposers.templates.lower import lower
from kernelwright.proposers.templates.triton_matmul import pairs
from kernelwright.task import Case, Task


def program(forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> Program:
    """The program of a reference."""
    return lower(capture(request(reference(forward, inputs, init, arguments)).task))


def kinds(fused: Fused) -> dict[str, str]:
    """Input tensor name to the kind it is read as."""
    return {fused.inputs[v.index]: v.kind for v in fused.region.values if v.op == "input"}


def test_a_normalisation_is_one_region_whatever_the_number_of_rows() -> None:
    """Rows stay a symbol; the columns are bound by the weight."""
    found = program("return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w",
                    "torch.randn(6, 10)", "self.w = nn.Parameter(torch.randn(10))")  # fmt: skip
    (fused,) = found.steps
    assert isinstance(fused, Fused)
    assert {"a0": "full", "p0": "column"} == kinds(fused)
    ((symbol, binding),) = found.symbols
    assert ("a0.shape[0]", symbol, "10", (6, 10, 1)) == (binding, fused.rows, fused.cols, fused.sample)
    assert "a0.shape[1] == 10" in found.guards


@pytest.mark.parametrize(
    "init,kind",
    [("torch.randn(8, 1, 1)", "cycle"), ("torch.randn(5, 7)", "column"), ("torch.randn(1)", "scalar")],
)
def test_an_operand_is_read_by_the_axes_it_has(init: str, kind: str) -> None:
    """Per channel, per position, or once."""
    (fused,) = program("return torch.tanh(x) * self.w", "torch.randn(3, 8, 5, 7)",
                       f"self.w = nn.Parameter({init})").steps  # fmt: skip
    assert isinstance(fused, Fused)
    assert {"a0": "full", "p0": kind} == kinds(fused)


def test_a_reduction_over_a_middle_axis_is_strided() -> None:
    """Rows are (outer, inner) pairs; nothing is transposed."""
    (fused,) = program("return torch.softmax(x, 1)", "torch.randn(3, 8, 5)").steps
    assert isinstance(fused, Fused)
    assert fused.region.strided
    assert (15, 8, 5) == fused.sample


def test_a_square_matrix_does_not_confuse_rows_with_columns() -> None:
    """A row sum without its dimension, added to the matrix, runs along the columns: not the same region."""
    steps = program("return x + x.sum(-1)", "torch.randn(9, 9)").steps
    assert 2 == len(steps)
    assert isinstance(steps[1], Fused)
    assert "column" in kinds(steps[1]).values()


def test_a_size_that_enters_the_arithmetic_is_known_only_at_the_call() -> None:
    """No constant of the traced shape is baked in."""
    found = program("return x.sum(-1) / x.shape[1] + x.shape[0]", "torch.randn(6, 10)")
    (fused,) = found.steps
    assert isinstance(fused, Fused)
    symbols = {binding: symbol for symbol, binding in found.symbols}
    assert {f"float({symbols['a0.shape[0]']})", f"float({symbols['a0.shape[1]']})"} == set(fused.scalars)


def test_a_number_that_forward_writes_out_joins_the_region_it_is_used_in() -> None:
    """``torch.tensor(0.5)`` is a constant of the kernel; a tensor of several numbers is made and read."""
    found = program("y = torch.min(x, torch.tensor(0.5, device=x.device))\nreturn y * torch.tensor([1.0, 2.0, 4.0])",
                    "torch.randn(5, 3)")  # fmt: skip
    made, fused = found.steps
    assert isinstance(made, Call) and isinstance(fused, Fused)
    assert "torch.tensor([1.0, 2.0, 4.0], dtype=torch.float32)" == made.expression
    assert {"a0": "full", made.output.name: "column"} == kinds(fused)
    assert [0.5] == [v.number for v in fused.region.values if v.op == "const"]


def test_torch_gets_a_tensor_where_forward_wrote_one() -> None:
    """An operation that stays torch's own takes the number as the tensor it was."""
    steps = program("return torch.fmod(x, torch.tensor(0.5))", "torch.randn(5, 3)").steps
    assert "torch.tensor(0.5, dtype=torch.float32)" in "".join(s.expression for s in steps if isinstance(s, Call))


def test_products_stay_torch_calls_and_know_their_epilogue() -> None:
    """linear, gelu, linear: two calls, and the first is read by one region only."""
    found = program("return self.b(F.gelu(self.a(x)))", "torch.randn(4, 8)",
                    "self.a = nn.Linear(8, 16)\nself.b = nn.Linear(16, 8)")  # fmt: skip
    assert ["Call", "Fused", "Call"] == [type(step).__name__ for step in found.steps]
    assert [(0, 1)] == matmul_epilogues(found)


def test_a_region_that_reads_two_products_is_the_epilogue_of_one() -> None:
    """A gated layer: taken for the epilogue of both, it would leave the first of them uncomputed."""
    found = program("return F.silu(x @ w) * (x @ v)", "torch.randn(8, 4), torch.randn(4, 6), torch.randn(4, 6)",
                    arguments="x, w, v")  # fmt: skip
    assert ["Call", "Call", "Fused"] == [type(step).__name__ for step in found.steps]
    assert [(1, 2)] == matmul_epilogues(found)
    assert [(0, None), (1, 2)] == [pair[:2] for pair in pairs(found)]


def test_a_large_model_is_traced_at_its_sizes_unless_its_cases_have_others() -> None:
    """Open sizes take minutes there, and a task with one case proves no others."""
    init = "self.net = nn.Sequential(*[nn.Tanh() for _ in range(45)])"
    text = reference("return self.net(x)", "torch.randn(6, 10)", init)
    assert () == capture(request(text).task).symbols
    text = text.replace("get_inputs()", "get_inputs(n=6)").replace("torch.randn(6, 10)", "torch.randn(n, 10)")
    cases = (Case(name="a", axes=(("n", 6),), timed=True), Case(name="b", axes=(("n", 9),)))
    found = capture(Task(name="t", form="folder", reference=text, cases=cases))
    assert ["a0.shape[0]", "a0.shape[1]"] == [binding for _, binding in found.symbols]


def test_steps_come_after_what_they_read() -> None:
    """Whatever joins whichever region."""
    found = program(
        "a = torch.exp(x)\nb = a @ x\nc = torch.softmax(b + a, -1)\nreturn c @ a + torch.relu(x), a.sum(0)",
        "torch.randn(6, 6)",
    )
    known = {source.tensor.name for source in found.sources}
    for step in found.steps:
        read = set(step.inputs if isinstance(step, Fused) else step.operands) - {""}
        assert read <= known
        known |= {t.name for t in step.outputs} if isinstance(step, Fused) else {step.output.name}
    assert set(found.results) <= known


def test_a_view_is_made_only_where_torch_reads_it() -> None:
    """A region reads the elements themselves; a product needs the view, made once and before it."""
    found = program("w = v.unsqueeze(1)\nreturn x * w, x @ w", "torch.randn(6, 6), torch.randn(6)", arguments="x, v")
    calls = [step.target for step in found.steps if isinstance(step, Call)]
    assert ["aten.unsqueeze.default", "aten.matmul.default"] == calls
    (fused,) = found.regions()
    assert {"a0": "full", "a1": "row"} == kinds(fused)


def test_a_mask_that_is_no_run_of_axes_stays_outside() -> None:
    """B x 1 x S x S against B x H x S x S has no place in rows and columns."""
    steps = program("return x.masked_fill(m, 0.0) * 2", "torch.randn(2, 3, 4, 5), torch.rand(2, 1, 4, 5) > 0.5",
                    arguments="x, m").steps  # fmt: skip
    assert "aten.masked_fill.Scalar" in [step.target for step in steps if isinstance(step, Call)]


def test_in_place_steps_become_values() -> None:
    """A reference may write to its own intermediates."""
    (fused,) = program("y = x + 1\ny.mul_(2)\ny += x\nreturn y", "torch.randn(6, 6)").steps
    assert isinstance(fused, Fused)
    assert ["add", "mul", "add"] == [v.op for v in fused.region.values if v.args]


@pytest.mark.parametrize("forward", ["x.add_(1)\nreturn x", "return {'a': x}", "return x.sum().item() * x"])
def test_what_is_not_a_function_of_tensors_is_refused(forward: str) -> None:
    """With one error type, whatever torch.export thought of it."""
    with pytest.raises(NotCaptured):
        lower(capture(request(reference(forward, "torch.randn(6, 6)")).task))


def test_the_mode_is_recorded_only_where_it_matters() -> None:
    """Dropout depends on train(); a norm does not."""
    plain = request(reference("return F.relu(x)", "torch.randn(4, 4)")).task
    drops = request(reference("return self.d(F.relu(x))", "torch.randn(4, 4)", "self.d = nn.Dropout(0.5)")).task
    assert [None, False] == [capture(plain).training, capture(drops).training]


def test_a_case_with_axes_is_traced_at_its_sizes() -> None:
    """Task folders hand axes to get_inputs and get_init_inputs."""
    source = (
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def __init__(self, cols):\n"
        "        super().__init__()\n        self.w = nn.Parameter(torch.ones(cols))\n\n    def forward(self, x):\n"
        "        return x * self.w\n\n\ndef get_inputs(cols=3):\n    return [torch.randn(2, cols)]\n\n\n"
        "def get_init_inputs(cols=3):\n    return [cols]\n"
    )
    case = Case(name="wide", axes=(("cols", 12),), timed=True)
    captured = capture(Task(name="t", form="folder", reference=source, cases=(case,)))
    assert ("[12]", "{}") == captured.init
