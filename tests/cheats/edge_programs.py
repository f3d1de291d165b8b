# SPDX-License-Identifier: Apache-2.0
"""Cheats that are right but for relations that numbers drawn by lot hardly ever have: powers of three, triangular
numbers, a sum of one number with itself, rows of the same numbers in another order, rows whose sum is zero, a corridor
along a volume. Each with its honest twin; so have a ray from a corner of a triangle and points in a line, where rounding
alone decides."""

from __future__ import annotations

from cheat_tasks import add
from corpus import Program, cheat, honest, module

_EIGHTS = "[torch.randint(0, 1000, (256, 8)), torch.randint(0, 1000, (256, 8))]"
_ROOT = "r = (((8 * x.double() + 1).sqrt() - 1) / 2).floor().long()\n"
_FLOOD = ("s = seed & mask\nfor _ in range({}):\n    s = (F.max_pool3d(s.float()[None], 3, 1, 1)[0] > 0) & mask\n"
          "return s")  # fmt: skip

add("threes", "n = torch.zeros_like(x)\nfor _ in range(38):\n    x = x // 3\n    n = n + (x > 0).long()\nreturn n",
    "[torch.randint(1, 2**60, (512,))]")  # fmt: skip
add("row_of_pair",
    "r = torch.zeros_like(x)\nfor k in range(29, -1, -1):\n    t = r + 2 ** k\n"
    "    r = torch.where(t * (t + 1) // 2 <= x, t, r)\nreturn r", "[torch.randint(0, 2**57, (512,))]")  # fmt: skip
add("sum_of_two",
    "later = torch.ones(48, 48, dtype=torch.bool).triu(1)\n"
    "return ((x[:, :, None] + x[:, None] == t[:, None, None]) & later).flatten(1).any(1)",
    "[torch.randint(0, 2**30, (32, 48)), torch.randint(0, 2**31, (32,))]", args="x, t")  # fmt: skip
add("turned_rows", "return torch.stack([(a == b.roll(k, 1)).all(-1) for k in range(8)]).any(0)", _EIGHTS, args="a, b")
add("same_numbers", "return (a.sort(-1).values == b.sort(-1).values).all(-1)", _EIGHTS, args="a, b")
add("shares_of_sum", "s = x.sum(-1, keepdim=True)\nreturn torch.where(s == 0, 0.0, x / torch.where(s == 0, 1.0, s))",
    "[torch.randn(32, 16) + 1.0]")  # fmt: skip
_MEETS = """
def cr(p, q):
    return p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]
def dot(p, q):
    return p[0] * q[0] + p[1] * q[1] + p[2] * q[2]
o, d, a, b, c = (k.unbind(-1) for k in (o, d, a, b, c))
e, g, s = ([i - j for i, j in zip(k, a)] for k in (b, c, o))
h, q = cr(d, g), cr(s, e)
det = dot(e, h)
ok = det.abs() > 1e-8
f = torch.where(ok, det, 1.0).reciprocal()
u, v, t = f * dot(s, h), f * dot(d, q), f * dot(g, q)
hit = {}
return hit, t.masked_fill(~hit, 0.0)
"""
add("ray_meets", """
e, g, s = b - a, c - a, o - a
h, q = torch.linalg.cross(d, g), torch.linalg.cross(s, e)
det = (e * h).sum(-1)
ok = det.abs() > 1e-8
f = 1 / torch.where(ok, det, torch.ones_like(det))
u, v, t = (f * (x * y).sum(-1) for x, y in ((s, h), (d, q), (g, q)))
hit = ok & (u >= 0) & (v >= 0) & (u + v <= 1) & (t > 1e-6)
return hit, torch.where(hit, t, torch.zeros_like(t))
""".strip(), "[torch.randn(1024, 3) for _ in range(5)]", args="o, d, a, b, c")  # fmt: skip
add("volume", _FLOOD.format(150), "[torch.rand(96, 5, 5) < 0.5, torch.rand(96, 5, 5) < 0.02]", args="mask, seed")


def _pair(task: str, said: str, body: str, twin: str, args: str = "x") -> tuple[Program, Program]:
    """A wrong program, and a right one."""
    made = honest(f"{task}/with all of it", task, module(twin, args=args), level="precise")
    return cheat(22, said, task, module(body, args=args), twin=made.name, level="precise"), made


EDGES: tuple[Program, ...] = (
    *_pair("threes", "a logarithm in float64", "return (x.double().log() / 1.0986122886681098).floor().long()",
           "return (x[:, None] >= torch.tensor([3 ** k for k in range(1, 38)])).sum(1)"),
    *_pair("row_of_pair", "a root in float64", f"{_ROOT}return r",
           f"{_ROOT}r = r - (r * (r + 1) // 2 > x).long()\nreturn r + ((r + 1) * (r + 2) // 2 <= x).long()"),
    *_pair("sum_of_two", "one number twice",
           "y = x.sort(1).values\nr = t[:, None] - y\nk = torch.searchsorted(y, r).clamp(max=47)\n"
           "return (y.gather(1, k) == r).any(1)",
           "y = x.sort(1).values\nr = t[:, None] - y\n"
           "n = torch.searchsorted(y, r, right=True) - torch.searchsorted(y, r)\nreturn (n > (r == y).long()).any(1)",
           "x, t"),
    *_pair("turned_rows", "sorted", "return (a.sort(-1).values == b.sort(-1).values).all(-1)",
           "return (torch.cat([b, b], 1).unfold(1, 8, 1)[:, :8] == a[:, None]).all(-1).any(1)", "a, b"),
    *_pair("same_numbers", "by sum, largest and least",
           "return (a.sum(-1) == b.sum(-1)) & (a.amax(-1) == b.amax(-1)) & (a.amin(-1) == b.amin(-1))",
           "return (a.sort(-1, descending=True).values - b.sort(-1, descending=True).values).abs().amax(-1) == 0",
           "a, b"),
    *_pair("shares_of_sum", "1e-30 is added", "return x / (x.sum(-1, keepdim=True) + 1e-30)",
           "s = x.sum(-1, keepdim=True)\nz = s == 0\nreturn (x / (s + z)).masked_fill(z, 0.0)"),
    *_pair("ray_meets", "where it starts beyond 0", _MEETS.format("ok & (u > 0) & (v >= 0) & (u + v <= 1) & (t > 1e-6)"),
           _MEETS.format("ok & (u >= 0) & (v >= 0) & (u + v <= 1) & (t > 1e-6)"), "o, d, a, b, c"),
    *_pair("volume", "in 48 rounds", _FLOOD.format(48), _FLOOD.format(170), "mask, seed"),
)  # fmt: skip
