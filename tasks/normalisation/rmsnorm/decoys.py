# SPDX-License-Identifier: Apache-2.0
"""Programs that look like RMS normalisation and are not."""

import torch
from torch import nn


class _Weighted(nn.Module):
    def __init__(self, cols: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)
        self.eps = eps


class WithoutEpsilon(_Weighted):
    """Small inputs come out too large."""

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True)) * self.weight


class SubtractsTheMean(_Weighted):
    """Layer normalisation without a bias."""

    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        return centred * torch.rsqrt(centred.pow(2).mean(dim=-1, keepdim=True) + self.eps) * self.weight


class DividesByOneLess(_Weighted):
    """The sum of squares over n - 1 instead of n."""

    def forward(self, x):
        mean_square = x.pow(2).sum(dim=-1, keepdim=True) / max(x.shape[-1] - 1, 1)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight


class RoundsTheScale(_Weighted):
    """The reciprocal root passes through bfloat16."""

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return x * scale.bfloat16().to(x.dtype) * self.weight
