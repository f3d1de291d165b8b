# SPDX-License-Identifier: Apache-2.0
"""A diagonal matrix times a full one, with the zeros multiplied out."""

import torch
from torch import nn


class Model(nn.Module):
    """diag(v) @ x."""

    def forward(self, v: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.diag(v) @ x


def get_inputs(rows: int = 2048, cols: int = 2048) -> list:
    return [torch.randn(rows), torch.randn(rows, cols)]


def get_init_inputs(rows: int = 2048, cols: int = 2048) -> list:
    return []
