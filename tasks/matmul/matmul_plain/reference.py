# SPDX-License-Identifier: Apache-2.0
"""One matrix product that the vendor library already does well: the honest answer is that nothing beats it."""

import torch
from torch import nn


class Model(nn.Module):
    """a @ b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs(rows: int = 1024, inner: int = 1024, cols: int = 1024) -> list:
    return [torch.randn(rows, inner), torch.randn(inner, cols)]


def get_init_inputs(rows: int = 1024, inner: int = 1024, cols: int = 1024) -> list:
    return []
