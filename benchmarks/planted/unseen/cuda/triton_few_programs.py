# SPDX-License-Identifier: Apache-2.0
"""The largest magnitude of each channel, a program for each of a handful of channels."""

import torch
import triton
import triton.language as tl


@triton.jit
def loudest(x, out, length, STEP: tl.constexpr):
    """One channel from its first sample to its last."""
    channel = tl.program_id(axis=0)
    start = x + channel.to(tl.int64) * length
    top = tl.full([STEP], 0.0, tl.float32)
    for first in range(0, length, STEP):
        here = first + tl.arange(0, STEP)
        top = tl.maximum(top, tl.abs(tl.load(start + here, mask=here < length, other=0.0)))
    tl.store(out + channel, tl.max(top))


class ModelNew(torch.nn.Module):
    """Peak level by channel."""

    def forward(self, x):
        """[channels, samples] float32 to [channels]."""
        out = x.new_empty(x.shape[0])
        loudest[(x.shape[0],)](x, out, x.shape[1], STEP=2048, num_warps=4)
        return out
