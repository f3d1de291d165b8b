# SPDX-License-Identifier: Apache-2.0
"""Dimensions that are cut and merged: groups of channels, values per channel of a group, reshapes inside a region."""

from __future__ import annotations

import pytest
import torch
from templates_bench import PROPOSER, error_ratios, load, propose, reference, request

from kernelwright.proposers.templates.ir import BAND, TILE, Call

NORM = "self.n = nn.GroupNorm(4, 12)\nself.n.weight.data.normal_()\nself.n.bias.data.normal_()"
IMAGES = "torch.randn(3, 12, 7, 9)"
CASES = {
    "images": ("return self.n(x)", IMAGES, NORM),
    "vectors": ("return F.hardtanh(self.n(x))", "torch.randn(5, 12)", NORM),
    "lines": ("return self.n(x)", "torch.randn(3, 12, 40)", NORM),
    "one group": ("return self.n(x)", "torch.randn(3, 12, 40)", NORM.replace("(4,", "(1,")),
    "a group a channel": ("return self.n(x)", "torch.randn(3, 12, 40)", NORM.replace("(4,", "(12,")),
    "after work": ("return torch.relu(self.n(F.silu(x))) * 2", IMAGES, NORM),
    "no weights": ("return self.n(x) + x", IMAGES, "self.n = nn.GroupNorm(4, 12, affine=False)"),
    "scaled after it": ("return self.n(x) * self.s", IMAGES, f"{NORM}\nself.s = nn.Parameter(torch.randn(12, 1, 1))"),
    "by a product cut in two": ("a, b = (self.e @ self.w).chunk(2, 1)\n"
                                "return self.n(x) * (a[:, :, None, None] + b[:, :, None, None])", IMAGES,
                                f"{NORM}\nself.e = nn.Parameter(torch.randn(3, 8))\n"
                                "self.w = nn.Parameter(torch.randn(8, 24))"),
    "twice": ("return self.n(self.n(x).exp())", IMAGES, NORM),
    "flattened": ("y = torch.exp(x).view(3, 12, -1)\nreturn torch.softmax(y, 2).view(3, 12, 7, 9) * self.s", IMAGES,
                  "self.s = nn.Parameter(torch.randn(1, 12, 1, 1))"),
    "bands of a norm": ("return self.n(x) * self.s", IMAGES,
                        "self.n = nn.LayerNorm((12, 7, 9))\nself.s = nn.Parameter(torch.randn(12, 1, 1))"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("values", [{}, {"width": 4, "unroll": 1, "cache_cost": 0, "threshold": 1}], ids=["", "narrow"])
def test_groups_are_as_accurate_as_the_reference(name: str, values: dict[str, int]) -> None:
    """Means far from zero too: a variance from sums of squares would cancel."""
    found = propose(reference(*CASES[name]), **values)
    assert found is not None
    module = load(found)
    for shift in (0.0, 30.0):
        torch.manual_seed(1)
        inputs = [x + shift if name not in ("flattened", "twice") else x for x in module.get_inputs()]
        assert max(error_ratios(module, inputs)) <= 2.0


@pytest.mark.parametrize(("name", "kind"), [("images", BAND), ("vectors", TILE), ("bands of a norm", BAND)])
def test_a_whole_norm_is_one_region(name: str, kind: str) -> None:
    """Its weights are read where they lie, and torch is not called."""
    traced = PROPOSER._trace(request(reference(*CASES[name])))
    assert traced is not None
    (fused,) = traced[1].steps
    assert not isinstance(fused, Call)
    assert kind in {value.kind for value in fused.region.values}


def test_a_large_banded_output_is_complete() -> None:
    """Stores past the cache need whole vectors: a band that ends inside one must not use them."""
    source = reference("return self.n(x)", "torch.randn(16, 32, 65, 64)", "self.n = nn.GroupNorm(4, 32)")
    for shape in ("16, 32, 65, 64", "16, 32, 65, 72", "16, 32, 63, 67"):
        found = propose(source.replace("16, 32, 65, 64", shape), stream=True)
        assert found is not None
        module = load(found)
        torch.manual_seed(1)
        assert max(error_ratios(module, module.get_inputs())) <= 2.0


def test_a_reshape_that_moves_elements_is_not_taken_for_one_that_does_not() -> None:
    """(3, 4) as (4, 3) and transposed views keep their own order."""
    forward = "y = torch.exp(x)\nreturn y.view(4, 3).sum(1), y.t().reshape(2, 6).amax(1), y.view(2, 6).sum(0)"
    found = propose(reference(forward, "torch.randn(3, 4)"))
    assert found is not None
    module = load(found)
    torch.manual_seed(1)
    assert max(error_ratios(module, module.get_inputs())) <= 2.0
