# SPDX-License-Identifier: Apache-2.0
"""A kernel for each row of the batch, one after another."""

import torch
import triton
import triton.language as tl


@triton.jit
def shifted(x, out, width, BLOCK: tl.constexpr):
    """One row minus its largest element."""
    at = tl.arange(0, BLOCK)
    row = tl.load(x + at, mask=at < width, other=float("-inf"))
    tl.store(out + at, row - tl.max(row), mask=at < width)


class ModelNew(torch.nn.Module):
    """Rows, shifted to a maximum of zero."""

    def forward(self, x):
        """[rows, width] float32 to the same."""
        out = torch.empty_like(x)
        for row in range(x.shape[0]):
            shifted[(1,)](x[row], out[row], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
