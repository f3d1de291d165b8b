# SPDX-License-Identifier: Apache-2.0
"""Matrices that have no inverse but for rounding are outside a reference's domain."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge.finite import regular


@pytest.mark.parametrize(
    "forward", ["torch.linalg.solve(x, x[:, :3])", "torch.linalg.inv(x)", "torch.linalg.lu_factor(x)[0]"]
)
def test_a_matrix_that_is_singular_but_for_rounding_is_outside(forward: str) -> None:
    """A last row that is the sum of the others, to a unit of the last place, has a pivot of about 1e-6, or none."""
    made = instance(forward, "[torch.randn(12, 12) + 12 * torch.eye(12)]")
    matrix = torch.randn(12, 12, generator=torch.Generator().manual_seed(3)) + 12 * torch.eye(12)
    assert regular(made, [matrix], None, made.eager([matrix], None))
    matrix[-1] = matrix[:-1].sum(0) + 1e-6
    assert not regular(made, [matrix], None, made.eager([matrix], None))
    plain = instance("x * 2.0", "[torch.randn(12, 12)]")
    assert regular(plain, [matrix], None, plain.eager([matrix], None))
