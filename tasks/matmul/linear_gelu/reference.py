# SPDX-License-Identifier: Apache-2.0
"""Matrix product, bias and activation: the usual first half of a feed-forward layer."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """gelu(x @ weight.T + bias)."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x))


def get_inputs(rows: int = 512, inner: int = 512, outer: int = 2048) -> list:
    return [torch.randn(rows, inner)]


def get_init_inputs(rows: int = 512, inner: int = 512, outer: int = 2048) -> list:
    return [inner, outer]
