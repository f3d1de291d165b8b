# SPDX-License-Identifier: Apache-2.0
"""Programs that look like diag(v) @ x and are not."""

import torch
from torch import nn


class ScalesTheFirstColumnOnly(nn.Module):
    """v times x in the first column, x elsewhere."""

    def forward(self, v, x):
        out = x.clone()
        out[:, 0] *= v
        return out


class ShiftsTheDiagonal(nn.Module):
    """Row i is scaled by v[i - 1]."""

    def forward(self, v, x):
        return v.roll(1).unsqueeze(1) * x


class AddsTheDiagonal(nn.Module):
    """x + v instead of x * v."""

    def forward(self, v, x):
        return v.unsqueeze(1) + x


class AbsoluteDiagonal(nn.Module):
    """Loses the sign of v."""

    def forward(self, v, x):
        return torch.diag(v.abs()) @ x
