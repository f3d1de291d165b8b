# SPDX-License-Identifier: Apache-2.0
"""Programs that look like a softmax and are not."""

import torch
from torch import nn


class WithoutMaximum(nn.Module):
    """Overflows on large inputs."""

    def forward(self, x):
        weights = torch.exp(x)
        return weights / weights.sum(dim=-1, keepdim=True)


class ForgetsTheLastColumn(nn.Module):
    """The denominator misses one term."""

    def forward(self, x):
        weights = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return weights / weights[..., : max(x.shape[-1] - 1, 1)].sum(dim=-1, keepdim=True)


class OverTheWrongDimension(nn.Module):
    """Columns sum to one instead of rows."""

    def forward(self, x):
        return torch.softmax(x, dim=0)


class ReciprocalInHalf(nn.Module):
    """The denominator passes through bfloat16."""

    def forward(self, x):
        weights = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return weights / weights.sum(dim=-1, keepdim=True).bfloat16().to(x.dtype)
