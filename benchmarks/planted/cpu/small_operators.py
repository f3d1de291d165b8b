# SPDX-License-Identifier: Apache-2.0
"""A row at a time through torch: each operator costs more than its arithmetic."""

import torch


class ModelNew(torch.nn.Module):
    """Softmax by rows."""

    def forward(self, x):
        """[rows, columns] float32 to the same."""
        rows = []
        for index in range(x.shape[0]):
            row = (x[index] - x[index].max()).exp()
            rows.append(row / row.sum())
        return torch.stack(rows)
