# SPDX-License-Identifier: Apache-2.0
"""Neighbouring lanes walk down different rows: each load touches a sector of its own."""

import torch
import triton
import triton.language as tl


@triton.jit
def column_scale(out, x, rows, columns, BLOCK: tl.constexpr):
    """Element i of the columns laid end to end."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < rows * columns
    at = (i % rows) * columns + i // rows
    tl.store(out + at, 2.0 * tl.load(x + at, mask=inside), mask=inside)


class ModelNew(torch.nn.Module):
    """Twice the input."""

    def forward(self, x):
        """[rows, columns] float32 to the same."""
        out = torch.empty_like(x)
        column_scale[(triton.cdiv(x.numel(), 1024),)](out, x, x.shape[0], x.shape[1], BLOCK=1024)
        return out
