# SPDX-License-Identifier: Apache-2.0
"""Attention as one operator: right with every mask and rank, proposed for it and for nothing that looks like it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kernelwright.proposers import Request
from kernelwright.proposers.rewrites import RewritesProposer, attention
from kernelwright.proposers.rewrites.cost import rates, total
from kernelwright.proposers.rewrites.terms import Term, leaf, make, walk
from kernelwright.task import Task

REFERENCE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("causal", torch.tril(torch.ones(160, 160)).view(1, 1, 160, 160))
        self.drop = nn.Dropout(0.1)

    def forward(self, q, k, v, m):
        {body}


def get_inputs():
    return [torch.randn({lead}, 160, 24), torch.randn({lead}, 160, 24), torch.randn({lead}, 160, {depth}), {mask}]


def get_init_inputs():
    return []
"""
SCORES = "(q @ k.transpose(-2, -1)) / 24 ** 0.5"
CAUSAL = f"s = ({SCORES}).masked_fill(self.causal == 0, float('-inf'))"
FOUND = {
    "causal": f"{CAUSAL}\n        return self.drop(torch.softmax(s, dim=-1)) @ v + m.mean()",
    "biased": f"return torch.softmax({SCORES} + m, -1) @ v",
    "bias first": f"return torch.softmax(m + {SCORES}, -1) @ v",
    "plain": "return torch.softmax((q @ k.transpose(-2, -1)) * 0.3, -1) @ v * m.mean()",
    "heads merged": f"return (torch.softmax({SCORES}, -1) @ v).transpose(1, 2).reshape(2, 160, -1) + m[0, 0, 0, 0]",
}
LEFT = {
    "another dimension": f"return torch.softmax({SCORES} + m, -2) @ v",
    "a finite mask": f"return torch.softmax(({SCORES}).masked_fill(self.causal == 0, -1e9), -1) @ v + m.mean()",
    "no softmax": f"return torch.relu({SCORES} + m) @ v",
    "weights returned too": f"w = torch.softmax({SCORES} + m, -1)\n        return w @ v, w",
}


def task(body: str, lead: str = "2, 3", depth: int = 24, mask: str = "torch.randn(1, 1, 160, 160)") -> Task:
    """A reference with queries, keys, values and something to bias the scores with."""
    text = REFERENCE.format(body=body, lead=lead, depth=depth, mask=mask)
    return Task(name="t", form="kernelbench", reference=text)


def sources(of: Task) -> list[str]:
    """What is proposed for it as plain PyTorch."""
    proposer, request = RewritesProposer(), Request(task=of, device="cpu", machine=None)
    plain = [
        found.name for found in proposer.structures(request) if "compile" not in found.name and "+" not in found.name
    ]
    return [dict(proposer.render(request, name, {}).sources)["optimized.py"] for name in plain]


def helper() -> Any:
    """The function that candidates carry, by itself."""
    scope: dict[str, Any] = {"torch": torch}
    exec(attention.CODE, scope)
    return scope["_attention"]


@pytest.mark.parametrize("lead", [(3,), (2, 3)])
@pytest.mark.parametrize("kind", ["plain", "hidden", "bias"])
def test_it_is_the_product_of_weights_and_values(lead: tuple[int, ...], kind: str) -> None:
    """Other lengths of queries and keys, masks that broadcast, and a scale that is not the usual one."""
    torch.manual_seed(1)
    q, k, v = torch.randn(*lead, 70, 16), torch.randn(*lead, 90, 16), torch.randn(*lead, 90, 16)
    more = {"hidden": torch.rand(70, 90) < 0.5, "bias": torch.randn(*[1] * len(lead), 70, 90)}
    given = {kind: more[kind]} if kind in more else {}
    scores = (q.double() @ k.double().mT) * 0.7
    if kind == "hidden":
        scores = scores.masked_fill(more["hidden"], -math.inf)
    elif kind == "bias":
        scores = scores + more["bias"]
    expected = torch.softmax(scores, -1) @ v.double()
    torch.testing.assert_close(helper()(q, k, v, 0.7, **given).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FOUND)
def test_attention_is_found_and_equals_the_reference(name: str) -> None:
    """Whatever hides or biases the scores, divided or multiplied, and laid out as the reference's result is."""
    asked = task(FOUND[name])
    (source, *_) = [text for text in sources(asked) if "_attention(" in text]
    scope: dict[str, Any] = {"__name__": "candidate"}
    exec(source, scope)
    model, new = scope["Model"]().eval(), scope["ModelNew"]().eval()
    torch.manual_seed(2)
    inputs = scope["get_inputs"]()
    with torch.no_grad():
        assert new._as_traced and new._fits(*inputs)
        got, eager = new(*inputs), model(*inputs)
        expected = model.double()(*(x.double() for x in inputs))
    assert eager.stride() == got.stride()
    assert float((got - expected).norm()) < 3 * float((eager - expected).norm())


@pytest.mark.parametrize("name", LEFT)
def test_what_only_looks_like_it_is_left_alone(name: str) -> None:
    """A finite mask leaves weight where torch's operator has none, and weights that are read must be there."""
    assert not any("_attention(" in text for text in sources(task(LEFT[name])))


def test_values_of_another_depth_and_broadcast_heads_are_left_alone() -> None:
    """torch would write the scores out for these, as before."""
    body = f"return torch.softmax({SCORES} + m, -1) @ v"
    assert not any("_attention(" in text for text in sources(task(body, depth=40)))
    assert any("_attention(" in text for text in sources(task(body)))
    (root,) = (make("matmul", (make("softmax", (_scores(leaf("q", 2, 3, 9, 4), leaf("k", 1, 3, 9, 4)),), (3,)), V)),)
    assert [] == attention.cut(root)
    root = make("matmul", (make("softmax", (_scores(leaf("q", 2, 3, 9, 4), leaf("k", 2, 3, 9, 4)),), (3,)), V))
    assert [attention.PLAIN] == [t.attrs[0] for (cut,) in [attention.cut(root)] for t in walk((cut,)) if t.op == "call"]


def test_the_cost_model_knows_what_is_saved() -> None:
    """The scores are never in memory; the products are done as before."""
    at = rates("cpu", None)
    q, k, v = (leaf(name, 4, 8, 512, 64) for name in "qkv")
    root = make("matmul", (make("softmax", (_scores(q, k),), (3,)), v))
    (cut,) = attention.cut(root)
    products = total(make("matmul", (q, make("t", (k,)))), at)
    assert 1.5 * products < total(cut, at) < 0.8 * total(root, at)


V = leaf("v", 2, 3, 9, 4)


def _scores(queries: Term, keys: Term) -> Term:
    return make("matmul", (queries, make("t", (keys,))))
