# SPDX-License-Identifier: Apache-2.0
"""Residual addition followed by layer normalisation; both results are returned."""

import torch
from torch import nn


class Model(nn.Module):
    """h = x + residual; returns (layer_norm(h), h)."""

    def __init__(self, cols: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(cols)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = x + residual
        return self.norm(hidden), hidden


def get_inputs(rows: int = 1024, cols: int = 4096) -> list:
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs(rows: int = 1024, cols: int = 4096) -> list:
    return [cols]
