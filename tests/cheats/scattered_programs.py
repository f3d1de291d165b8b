# SPDX-License-Identifier: Apache-2.0
"""Sums whose places whole numbers name, as programs on graphs and tables make them: rows put, scattered and reduced,
shares of a bag or of attention over edges. The honest ones were refused where all ids are one, as a sum of many equal
addends is as wrong as rounding makes it, or where another order of them was as good, or where a place came twice in a
row of such as differ. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

ROWS = "[torch.randn(400, 8), torch.randint(0, 20, (400,))]"
AT = "i[:, None].expand(-1, x.shape[1])"
ZEROS = "torch.zeros(20, x.shape[1])"
SHORT = f"return {ZEROS}.index_add(0, i, x.bfloat16().float())"
COUNTS = "n = torch.bincount(i, minlength=20).clamp(min=1)\n"
REDUCED = (
    *_pair("reduced_sums", f"return {ZEROS}.scatter_reduce(0, {AT}, x, 'sum')", ROWS, ("of 16 bits", SHORT),
           ("sorted from the end", "j = i.flip(0)\nk = j.argsort(stable=True)\n"
            f"return {ZEROS}.index_add(0, j[k], x.flip(0)[k])"), args="x, i"),
    *_pair("reduced_means", f"return {ZEROS}.scatter_reduce(0, {AT}, x, 'mean', include_self=False)", ROWS,
           ("of 16 bits", f"{COUNTS}{SHORT} / n[:, None]"),
           ("shares added up", f"{COUNTS}return {ZEROS}.index_add(0, i, x / n[i][:, None])"), args="x, i", slow=True),
    *_pair("put_sums", f"return {ZEROS}.index_put((i,), x, accumulate=True)", ROWS, ("of 16 bits", SHORT),
           ("thirds added up", f"return {ZEROS}.index_add(0, i, x / 3.0) * 3.0"), args="x, i", slow=True),
    *_pair("written_sums", f"return {ZEROS}.index_add_(0, i, x / 3.0)", ROWS, ("of 16 bits", f"{SHORT} / 3.0"),
           ("divided once", f"return {ZEROS}.index_add(0, i, x) / 3.0"), args="x, i", slow=True),
)  # fmt: skip

BAGS = _pair(
    "bag_means", "return F.embedding_bag(i, self.t, mode='mean')", "[torch.randint(0, 30, (16, 200))]",
    ("of 16 bits", "return self.t.bfloat16().float()[i].mean(1)"),
    ("shares added up", "y = torch.zeros(i.shape[0], 8)\nt = self.t / i.shape[1]\n"
     "for k in i.unbind(1):\n    y += t[k]\nreturn y"), args="i", init="self.t = nn.Parameter(torch.randn(30, 8))")  # fmt: skip

SCORES = """
h = self.fc(x).view(-1, 2, 8)
s = F.leaky_relu((h * self.a).sum(-1)[e[0]] + (h * self.b).sum(-1)[e[1]], 0.2)
m = torch.full((x.shape[0], 2), -torch.inf).scatter_reduce(0, e[1][:, None].expand(-1, 2), s, 'amax')
w = torch.exp(s - m[e[1]])
"""
TOTAL = "z = torch.zeros(x.shape[0], 2).index_add_(0, e[1], w)\n"
ADDED = "torch.zeros_like(h).index_add_(0, e[1], h[e[0]] * w[..., None])"
EDGES = _pair(
    "edge_attention", f"{SCORES}{TOTAL}w = w / (z[e[1]] + 1e-16)\nreturn {ADDED}.flatten(1)",
    "[torch.randn(20, 16), torch.randint(0, 20, (2, 80))]",
    ("of 16 bits", f"{SCORES}w = w.bfloat16().float()\n{TOTAL}return ({ADDED} / (z + 1e-16)[..., None]).flatten(1)"),
    ("divided once", f"{SCORES}{TOTAL}return ({ADDED} / (z + 1e-16)[..., None]).flatten(1)"), args="x, e", slow=True,
    init="self.fc = nn.Linear(16, 16, bias=False)\nself.a = nn.Parameter(torch.randn(2, 8))\n"
    "self.b = nn.Parameter(torch.randn(2, 8))")  # fmt: skip

VOTES = "[torch.randint(0, 4, (200,)).float(), torch.randint(0, 20, (200,))]"
REACHED = (
    *_pair("votes_reached", "return torch.zeros(20).index_put_((i,), x, accumulate=True) >= 15.0", VOTES,
           ("passed", "return torch.zeros(20).index_add(0, i, x) > 15.0"),
           ("by matrix", "return (F.one_hot(i, 20).float() * x[:, None]).sum(0) >= 15.0"), args="x, i"),
    *_pair("votes_counted", "return torch.zeros(20).scatter_reduce_(0, i, x, 'sum') >= 15.0", VOTES,
           ("passed", "return torch.zeros(20).index_add(0, i, x) > 15.0"),
           ("added", "return torch.zeros(20).index_add(0, i, x) >= 15.0"), args="x, i", slow=True),
)  # fmt: skip
"""Sums of whole numbers are exact, so what one of them reaches is."""

MEAN = "'mean', include_self=False"
ROW_MEANS = _pair(
    "row_means", f"return torch.zeros(20, 4).index_reduce(0, i, x, {MEAN})",
    "[torch.rand(3000, 4), torch.randint(0, 20, (3000,))]",
    ("of 16 bits", f"return torch.zeros(20, 4).index_reduce(0, i, x.half().float(), {MEAN})"),
    ("added from the end", f"{COUNTS}return torch.zeros(20, 4).index_add(0, i.flip(0), x.flip(0)) / n[:, None]"),
    args="x, i", slow=True)  # fmt: skip

BUTTERFLIES = """
y, h = x, 1
while h < y.shape[-1]:
    a, b = y.unflatten(-1, (-1, 2, h)).unbind(-2)
    y = torch.stack([a + b, a - b], -2).flatten(-3)
    h *= 2
