# SPDX-License-Identifier: Apache-2.0
"""A float32 polynomial whose coefficients are float64, and with them everything between load and store."""

import torch
import triton
import triton.language as tl


@triton.jit
def polynomial(x, out, many, BLOCK: tl.constexpr):
    """Twelve terms of the exponential series."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < many).to(tl.float64)
    sum_, term = value * 0.0 + 1.0, value * 0.0 + 1.0
    for k in tl.static_range(1, 13):
        term = term * value * (1.0 / k)
        sum_ += term
    tl.store(out + at, sum_.to(tl.float32), mask=at < many)


class ModelNew(torch.nn.Module):
    """exp by its series."""

    def forward(self, x):
        """Elementwise."""
        out = torch.empty_like(x)
        polynomial[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
