# SPDX-License-Identifier: Apache-2.0
"""Programs that look like residual layer normalisation and are not."""

import torch
from torch import nn


class _Normed(nn.Module):
    def __init__(self, cols: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(cols)


class NormalisesBeforeAdding(_Normed):
    """The norm sees x alone."""

    def forward(self, x, residual):
        return self.norm(x) + residual, x + residual


class ReturnsTheInputAsHidden(_Normed):
    """The second output misses the residual."""

    def forward(self, x, residual):
        return self.norm(x + residual), x.clone()


class UnbiasedVariance(_Normed):
    """Variance over n - 1 instead of n."""

    def forward(self, x, residual):
        hidden = x + residual
        centred = hidden - hidden.mean(dim=-1, keepdim=True)
        variance = centred.pow(2).sum(dim=-1, keepdim=True) / max(hidden.shape[-1] - 1, 1)
        return centred * torch.rsqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias, hidden


class WithoutCentring(_Normed):
    """RMS normalisation with a bias."""

    def forward(self, x, residual):
        hidden = x + residual
        scale = torch.rsqrt(hidden.pow(2).mean(dim=-1, keepdim=True) + self.norm.eps)
        return hidden * scale * self.norm.weight + self.norm.bias, hidden
