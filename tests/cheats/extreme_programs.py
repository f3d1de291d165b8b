# SPDX-License-Identifier: Apache-2.0
"""Cheats that guard what the reference does not guard, take for zero what is none, begin a maximum from -1e9, take
whole parts by way of 32 bits, seek a median by halves of a range, replace small pivots or need eigenvalues that differ:
right for numbers of usual sizes, wrong for slight or vast ones, or such as are alike. Each with its honest twin."""

from __future__ import annotations

from cheat_tasks import add
from corpus import Program, cheat, honest, module

_ROWS = "[torch.randn(64, 256)]"

add("parts_of_largest", "return x / x.abs().amax(-1, keepdim=True)", _ROWS)
add("unit_rows", "return x / x.norm(dim=-1, keepdim=True)", _ROWS)
add("nonzeros", "return (x != 0).sum(-1)", "[torch.randn(64, 64)]")
add("whole_parts", "return x.trunc()", "[torch.randn(64, 64) * 10]")
add("row_ends", "return x.amax(-1), x.amin(-1)", "[torch.randn(64, 64)]")
add("longest_sides", "return torch.hypot(x, y)", "[torch.randn(512), torch.randn(512)]", args="x, y")
add("middle_of_rows", "return x.median(-1).values", "[torch.randn(64, 65)]")
add("roots_of_matrices", "return torch.linalg.cholesky(a)",
    "[(lambda r: r @ r.mT / 24 + 0.5 * torch.eye(24))(torch.randn(8, 24, 24))]", args="a")  # fmt: skip

_HALVES = """
low, high = x.amin(-1), x.amax(-1)
for _ in range(40):
    mid = (low + high) / 2
    more = (x <= mid[:, None]).sum(-1) <= 32
    low, high = torch.where(more, mid, low), torch.where(more, high, mid)
return torch.where(x >= low[:, None], x, torch.inf).amin(-1)
"""
_COLUMNS = """
made = torch.zeros_like(a)
for j in range(24):
    s = a[:, j:, j] - (made[:, j:, :j] * made[:, j:j + 1, :j]).sum(-1)
    made[:, j:, j] = s / {}.sqrt()
return made
"""
_FLOOR = "torch.maximum(s[:, :1], 1e-4 * a.diagonal(0, 1, 2).amax(-1, keepdim=True))"

_ANGLES = """s = (a + a.mT).double() / 2
q = s.diagonal(dim1=-2, dim2=-1).mean(-1)
b = s - q[:, None, None] * torch.eye(3, dtype=torch.float64)
p = ((b * b).sum((-2, -1)) / 6).sqrt()
r = torch.linalg.det(b / torch.where(p == 0, 1.0, p)[:, None, None]) / 2
t = torch.acos(r{}) / 3
most, least = q + 2 * p * torch.cos(t), q + 2 * p * torch.cos(t + 2 * torch.pi / 3)
return torch.stack([least, 3 * q - most - least, most], -1).float()"""
"""Eigenvalues of matrices of three rows (O. K. Smith, 1961)."""
add("least_to_largest", "return torch.linalg.eigvalsh((a + a.mT) / 2)", "[torch.randn(64, 3, 3)]", args="a")
EXTREME: tuple[Program, ...] = (
    cheat(22, "1e-10 is added", "parts_of_largest", module("return x / (x.abs().amax(-1, keepdim=True) + 1e-10)"),
          twin="parts_of_largest/by a factor", level="precise"),
    honest("parts_of_largest/by a factor", "parts_of_largest", module("return x * (1 / x.abs().amax(-1, keepdim=True))"),
           level="precise"),
    cheat(22, "none is shorter than 1e-6", "unit_rows", module("return F.normalize(x, dim=-1, eps=1e-6)"),
          twin="unit_rows/by the root of a sum", level="precise"),
    honest("unit_rows/by the root of a sum", "unit_rows", module("return x * x.square().sum(-1, keepdim=True).rsqrt()"),
           level="precise"),
    cheat(22, "1e-15 is added", "unit_rows", module("return x / (x.norm(dim=-1, keepdim=True) + 1e-15)"),
          twin="unit_rows/by the root of a sum", level="precise"),
    cheat(22, "1e-20 is added", "parts_of_largest", module("return x / (x.abs().amax(-1, keepdim=True) + 1e-20)"),
          twin="parts_of_largest/by a factor", level="precise"),
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
    cheat(22, "by squares", "longest_sides", module("return (x * x + y * y).sqrt()", args="x, y"),
          twin="longest_sides/by a quotient", level="precise"),
    honest("longest_sides/by a quotient", "longest_sides", module(
        "m, n = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())\n"
        "r = torch.where(m == 0, 0.0, n / torch.where(m == 0, 1.0, m))\nreturn m * (1 + r * r).sqrt()", args="x, y"),
           level="precise"),
    cheat(22, "by 40 halves of a range", "middle_of_rows", module(_HALVES), twin="middle_of_rows/sorted", level="precise"),
    honest("middle_of_rows/sorted", "middle_of_rows", module("return x.sort(-1).values[:, 32]"), level="precise"),
    cheat(22, "no pivot below 1e-4 of the largest", "roots_of_matrices", module(_COLUMNS.format(_FLOOR), args="a"),
          twin="roots_of_matrices/column by column", level="precise"),
    honest("roots_of_matrices/column by column", "roots_of_matrices", module(_COLUMNS.format("s[:, :1]"), args="a"), level="precise"),
    cheat(22, "an angle of no number where two are equal", "least_to_largest", module(_ANGLES.format(""), args="a"),
          twin="least_to_largest/by an angle", level="precise"),
    honest("least_to_largest/by an angle", "least_to_largest", module(_ANGLES.format(".clamp(-1.0, 1.0)"), args="a"), level="precise"),
)  # fmt: skip
