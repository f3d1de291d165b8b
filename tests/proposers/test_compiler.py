# SPDX-License-Identifier: Apache-2.0
"""Candidates of the compiler proposer: offered where they apply, equal to the reference, also after weights change."""

from __future__ import annotations

import copy
import pickle
import sys
import types
from typing import Any

import pytest
import torch

from kernelwright.errors import CandidateError
from kernelwright.proposers import Request
from kernelwright.proposers.compiler import CHOICES, CompilerProposer
from kernelwright.task import Contract, Task

IMAGE = """
from __future__ import annotations
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)
        self.norm = nn.BatchNorm2d(width)
    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))
def get_inputs():
    return [torch.randn(2, 3, 8, 8)]
def get_init_inputs():
    return [4]
"""
PLAIN = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8))
    def forward(self, x, factor=2.0):
        return {"out": torch.relu(x @ self.weight) * factor, "twice": [x * 2]}
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
"""


def request(reference: str, device: str = "cpu", **contract: Any) -> Request:
    """A request about this reference."""
    task = Task(name="t", form="kernelbench", reference=reference, contract=Contract(**contract))
    return Request(task=task, device=device, machine=None)


def load(reference: str, structure: str, device: str = "cpu") -> tuple[Any, Any]:
    """(reference, candidate) modules with equal weights."""
    candidate = CompilerProposer().render(request(reference, device), structure, {})
    module = types.ModuleType("candidate_under_test")
    sys.modules[module.__name__] = module  # torch.compile looks the module up by name
    namespace: dict[str, Any] = module.__dict__
    exec(candidate.sources[0][1], namespace)
    args = namespace["get_init_inputs"]()
    model, new = namespace["Model"](*args).eval(), namespace["ModelNew"](*args).eval()
    new.load_state_dict(model.state_dict(), strict=True)
    return model.to(device), new.to(device)


def offered(*args: Any, **contract: Any) -> list[str]:
    """Names of the structures offered."""
    return [structure.name for structure in CompilerProposer().structures(request(*args, **contract))]


def test_graphs_are_offered_on_cuda_only() -> None:
    """CUDA graphs and reduce-overhead need a CUDA device."""
    assert ["compile.default", "compile.max-autotune"] == offered(PLAIN)
    assert ["compile.default", "compile.max-autotune", "compile.reduce-overhead", "cuda-graph"] == offered(
        PLAIN, "cuda"
    )


def test_channels_last_is_offered_to_images_only() -> None:
    """Convolutions and pools gain from it; nothing else is asked to pay for the copies."""
    assert {"channels-last", "channels-last.compile"} == {*offered(IMAGE)} - {*offered(PLAIN)}


@pytest.mark.parametrize("contract", [{"mutates": (0,)}, {"training": True}, {"random": True}, {"gradients": True}])
def test_copies_are_not_offered_where_identity_matters(contract: dict[str, Any]) -> None:
    """Copied inputs hide a write; a recorded graph freezes random numbers and drops gradients."""
    assert ["compile.default", "compile.max-autotune"] == offered(IMAGE, "cuda", **contract)


def test_channels_last_equals_the_reference_and_keeps_its_layout() -> None:
    """Same values, same strides, state_dict compatible, and new weights are used at once."""
    model, new = load(IMAGE, "channels-last")
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(new(x), model(x))

        assert model(x).stride() == new(x).stride()
        for weight, other in zip(model.parameters(), new.parameters(), strict=True):
            other.copy_(weight.copy_(torch.randn_like(weight)))
        torch.testing.assert_close(new(x), model(x))


def test_compiled_candidates_follow_weights_and_shapes() -> None:
    """Compiled at the first call, right after changed weights and for another shape."""
    model, new = load(PLAIN, "compile.default")

    assert new._compiled is None
    for rows in (4, 6):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            for weight, other in zip(model.parameters(), new.parameters(), strict=True):
                other.copy_(weight.copy_(torch.randn_like(weight)))
            expected, actual = model(x, factor=3.0), new(x, factor=3.0)
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("structure", list(CHOICES))
def test_a_copy_after_the_first_call_has_weights_of_its_own(structure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a module compiled, bound or recorded belongs to it alone: copies and pickles make their own."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda call, **options: real(call, backend="eager"))
    new, x = load(IMAGE, structure)[1], torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        expected = new(x)
        if structure == "cuda-graph":
            new._recorded["a signature"] = (object(), [], [])
        twin, read = copy.deepcopy(new), pickle.loads(pickle.dumps(new))
        assert not any(getattr(other, "_recorded", {}) for other in (twin, read))
        for weight in twin.conv.parameters():
            weight.zero_()
        twin.norm.weight.zero_()
        torch.testing.assert_close(twin(x), torch.zeros_like(expected))
        torch.testing.assert_close(read(x), expected)
        torch.testing.assert_close(new(x), expected)


def test_a_graph_candidate_without_cuda_tensors_runs_the_reference() -> None:
    """The guard sends CPU tensors to the reference's own path."""
    model, new = load(PLAIN, "cuda-graph")
    x = torch.randn(4, 8)

    torch.testing.assert_close(new(x), model(x))
    assert {} == new._recorded


def test_every_choice_renders_to_python_that_subclasses_the_reference() -> None:
    """The reference's source is in the file, so the candidate needs nothing else."""
    for name in CHOICES:
        candidate = CompilerProposer().render(request(IMAGE, "cuda"), name, {})
        compile(candidate.sources[0][1], name, "exec")

        assert "class ModelNew(Model)" in candidate.sources[0][1]
        assert IMAGE.strip() in candidate.sources[0][1]


def test_an_unknown_structure_is_a_candidate_error() -> None:
    """Names come from a ledger and may be stale."""
    with pytest.raises(CandidateError):
        CompilerProposer().render(request(PLAIN), "compile.imaginary", {})


@pytest.mark.gpu
@pytest.mark.parametrize("structure", ["cuda-graph", "compile.reduce-overhead"])
@pytest.mark.parametrize("reference", [PLAIN, IMAGE])
def test_replays_see_new_inputs_and_new_weights(reference: str, structure: str) -> None:
    """Each result stays what it was when later calls replay the graph."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model, new = load(reference, structure, "cuda")
    shape = (4, 8) if reference is PLAIN else (2, 3, 8, 8)
    kept = []
    with torch.no_grad():
        for step in range(6):
            if step == 3:
                for weight, other in zip(model.parameters(), new.parameters(), strict=True):
                    other.copy_(weight.copy_(torch.randn_like(weight)))
            if step == 5:
                for weight, other in zip(model.parameters(), new.parameters(), strict=True):
                    weight.copy_(torch.randn_like(weight))
                    other.data = weight.data.clone()
            x = torch.randn(shape, device="cuda")
            kept.append((model(x), new(x)))
    for expected, actual in kept:
        torch.testing.assert_close(actual, expected)
    assert structure != "cuda-graph" or 2 == len(new._recorded)
