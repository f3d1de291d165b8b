# SPDX-License-Identifier: Apache-2.0
"""Programs that look like linear + GELU and are not."""

import torch.nn.functional as F
from torch import nn


class _Linear(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inner, outer)


class WithoutBias(_Linear):
    """Forgets the bias."""

    def forward(self, x):
        return F.gelu(F.linear(x, self.linear.weight))


class TanhGelu(_Linear):
    """The tanh approximation of GELU."""

    def forward(self, x):
        return F.gelu(self.linear(x), approximate="tanh")


class SigmoidGelu(_Linear):
    """SiLU instead of GELU."""

    def forward(self, x):
        return F.silu(self.linear(x))


class BiasAfterActivation(_Linear):
    """Adds the bias on the wrong side of GELU."""

    def forward(self, x):
        return F.gelu(F.linear(x, self.linear.weight)) + self.linear.bias
