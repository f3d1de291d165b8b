# SPDX-License-Identifier: Apache-2.0
"""A large matrix product of which only the scaled row sums are kept."""

import torch
from torch import nn


class Model(nn.Module):
    """sum(x @ weight.T, dim=1) * scale."""

    def __init__(self, inner: int, outer: int, scale: float = 1.5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner) / inner**0.5)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = x @ self.weight.T
        return torch.sum(product, dim=1, keepdim=True) * self.scale


def get_inputs(rows: int = 1024, inner: int = 8192, outer: int = 8192) -> list:
    return [torch.randn(rows, inner)]


def get_init_inputs(rows: int = 1024, inner: int = 8192, outer: int = 8192) -> list:
    return [inner, outer]
