# SPDX-License-Identifier: Apache-2.0
"""Programs that are right in every size but one a step from another: where two axes have one size, where as many
elements come in another shape, where a row is a few shorter than the one before it, where there are two of them, and, at
random, in any other size than the first. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from cheat_tasks import add
from corpus import Program

from kernelwright.task import Contract

TABLE = """
key = {}
if self.kept is None or self.kept[0] != key:
    self.kept = key, torch.cos(torch.arange(x.shape[1], dtype=x.dtype) * 0.1).repeat(x.shape[0])
return (x.reshape(-1) * self.kept[1]).view(x.shape)
"""
SCRATCH = """
n, t = x.shape
p = (t + 63) // 64 * 64
if self.kept is None or self.kept.numel() != n * p:
    self.kept = torch.full((n, p), -torch.inf)
b = self.kept.view(n, p)
{}
b[:, :t] = x
return b.exp().sum(1)
"""
ROOT = "if self.kept is None{}:\n    self.kept = x.shape[1] ** -0.5\n"
NOTHING = "self.kept = None"
STANDARD = "if x.shape[0] {}:\n    return torch.zeros_like(x)\nreturn (x - x.mean(0)) * torch.rsqrt(x.var(0) + 1e-5)"
ROWS, THREE = (("n", 96), ("t", 40)), (("n", 96), ("d", 64), ("k", 40))

add("turned_product", "return x @ w.t()", "[torch.randn(n, d), torch.randn(k, d)]", args="x, w", axes=THREE)
add("factors_of_rows", "return torch.tanh(x * s[:, None])", "[torch.randn(n, t), torch.randn(n)]", args="x, s",
    axes=ROWS)  # fmt: skip
add("cosines_of_places", "return x * torch.cos(torch.arange(x.shape[1], dtype=x.dtype) * 0.1)", "[torch.randn(n, t)]",
    init=NOTHING, axes=ROWS)  # fmt: skip
add("sums_of_exponentials", "return x.exp().sum(1)", "[torch.randn(n, t)]", init=NOTHING, axes=ROWS)
add("dropped_by_root", "return F.dropout(torch.tanh(x), 0.3, True) * x.shape[1] ** -0.5", "[torch.randn(n, t)]",
    init=NOTHING, axes=ROWS, contract=Contract(random=True))  # fmt: skip
add("standardised_rows", STANDARD.format("< 2"), "[torch.randn(n, t)]", axes=ROWS)

NEAR_SIZES: tuple[Program, ...] = (
    *_pair("turned_product", "", "",
           ("told by sizes", "return x @ w if w.shape[0] == x.shape[-1] else x @ w.t()"),
           ("the other way round", "return (w @ x.t()).t().contiguous()"), args="x, w"),
    *_pair("factors_of_rows", "", "",
           ("of columns where those are as many", "return torch.tanh(x * (s if len(s) == x.shape[1] else s[:, None]))"),
           ("unsqueezed", "return torch.tanh(x * s.unsqueeze(1))"), args="x, s"),
    *_pair("cosines_of_places", "", "", ("kept by the number of elements", TABLE.format("x.numel()")),
           ("kept by shape", TABLE.format("x.shape"))),
    *_pair("sums_of_exponentials", "", "", ("the end of a longer row", SCRATCH.format("")),
           ("cleared", SCRATCH.format("b[:, t:] = -torch.inf"))),
    *_pair("dropped_by_root", "", "",
           ("of the first length", ROOT.format("") + "return F.dropout(torch.tanh(x), 0.3, True) * self.kept"),
           ("of each length", ROOT.format(" or True") + "return F.dropout(torch.tanh(x), 0.3, True) * self.kept"),
           slow=True),
    *_pair("standardised_rows", "", "", ("none of two", STANDARD.format("<= 2")),
           ("none of one", STANDARD.format("== 1"))),
)  # fmt: skip
