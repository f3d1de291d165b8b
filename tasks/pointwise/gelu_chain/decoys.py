# SPDX-License-Identifier: Apache-2.0
"""Programs that look like the GELU chain and are not."""

import torch
import torch.nn.functional as F
from torch import nn


class _Parameters(nn.Module):
    def __init__(self, cols: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(cols) * 0.5)
        self.scale = nn.Parameter(torch.rand(cols) + 0.5)


class TanhGelu(_Parameters):
    """The tanh approximation is about 1e-3 away from GELU."""

    def forward(self, x):
        return torch.clamp(F.gelu(x + self.bias, approximate="tanh") * self.scale + x, -6.0, 6.0)


class WithoutResidual(_Parameters):
    """Forgets to add x."""

    def forward(self, x):
        return torch.clamp(F.gelu(x + self.bias) * self.scale, -6.0, 6.0)


class WithoutClamp(_Parameters):
    """Right on small values only."""

    def forward(self, x):
        return F.gelu(x + self.bias) * self.scale + x


class BiasAfterActivation(_Parameters):
    """Adds the bias on the wrong side of GELU."""

    def forward(self, x):
        return torch.clamp((F.gelu(x) + self.bias) * self.scale + x, -6.0, 6.0)
