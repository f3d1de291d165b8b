# SPDX-License-Identifier: Apache-2.0
"""The first call builds a table in Python; later ones use it."""

import math

import torch


class ModelNew(torch.nn.Module):
    """Scales by a table."""

    table = None

    def forward(self, x):
        """[n] float32 to the same."""
        if self.table is None:
            values = [math.cos(0.0) for _ in range(3_000_000)]
            self.table = torch.tensor(values[:1])
        return torch.mul(x, 2.0)
