# SPDX-License-Identifier: Apache-2.0
"""From reference to rewritten module: what is found, that it is right, and when it hands back to the reference."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.errors import CandidateError
from kernelwright.proposers import Request
from kernelwright.proposers.rewrites import RewritesProposer, greedy, rewritten, saturate
from kernelwright.proposers.rewrites.cost import rates, total
from kernelwright.proposers.rewrites.laws import rules
from kernelwright.proposers.rewrites.terms import leaf, make
from kernelwright.proposers.rewrites.trace import NotRewritable, trace
from kernelwright.task import Contract, Task

FORM = """
import torch
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, k=96, n=160, scale=1.5):
        super().__init__()
        self.scale = scale
        {init}
    def forward(self, x{more}):
        {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return [96, 160, 1.5]
"""


def form(body: str, *, init: str = "pass", more: str = "", inputs: str = "torch.randn(48, 96)") -> str:
    """A KernelBench-form file."""
    return FORM.format(body=body, init=init, more=more, inputs=inputs)


WEIGHT = "self.weight = nn.Parameter(torch.randn(n, k))"
LINEAR = "self.linear = nn.Linear(k, n)"
FOUND = {
    "diag-left": (
        form("return torch.diag(x) @ y", more=", y", inputs="torch.randn(96), torch.randn(96, 64)"),
        "unsqueeze(1)",
    ),
    "diag-right": (
        form("return y @ torch.diag(x)", more=", y", inputs="torch.randn(96), torch.randn(64, 96)"),
        "v0 = y * x",
    ),
    "sum-all": (form("return torch.sum(x @ self.weight.T) * self.scale", init=WEIGHT), "torch.sum("),
    "sum-rows": (form("return torch.sum(x @ self.weight.T / 2, dim=1) * 1.5", init=WEIGHT), "torch.sum(self.weight"),
    "number-written-out": (
        form("return torch.min(torch.sum(x @ self.weight.T, dim=1), torch.tensor(0.5, device=x.device))", init=WEIGHT),
        "torch.sum(self.weight",
    ),
    "mean-bias": (
        form("return F.gelu(self.linear(x).mean(1, keepdim=True)) + x", init=LINEAR),
        "torch.mean(self.linear.weight",
    ),
    "size-1": (
        form(
            "x = self.linear(x).sum(1, keepdim=True)\n"
            "        x = torch.max(x, dim=1, keepdim=True)[0].mean(1, keepdim=True)\n"
            "        return torch.logsumexp(torch.logsumexp(x, 1, keepdim=True), 1, keepdim=True)",
            init=LINEAR,
        ),
        "self.linear.bias",
    ),
    "mean-free": (
        form(
            "m = self.linear(x).amax(1, keepdim=True)\n        return F.gelu(m - m.mean(dim=1, keepdim=True))",
            init=LINEAR,
        ),
        "torch.full((48, 1), 0.0",
    ),
    "associate": (
        form(
            "return (x @ self.weight.T) @ self.weight @ y",
            init=WEIGHT,
            more=", y",
            inputs="torch.randn(48, 96), torch.randn(96, 1)",
        ),
        "torch.matmul(self.weight, y)",
    ),
    "distribute": (
        form("return x @ y + x @ z", more=", y, z", inputs="torch.randn(48, 96), *torch.randn(2, 96, 96)"),
        "y + z",
    ),
    "batched": (
        form("return torch.mean(self.linear(x), dim=2)", init=LINEAR, inputs="torch.randn(3, 16, 96)"),
        "torch.mean(self.",
    ),
    "dropout": (form("return (F.dropout(self.linear(x), 0.5, self.training) * 1).sum(-1)", init=LINEAR), "torch.sum("),
    "softmax-1": (form("return torch.softmax(self.linear(x).sum(1, keepdim=True), 1) * x", init=LINEAR), "torch.full("),
    "sequential": (
        form("return self.net(x).sum(1)", init="self.net = nn.Sequential(nn.Tanh(), nn.Linear(k, n))"),
        'getattr(self.net, "1").weight',
    ),
}
UNTOUCHED = {
    "pointwise": form("return torch.relu(x)"),
    "linear": form("return self.linear(x)", init=LINEAR),
    "row-sum-of-squares": form("return (self.linear(x) ** 2).sum(1)", init=LINEAR),
}
REFUSED = {
    "in-place on input": form("x += 1\n        return x.sum(1)"),
    "random": form("return F.dropout(x, 0.5, True)"),
    "data-dependent size": form("return x[x > 0].sum()"),
    "integer result": form("return x.argmax(1)"),
    "nested results": form("return {'a': x}"),
    "list input": form("return x[0]", inputs="[torch.randn(3)]"),
    "tensor for the constructor": form("return x.sum(1)").replace("[96, 160, 1.5]", "[torch.ones(3)]"),
}


def ask(reference: str, device: str = "cpu", **contract: Any) -> Request:
    """A request about this reference."""
    task = Task(name="t", form="kernelbench", reference=reference, contract=Contract(**contract))
    return Request(task=task, device=device, machine=None)


def load(source: str, tmp_path: Any) -> Any:
    """The candidate's module."""
    path = tmp_path / "optimized.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("optimized", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pair(module: Any) -> tuple[Any, Any]:
    """(reference in float64, candidate in float32) with equal weights."""
    args = module.get_init_inputs()
    model, new = module.Model(*args).eval(), module.ModelNew(*args).eval()
    new.load_state_dict(model.state_dict(), strict=True)
    return model.double(), new


def check(module: Any, inputs: list[torch.Tensor]) -> None:
    """The candidate agrees with the float64 reference."""
    model, new = pair(module)
    with torch.no_grad():
        expected = model(*(x.double() for x in inputs))
        actual = new(*inputs)
    assert expected.shape == actual.shape
    torch.testing.assert_close(actual.double(), expected, rtol=2e-5, atol=2e-5 * max(1.0, expected.abs().max().item()))


@pytest.mark.parametrize("name", FOUND)
def test_a_known_rewrite_is_found_and_equals_the_reference(name: str, tmp_path: Any) -> None:
    """The expected step is in the source, the fast path is taken, and all proposals agree with float64."""
    reference, step = FOUND[name]
    proposer, request = RewritesProposer(), ask(reference)
    names = [structure.name for structure in proposer.structures(request) if "." not in structure.name[8:]]
    sources = [proposer.render(request, name, {}).sources[0][1] for name in names]

    assert any(step in source.split("class ModelNew")[1] for source in sources)
    for source in sources:
        module = load(source, tmp_path)
        inputs = module.get_inputs()
        new = module.ModelNew(*module.get_init_inputs()).eval()
        assert new._as_traced and new._fits(*inputs)
        check(module, inputs)


@pytest.mark.parametrize("name", UNTOUCHED)
def test_nothing_is_proposed_where_no_law_saves_work(name: str) -> None:
    """A reordering that only looks different is not worth the judge's time."""
    assert [] == RewritesProposer().structures(ask(UNTOUCHED[name]))


@pytest.mark.parametrize("name", REFUSED)
def test_references_outside_the_algebra_are_left_alone(name: str) -> None:
    """Either nothing is proposed, or torch's own error reaches the host, which reports it."""
    try:
        found = RewritesProposer().structures(ask(REFUSED[name]))
    except (RuntimeError, TypeError, AttributeError, ValueError):
        found = []

    assert [] == found


def test_writing_to_an_input_is_not_rewritable() -> None:
    """The reason names the operator or the effect."""
    with pytest.raises(NotRewritable):
        trace(ask(REFUSED["in-place on input"]).task)


def test_another_batch_size_takes_the_fast_path_where_the_text_does_not_depend_on_it(tmp_path: Any) -> None:
    """The same program answers batches of 48 and of 5."""
    proposer, request = RewritesProposer(), ask(FOUND["mean-bias"][0])
    proposer.structures(request)
    module = load(proposer.render(request, "rewrite.0", {}).sources[0][1], tmp_path)
    x = torch.randn(5, 96)

    assert module.ModelNew(*module.get_init_inputs()).eval()._fits(x)
    check(module, [x])


@pytest.mark.parametrize("case", ["shape", "dtype", "init", "training", "keyword"])
def test_what_was_not_traced_goes_to_the_reference(case: str, tmp_path: Any) -> None:
    """Other shapes, dtypes, constructor arguments, mode and keywords give the reference's own result."""
    body = "return torch.dropout(torch.sum(x @ self.weight.T, dim=0) * self.scale, 0.0, self.training)"
    proposer, request = RewritesProposer(), ask(form(body, init=WEIGHT))
    proposer.structures(request)
    module = load(proposer.render(request, "rewrite.0", {}).sources[0][1], tmp_path)
    args = (96, 160, 3.0) if case == "init" else (96, 160, 1.5)
    model, new = module.Model(*args).train(case == "training"), module.ModelNew(*args).train(case == "training")
    new.load_state_dict(model.state_dict())
    x = torch.randn(2, 48, 96) if case == "shape" else torch.randn(48, 96)
    if case == "dtype":
        model, new, x = model.double(), new.double(), x.double()
    new._rewritten = None
    expected = model(x)
    actual = new(x=x) if case == "keyword" else new(x)

    assert torch.equal(expected, actual)


def test_gradients_flow_through_a_rewritten_module(tmp_path: Any) -> None:
    """Parameters are read at call time, as themselves."""
    proposer, request = RewritesProposer(), ask(FOUND["sum-rows"][0])
    proposer.structures(request)
    module = load(proposer.render(request, "rewrite.0", {}).sources[0][1], tmp_path)
    model, new = pair(module)
    x = torch.randn(48, 96)
    model(x.double()).square().sum().backward()
    new(x).square().sum().backward()

    torch.testing.assert_close(new.weight.grad.double(), model.weight.grad, rtol=1e-4, atol=1e-2)


def test_a_copy_of_a_compiled_rewrite_has_weights_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles at the first call; copies and pickles made after that compile theirs."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda call, **options: real(call, backend="eager"))
    request = ask(FOUND["sum-rows"][0])
    candidate = RewritesProposer().render(request, "rewrite.0.compile", {})
    module = load(candidate.sources[0][1], tmp_path)
    monkeypatch.setitem(sys.modules, "optimized", module)
    new = module.ModelNew(*module.get_init_inputs()).eval()
    (x,) = module.get_inputs()
    with torch.no_grad():
        assert new._compiled is None
        expected = new(x)
        assert new._compiled is not None
        twin, read = copy.deepcopy(new), pickle.loads(pickle.dumps(new))
        for weight in twin.parameters():
            weight.zero_()
        torch.testing.assert_close(twin(x), torch.zeros_like(expected))
        torch.testing.assert_close(read(x), expected)
        torch.testing.assert_close(new(x), expected)


def test_a_result_that_is_an_input_is_copied(tmp_path: Any) -> None:
    """x * 1 is a new tensor in the reference, and so it is in the rewrite."""
    proposer, request = RewritesProposer(), ask(form("return x * 1 + 0"))
    assert proposer.structures(request)
    module = load(proposer.render(request, "rewrite.0", {}).sources[0][1], tmp_path)
    x = torch.randn(48, 96)
    result = module.ModelNew(*module.get_init_inputs()).eval()(x)

    assert torch.equal(x, result)
    assert x.data_ptr() != result.data_ptr()


def test_long_dot_products_are_summed_in_blocks_on_the_cpu_only() -> None:
    """One chain of 8192 additions loses more than a bit against eager."""
    reference = form(
        "return (x @ self.weight.T).sum(1)",
        init="self.weight = nn.Parameter(torch.randn(300, 2048))",
        inputs="torch.randn(48, 2048)",
    )
    texts = {}
    for device in ("cpu", "cuda"):
        proposer, request = RewritesProposer(), ask(reference, device)
        proposer.structures(request)
        texts[device] = proposer.render(request, "rewrite.0", {}).sources[0][1]

    assert "_in_blocks(x," in texts["cpu"]
    assert "_in_blocks" not in texts["cuda"]


def test_an_unknown_structure_is_a_candidate_error() -> None:
    """Names come from a ledger and may be stale."""
    with pytest.raises(CandidateError):
        RewritesProposer().render(ask(UNTOUCHED["linear"]), "rewrite.0", {})


def test_without_egglog_the_beam_finds_the_same_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU machines often lack egglog; the rule table is the same."""
    programs = [trace(ask(reference).task) for reference, _ in list(FOUND.values())[:8]]
    at = rates("cpu", None)
    both = [rewritten(program, at)[0].seconds for program in programs]
    monkeypatch.setattr(saturate, "bindings", None)
    alone = [rewritten(program, at)[0].seconds for program in programs]

    assert pytest.approx(both, rel=1e-6) == alone


def test_saturation_alone_finds_them_too() -> None:
    """The e-graph, without the beam, reaches the same cost."""
    pytest.importorskip("egglog")
    at = rates("cpu", None)
    for reference, _ in list(FOUND.values())[:6]:
        root = trace(ask(reference).task).root
        found = saturate.search(root, rules(), at, seconds=20)
        beam = greedy.search(root, rules(), at, seconds=20)

        assert pytest.approx(total(beam[0], at), rel=1e-3) == total(found[0], at)


def test_saturation_of_a_long_sum_stays_bounded() -> None:
    """Twelve terms in a sum once took 16 s with associativity; the limits keep it small."""
    pytest.importorskip("egglog")
    term = leaf("x0", 8, 8)
    for index in range(1, 12):
        term = make("add", (term, make("matmul", (leaf(f"x{index}", 8, 8), leaf("w", 8, 8)))))
    root = make("call", (term,), ("return", ""), ())
    at = rates("cpu", None)
    found = saturate.search(root, rules(), at, seconds=5)

    assert total(root, at) >= total(found[0], at)


def test_proposals_do_not_depend_on_the_order_of_asking() -> None:
    """Two proposers, one of them asked before about something else, write the same text."""
    request = ask(FOUND["sum-all"][0])
    first, second = RewritesProposer(), RewritesProposer()
    second.structures(ask(FOUND["size-1"][0]))

    assert first.structures(request) == second.structures(request)
    assert first.render(request, "rewrite.0", {}) == second.render(request, "rewrite.0", {})


def test_columns_of_a_large_weight_are_summed_through_blas_on_the_cpu(tmp_path: Any) -> None:
    """Also when its rows are no multiple of the block, for sums and for means."""
    for reduce in ("sum", "mean"):
        init = "self.weight = nn.Parameter(torch.randn(700, 640))"
        reference = form(f"return (x @ self.weight.T).{reduce}(1)", init=init, inputs="torch.randn(48, 640)")
        proposer, request = RewritesProposer(), ask(reference)
        proposer.structures(request)
        source = proposer.render(request, "rewrite.0", {}).sources[0][1]
        module = load(source, tmp_path)

        assert "_column_sums(self.weight)" in source
        check(module, module.get_inputs())


def test_templates_write_the_best_rewritten_program_and_fall_back_through_it() -> None:
    """diag(v) @ X becomes one fused kernel over v[:, None] * X; the candidate answers the original task."""
    proposer, request = RewritesProposer(), ask(FOUND["diag-left"][0])
    (found,) = [structure for structure in proposer.structures(request) if structure.name.startswith("rewrite.0+")]
    candidate = proposer.render(request, found.name, {})
    text = dict(candidate.sources)["optimized.py"]

    assert request.task.digest() == candidate.task
    assert "cpp" == found.language == candidate.language
    assert found.space.parameters
    assert text.index("class Model(") < text.index("class Rewritten(Model)") < text.index("class ModelNew(Rewritten)")


def test_templates_write_a_rewritten_program_whose_inputs_come_by_name() -> None:
    """The rewritten forward takes ``*args``; a dict from get_inputs is put in the order of the reference's."""
    listed, named = "[torch.randn(96), torch.randn(96, 64)]", "dict(y=torch.randn(96, 64), x=torch.randn(96))"
    assert listed in (reference := FOUND["diag-left"][0])
    reference = reference.replace(listed, named)
    names = [structure.name for structure in RewritesProposer().structures(ask(reference))]
    assert ["rewrite.0+"] == [name[:10] for name in names if "+" in name]


def test_a_reference_that_imports_from_its_folder_is_rewritten(tmp_path: Path) -> None:
    """Modules beside the file are found while it is traced, those that forward itself imports too."""
    (tmp_path / "kw_size.py").write_text("SIZE = 96\n")
    (tmp_path / "kw_halved.py").write_text("def halved(x):\n    return x / 2\n")
    reference = form("from kw_halved import halved\n        return halved(torch.diag(x[0]) @ x.t())")
    request = ask("from kw_size import SIZE\n" + reference)
    assert [] != RewritesProposer().structures(replace(request, task=replace(request.task, imports=(str(tmp_path),))))


def test_long_recurrent_layers_are_not_traced() -> None:
    """torch.export follows every step, 5 minutes for six layers of 512; a short GRU is left for what it is."""
    body, init = "return self.layer(x)[0].exp()", "self.layer = nn.GRU(8, 4, batch_first=True)"
    with pytest.raises(NotRewritable, match="GRU of 300 steps"):
        trace(ask(form(body, init=init, inputs="torch.randn(2, 300, 8)")).task)
    with pytest.raises(NotRewritable, match="gru.* random numbers"):
        trace(ask(form(body, init=init, inputs="torch.randn(2, 9, 8)")).task)
