# SPDX-License-Identifier: Apache-2.0
"""Programs that look like the feed-forward block and are not."""

import torch.nn.functional as F
from torch import nn


class _Layers(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)


class WithoutResidual(_Layers):
    """Forgets to add x."""

    def forward(self, x):
        return self.down(F.gelu(self.up(self.norm(x))))


class NormalisedResidual(_Layers):
    """Adds the normalised input instead of the input."""

    def forward(self, x):
        normed = self.norm(x)
        return normed + self.down(F.gelu(self.up(normed)))


class WithoutLastBias(_Layers):
    """Forgets the bias of the second layer."""

    def forward(self, x):
        return x + F.linear(F.gelu(self.up(self.norm(x))), self.down.weight)


class ReluInstead(_Layers):
    """ReLU instead of GELU."""

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))
