# SPDX-License-Identifier: Apache-2.0
"""Half a product for its triangle: right on every side and shape, proposed where it pays and nowhere else."""

from __future__ import annotations

import pytest
import torch

from kernelwright.proposers import Request
from kernelwright.proposers.rewrites import RewritesProposer, triangles
from kernelwright.proposers.rewrites.cost import rates, total
from kernelwright.proposers.rewrites.terms import leaf, make
from kernelwright.task import Task

REFERENCE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return {result}


def get_inputs():
    return [torch.randn({rows}, 70), torch.randn(70, {cols})]


def get_init_inputs():
    return []
"""


def helper() -> dict[str, object]:
    """The function that candidates carry, by itself."""
    scope: dict[str, object] = {"torch": torch}
    exec(triangles.CODE, scope)
    return scope


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize(("rows", "cols"), [(64, 64), (61, 64), (50, 90), (90, 50), (9, 200), (200, 9), (1, 1), (5, 5)])
def test_the_other_side_is_zero_and_this_one_is_the_product(upper: bool, rows: int, cols: int) -> None:
    """Strips that end inside the matrix, and matrices that are wider or taller than square."""
    torch.manual_seed(rows)
    a, b = torch.randn(rows, 33), torch.randn(33, cols)
    got = helper()["_triangle"](a, b, upper)  # type: ignore[operator]
    expected = torch.triu(a @ b) if upper else torch.tril(a @ b)
    assert torch.equal(expected == 0, got == 0)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_gradients_go_through_the_whole_product() -> None:
    """Products into strips of one tensor are not differentiable."""
    a, b = torch.randn(30, 20, requires_grad=True), torch.randn(20, 30)
    (got,) = torch.autograd.grad(helper()["_triangle"](a, b, True).square().sum(), a)  # type: ignore[operator]
    (expected,) = torch.autograd.grad(torch.triu(a @ b).square().sum(), a)
    assert torch.equal(expected, got)


@pytest.mark.parametrize(
    ("result", "rows", "cols", "applies"),
    [
        ("torch.triu(a @ b)", 600, 600, True),
        ("torch.tril(torch.matmul(a, b)) * 2", 600, 700, True),
        ("torch.triu(a @ b)", 100, 600, False),
        ("torch.triu(a @ b, 1)", 600, 600, False),
        ("torch.triu(a) @ b", 600, 600, False),
    ],
)
def test_it_is_proposed_for_the_triangle_of_a_large_product(result: str, rows: int, cols: int, applies: bool) -> None:
    """Another diagonal, a small product, and the product of a triangle are other programs."""
    text = REFERENCE.format(result=result, rows=rows, cols=cols)
    request = Request(task=Task(name="t", form="kernelbench", reference=text), device="cpu", machine=None)
    proposer = RewritesProposer()
    sources = [proposer.render(request, found.name, {}).sources for found in proposer.structures(request)]
    assert applies == any("_triangle(" in code for files in sources for _, code in files)


def test_the_cost_model_knows_what_is_saved() -> None:
    """Nine sixteenths of the operations of the product."""
    at = rates("cpu", None)
    product = make("matmul", (leaf("a", 2048, 2048), leaf("b", 2048, 2048)))
    root = make("call", (product,), ("aten.triu.default", "<0>"), (2048, 2048))
    (half,) = triangles.cut(root)
    assert 0.5 < total(half, at) / total(product, at) < 0.6
