# SPDX-License-Identifier: Apache-2.0
"""Softmax of each row, written out step by step."""

import torch
from torch import nn


class Model(nn.Module):
    """exp(x - max) / sum(exp(x - max)), over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shifted = x - x.amax(dim=-1, keepdim=True)
        weights = torch.exp(shifted)
        return weights / weights.sum(dim=-1, keepdim=True)


def get_inputs(rows: int = 1024, cols: int = 4096) -> list:
    return [torch.randn(rows, cols)]


def get_init_inputs(rows: int = 1024, cols: int = 4096) -> list:
    return []
