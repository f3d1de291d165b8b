# SPDX-License-Identifier: Apache-2.0
"""References that make a sparse tensor on the way are judged as others are."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker

GIVEN = Variant(name="as given", required=True)
CSR = "torch.sparse_csr_tensor(p, c, v, (64, 64))"
COO = "torch.sparse_coo_tensor(torch.stack([torch.arange(64).repeat_interleave(8), c]), v, (64, 64))"
INPUTS = "[torch.arange(0, 513, 8), torch.randint(0, 64, (512,)), torch.randn(512), torch.randn(64, 32)]"


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    "forward", [f"{CSR} @ x", f"torch.sparse.mm({COO}, x)", f"{COO}.to_dense() @ x", f"torch.sparse.addmm(x, {COO}, x)"]
)
def test_products_of_sparse_matrices_have_an_honest_error(forward: str) -> None:
    """Rows added up one after the other are right, numbers of 16 bits are not."""
    checker = Checker(instance(forward, INPUTS, args="p, c, v, x"), seed=3)
    for seed in range(3):
        p, c, v, x = leaves = checker.instance.draw(GIVEN, seed)
        rows = torch.arange(64).repeat_interleave(8)
        got = torch.zeros(64, 32).index_add_(0, rows.flip(0), (v[:, None] * x[c]).flip(0))
        got = got + x if "addmm" in forward else got
        assert checker.check(GIVEN, leaves, None, [got], leaves).passed
        assert not checker.check(GIVEN, leaves, None, [got.bfloat16().float()], leaves).passed
    assert "float64" in checker.oracle
