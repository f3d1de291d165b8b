# SPDX-License-Identifier: Apache-2.0
"""Cheats that guard what the reference does not guard, take for zero what is none, begin a maximum from -1e9, or take
whole parts by way of 32 bits: right for numbers of usual sizes, wrong for slight or vast ones. Each with its honest
twin."""

from __future__ import annotations

from cheat_tasks import add
from corpus import Program, cheat, honest, module

_ROWS = "[torch.randn(64, 256)]"

add("parts_of_largest", "return x / x.abs().amax(-1, keepdim=True)", _ROWS)
add("unit_rows", "return x / x.norm(dim=-1, keepdim=True)", _ROWS)
add("nonzeros", "return (x != 0).sum(-1)", "[torch.randn(64, 64)]")
add("whole_parts", "return x.trunc()", "[torch.randn(64, 64) * 10]")
add("row_ends", "return x.amax(-1), x.amin(-1)", "[torch.randn(64, 64)]")

EXTREME: tuple[Program, ...] = (
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
    cheat(22, "by way of int32", "whole_parts", module("return x.to(torch.int32).to(x.dtype)"),
          twin="whole_parts/by floors", level="precise"),
    honest("whole_parts/by floors", "whole_parts", module("return torch.where(x < 0, -(-x).floor(), x.floor())"),
           level="precise"),
    cheat(22, "no largest below -1e9", "row_ends", module("return x.amax(-1).clamp(min=-1e9), x.amin(-1)"),
          twin="row_ends/sorted", level="precise"),
    cheat(22, "no smallest above 1e4", "row_ends", module("return x.amax(-1), x.amin(-1).clamp(max=1e4)"),
          twin="row_ends/sorted", level="precise"),
    honest("row_ends/sorted", "row_ends", module("s = x.sort(-1).values\nreturn s[:, -1], s[:, 0]"), level="precise"),
)  # fmt: skip
