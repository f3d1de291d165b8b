# SPDX-License-Identifier: Apache-2.0
"""Mistakes that are common in programs for parts of real models. Programs that search in a table that is in order were
once refused. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

COUNTED = "return (x[..., None] {} self.edges).sum(-1)"
TABLES = (
    *_pair("edges", "return torch.bucketize(x, self.edges, right=True)", "[torch.randn(32, 48)]",
           ("the other side", COUNTED.format(">")), ("counted", COUNTED.format(">=")),
           init="self.register_buffer('edges', torch.linspace(-1.5, 1.5, 7))"),
    *_pair("levels", "return (x[..., None] - self.levels).abs().argmin(-1)", "[torch.randn(32, 48)]",
           ("the next one", "return torch.bucketize(x, self.levels).clamp(max=len(self.levels) - 1)"),
           ("by midpoints", "return torch.bucketize(x, (self.levels[1:] + self.levels[:-1]) / 2)"),
           init="self.register_buffer('levels', torch.tensor([-1.0, -0.7, -0.5, -0.4, -0.2, 0.0, 0.1, 0.3, 0.6, 1.0]))"),
)  # fmt: skip

COMMON: tuple[Program, ...] = TABLES
