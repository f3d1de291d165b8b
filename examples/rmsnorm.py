# SPDX-License-Identifier: Apache-2.0
"""RMS normalisation of each row, with a learned scale."""

import torch
from torch import nn


class Model(nn.Module):
    """x / rms(x) * weight, over the last dimension."""

    def __init__(self, cols: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight


def get_inputs(rows: int = 1024, cols: int = 4096) -> list:
    return [torch.randn(rows, cols)]


def get_init_inputs(rows: int = 1024, cols: int = 4096) -> list:
    return [cols]
