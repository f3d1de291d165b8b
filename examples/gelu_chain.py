# SPDX-License-Identifier: Apache-2.0
"""A chain of elementwise operations around GELU, one pass over memory for each of them in eager mode."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """clamp(gelu(x + bias) * scale + x, -6, 6)."""

    def __init__(self, cols: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(cols) * 0.5)
        self.scale = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        activated = F.gelu(x + self.bias) * self.scale
        return torch.clamp(activated + x, -6.0, 6.0)


def get_inputs(rows: int = 1024, cols: int = 4096) -> list:
    return [torch.randn(rows, cols)]


def get_init_inputs(rows: int = 1024, cols: int = 4096) -> list:
    return [cols]
