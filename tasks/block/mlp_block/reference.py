# SPDX-License-Identifier: Apache-2.0
"""A small pre-norm feed-forward block with a residual connection."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """x + down(gelu(up(layer_norm(x))))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def get_inputs(rows: int = 256, width: int = 256, hidden: int = 1024) -> list:
    return [torch.randn(rows, width)]


def get_init_inputs(rows: int = 256, width: int = 256, hidden: int = 1024) -> list:
    return [width, hidden]
