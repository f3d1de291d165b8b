# SPDX-License-Identifier: Apache-2.0
"""Programs that look like a matrix product and are not."""

import torch
from torch import nn


class ForgetsTheLastTerm(nn.Module):
    """The inner sum stops one short."""

    def forward(self, a, b):
        inner = max(a.shape[1] - 1, 1)
        return a[:, :inner] @ b[:inner]


class HalfPrecision(nn.Module):
    """Multiplies in bfloat16."""

    def forward(self, a, b):
        return (a.bfloat16() @ b.bfloat16()).to(a.dtype)


class LosesTheLastRow(nn.Module):
    """The last row is zero."""

    def forward(self, a, b):
        out = a @ b
        return torch.cat([out[:-1], torch.zeros_like(out[-1:])])
