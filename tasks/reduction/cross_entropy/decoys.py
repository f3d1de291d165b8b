# SPDX-License-Identifier: Apache-2.0
"""Programs that look like cross-entropy and are not."""

import torch
from torch import nn


class WithoutMaximum(nn.Module):
    """Overflows on large logits."""

    def forward(self, logits, target):
        log_sum = torch.log(torch.exp(logits).sum(dim=-1))
        return (log_sum - logits.gather(1, target.unsqueeze(1)).squeeze(1)).mean()


class SumsTheRows(nn.Module):
    """Sum over rows instead of their mean."""

    def forward(self, logits, target):
        return nn.functional.cross_entropy(logits, target, reduction="sum")


class SmoothsTheLabels(nn.Module):
    """One hundredth of the weight is spread over all classes."""

    def forward(self, logits, target):
        return nn.functional.cross_entropy(logits, target, label_smoothing=0.01)


class TakesTheNextClass(nn.Module):
    """Picks the logit beside the target."""

    def forward(self, logits, target):
        return nn.functional.cross_entropy(logits, (target + 1) % logits.shape[1])


class FirstHalfOfTheRows(nn.Module):
    """Averages over half of the rows; unfit for a batch of one, where it equals the reference."""

    def forward(self, logits, target):
        rows = (logits.shape[0] + 1) // 2
        return nn.functional.cross_entropy(logits[:rows], target[:rows])