return y
"""
MATRIX = """
m = torch.ones(1, 1)
while len(m) < x.shape[-1]:
    m = torch.cat([torch.cat([m, m], 1), torch.cat([m, -m], 1)])
return {} @ m
"""
TREES = _pair("walsh_hadamard", BUTTERFLIES, "[torch.randn(32, 256)]",
              ("of 16 bits", MATRIX.format("x.half().float()")), ("by matrix", MATRIX.format("x")))  # fmt: skip
"""A tree of adds is a sum, or a product with a matrix."""

PRODUCTS = _pair(
    "running_products", "return (1 + 0.01 * x).cumprod(-1)", "[torch.randn(8, 200)]",
    ("of 16 bits", "return (1 + 0.01 * x).half().float().cumprod(-1)"),
    ("one by one", "y = (1 + 0.01 * x).unbind(-1)\no = [y[0]]\nfor k in y[1:]:\n    o.append(o[-1] * k)\n"
     "return torch.stack(o, -1)"))  # fmt: skip

INVERSE = """
b, n = p.shape
r = torch.empty_like(p).scatter_(1, {}, torch.arange(n).expand(b, n))
return torch.gather(x, 1, r[..., None].expand_as(x)) * 2.0
"""
SHUFFLED = "r = torch.argsort(p, 1)\nreturn torch.gather(x, 1, r[..., None].expand_as(x)) * 2.0"
PLACED = "return torch.zeros(x.shape[0], 64).{}(1, i{}, torch.tanh(x))"
APART = (
    *_pair("unshuffled", SHUFFLED, "[torch.randn(8, 16, 8), torch.rand(8, 16).argsort(1)]",
           ("of the first sample", INVERSE.format("p[:1].expand(b, n)")), ("written to its places", INVERSE.format("p")),
           args="x, p"),
    *_pair("put_in_places", PLACED.format("scatter", ""), "[torch.randn(16, 24), torch.rand(16, 64).topk(24, 1)[1]]",
           ("of the first row", PLACED.format("scatter", "[:1].expand_as(x)")),
           ("added to nothing", PLACED.format("scatter_add", "")), args="x, i"),
)  # fmt: skip
"""Rows of permutations, and of places of which none comes twice in a row."""

SCATTERED: tuple[Program, ...] = (*REDUCED, *BAGS, *EDGES, *REACHED, *ROW_MEANS, *TREES, *PRODUCTS, *APART)
