# SPDX-License-Identifier: Apache-2.0
"""Programs that look like the scaled row sums of x @ weight.T and are not."""

import torch
from torch import nn


class _Weighted(nn.Module):
    def __init__(self, inner: int, outer: int, scale: float = 1.5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner) / inner**0.5)
        self.scale = scale

    def sums(self, x):
        return x @ self.weight.sum(dim=0, keepdim=True).T


class WithoutScale(_Weighted):
    """Forgets the factor."""

    def forward(self, x):
        return self.sums(x)


class MeanInsteadOfSum(_Weighted):
    """Divides by the number of outputs."""

    def forward(self, x):
        return self.sums(x) * self.scale / self.weight.shape[0]


class ForgetsTheLastOutput(_Weighted):
    """Sums all outputs but the last."""

    def forward(self, x):
        return x @ self.weight[: max(self.weight.shape[0] - 1, 1)].sum(dim=0, keepdim=True).T * self.scale


class FoldsTheWeightOnce(_Weighted):
    """Remembers the column sums of the first weights it sees: wrong as soon as they change."""

    def __init__(self, inner: int, outer: int, scale: float = 1.5) -> None:
        super().__init__(inner, outer, scale)
        self.folded = self.weight.detach().sum(dim=0, keepdim=True)

    def forward(self, x):
        return x @ self.folded.to(x.device, x.dtype).T * self.scale
