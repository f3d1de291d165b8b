# SPDX-License-Identifier: Apache-2.0
"""Standardised rows in three kernels: the mean, then the variance, then the result, each reading everything again."""

import torch
import triton
import triton.language as tl


@triton.jit
def average(x, mean, width, BLOCK: tl.constexpr):
    """The mean of one row."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * width + at, mask=at < width, other=0.0)
    tl.store(mean + row, tl.sum(values) / width)


@triton.jit
def deviation(x, mean, scale, width, BLOCK: tl.constexpr):
    """One over the root of the variance of one row."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * width + at, mask=at < width, other=0.0)
    away = tl.where(at < width, values - tl.load(mean + row), 0.0)
    tl.store(scale + row, 1.0 / tl.sqrt(tl.sum(away * away) / width + 1e-5))


@triton.jit
def apply(x, mean, scale, out, width, BLOCK: tl.constexpr):
    """One row, shifted and scaled."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * width + at, mask=at < width)
    tl.store(out + row * width + at, (values - tl.load(mean + row)) * tl.load(scale + row), mask=at < width)


class ModelNew(torch.nn.Module):
    """Layer normalisation without weights."""

    def forward(self, x):
        """[rows, width] float32 to the same."""
        rows, width = x.shape
        mean, scale, out = x.new_empty(rows), x.new_empty(rows), torch.empty_like(x)
        block = triton.next_power_of_2(width)
        average[(rows,)](x, mean, width, BLOCK=block)
        deviation[(rows,)](x, mean, scale, width, BLOCK=block)
        apply[(rows,)](x, mean, scale, out, width, BLOCK=block)
        return out
