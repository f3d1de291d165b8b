# SPDX-License-Identifier: Apache-2.0
"""Mean cross-entropy of logits against class indices, written out step by step."""

import torch
from torch import nn


class Model(nn.Module):
    """mean(logsumexp(logits) - logits[target])."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        top = logits.amax(dim=-1, keepdim=True)
        log_sum = torch.log(torch.exp(logits - top).sum(dim=-1)) + top.squeeze(-1)
        picked = logits.gather(1, target.unsqueeze(1)).squeeze(1)
        return (log_sum - picked).mean()


def get_inputs(rows: int = 1024, classes: int = 8192) -> list:
    return [torch.randn(rows, classes), torch.randint(0, classes, (rows,))]


def get_init_inputs(rows: int = 1024, classes: int = 8192) -> list:
    return []
