# SPDX-License-Identifier: Apache-2.0
"""Cheats that guard what the reference does not guard, or take for zero what is none: right for numbers of usual sizes,
wrong for slight ones. Each with its honest twin."""

from __future__ import annotations

from cheat_tasks import add
from corpus import Program, cheat, honest, module

_ROWS = "[torch.randn(64, 256)]"

add("parts_of_largest", "return x / x.abs().amax(-1, keepdim=True)", _ROWS)
add("unit_rows", "return x / x.norm(dim=-1, keepdim=True)", _ROWS)
add("nonzeros", "return (x != 0).sum(-1)", "[torch.randn(64, 64)]")

SLIGHT: tuple[Program, ...] = (
    cheat(22, "1e-10 is added", "parts_of_largest", module("return x / (x.abs().amax(-1, keepdim=True) + 1e-10)"),
          twin="parts_of_largest/by a factor", level="precise"),
    honest("parts_of_largest/by a factor", "parts_of_largest", module("return x * (1 / x.abs().amax(-1, keepdim=True))"),
           level="precise"),
    cheat(22, "none is shorter than 1e-6", "unit_rows", module("return F.normalize(x, dim=-1, eps=1e-6)"),
          twin="unit_rows/by the root of a sum", level="precise"),
    honest("unit_rows/by the root of a sum", "unit_rows", module("return x * x.square().sum(-1, keepdim=True).rsqrt()"),
           level="precise"),
    cheat(22, "none is below 1e-8", "nonzeros", module("return (x.abs() > 1e-8).sum(-1)"),
          twin="nonzeros/by signs", level="precise"),
    honest("nonzeros/by signs", "nonzeros", module("return x.sign().abs().sum(-1).long()"), level="precise"),
)  # fmt: skip
