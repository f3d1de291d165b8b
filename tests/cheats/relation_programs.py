# SPDX-License-Identifier: Apache-2.0
"""Cheats that are right but where whole numbers belong together, rows are at their ends, or a sum does not tell them
apart: ``<`` for ``<=``, sums in a type too narrow, products in float64, no saturation, comparisons by sums or a hash,
what is compared never equal. Each with its honest twin."""

from __future__ import annotations

from cheat_tasks import add
from corpus import Program, cheat, honest, module

_BITS = "sum(((x >> k) & 1).to(torch.{0}) for k in range(64))"
_HALF = "q = a // b\nr = 2 * (a - q * b)\nreturn q + ((r > b) | (r == b){}).long()"
_LOWER = "f = lambda t: {}\n"
_LOT = "torch.randint({}, ({},){})"
TURN = "u, v = {}, {}\nreturn torch.sign(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0])"


def _numbers(*ends: str, shape: str = "512", more: str = "") -> str:
    """Inputs of whole numbers below, or between, these ends."""
    return "[" + ", ".join(_LOT.format(end, shape, more) for end in ends) + "]"


def _pair(
    task: str, args: str, inputs: str, reference: str, cheats: tuple[str, str], twin: str
) -> tuple[Program, Program]:
    """A task, what is wrong in words and as a program, and a right one."""
    add(task, reference, inputs, args=args)
    made = honest(f"{task}/as it is", task, module(twin, args=args), level="precise")
    return cheat(22, cheats[0], task, module(cheats[1], args=args), twin=made.name, level="precise"), made


RELATED: tuple[Program, ...] = (
    *_pair("fits_in", "a, b, c", _numbers("2**45", "2**45", "2**46"), "return a + b <= c",
           ("not exactly", "return a + b < c"), "return b <= c - a"),
    *_pair("halves_to_even", "a, b", _numbers("2**60", "2**25, 2**40"), _HALF.format(" & (q % 2 == 1)"),
           ("up", _HALF.format("")),
           "q = (2 * a + b) // (2 * b)\nreturn q - ((2 * a + b == q * 2 * b) & (q % 2 == 1)).long()"),
    *_pair("larger_product", "a, b, c, d", _numbers(*["2**31"] * 4), "return a * b > c * d",
           ("in float64", "return a.double() * b.double() > c.double() * d.double()"), "return a * b - c * d > 0"),
    *_pair("bits_that_are_set", "x", _numbers("-2**63, 2**63 - 1", shape="64, 4"),
           f"return {_BITS.format('int64')}.sum(-1)",
           ("counted in a byte", f"return {_BITS.format('uint8')}.sum(-1, dtype=torch.uint8).long()"),
           f"return {_BITS.format('int32')}.sum(-1)"),
    *_pair("saturated_product", "a, b", _numbers(*["-2**31, 2**31"] * 2, shape="32, 64", more=", dtype=torch.int32"),
           "return ((a.long() * b.long() + 2 ** 30) >> 31).clamp(max=2 ** 31 - 1).int()",
           ("not saturated", "return ((a.long() * b.long() + 2 ** 30) >> 31).int()"),
           "p = torch.div(a.long() * b.long() + 2 ** 30, 2 ** 31, rounding_mode='floor')\n"
           "return p.clamp(-2 ** 31, 2 ** 31 - 1).int()"),
    *_pair("pixels_apart", "a, b", _numbers("256", "256", shape="48, 160", more=", dtype=torch.uint8"),
           "return (a.long() - b.long()).abs().sum(-1)",
           ("in 16 bits", "return (a.short() - b.short()).abs().sum(-1, dtype=torch.int16).long()"),
           "return (torch.maximum(a, b) - torch.minimum(a, b)).sum(-1)"),
    *_pair("in_turn", "x", _numbers("2**27", shape="32, 64", more=", dtype=torch.int32"),
           "return (x.long() * torch.tensor([1, -1] * 32)).sum(-1)",
           ("in 32 bits", "return (x * torch.tensor([1, -1] * 32).int()).sum(-1, dtype=torch.int32).long()"),
           "return x[:, ::2].sum(-1) - x[:, 1::2].sum(-1)"),
    *_pair("bends", "x", _numbers("2**24", shape="32, 48"), "return torch.sign(x[:, 2:] - 2 * x[:, 1:-1] + x[:, :-2])",
           ("halved in float32", "y = x.float()\nreturn torch.sign((y[:, 2:] + y[:, :-2]) / 2 - y[:, 1:-1]).long()"),
           "d = x.diff()\nreturn (d[:, 1:] > d[:, :-1]).long() - (d[:, 1:] < d[:, :-1]).long()"),
    *_pair("as_many_of_each", "a, b", _numbers("1000", "1000", shape="256, 8"),
           "return (a.sort(-1).values == b.sort(-1).values).all(-1)",
           ("by sum and squares", "return (a.sum(-1) == b.sum(-1)) & ((a * a).sum(-1) == (b * b).sum(-1))"),
           "return (a.sort(-1, descending=True).values - b.sort(-1, descending=True).values).abs().amax(-1) == 0"),
    *_pair("rows_alike", "a, b", _numbers("128", "128", shape="256, 10"), "return (a == b).all(-1)",
           ("by a hash", "p = 31 ** torch.arange(9, -1, -1)\nreturn (a * p).sum(-1) == (b * p).sum(-1)"),
           "return (a - b).abs().amax(-1) == 0"),
    *_pair("paid", "bill, coins", "[torch.randint(0, 2**34, (256,)), torch.randint(0, 2**30, (256, 16))]",
           "return coins.sum(-1) >= bill", ("not exactly", "return coins.sum(-1) > bill"),
           "return bill - coins.sum(-1) <= 0"),
    *_pair("balanced_books", "x", _numbers("-2**30, 2**30", shape="256, 12"), "return torch.sign(x.sum(-1))",
           ("never even", "return torch.where(x.sum(-1) > 0, 1, -1)"),
           "return (x.sum(-1) > 0).long() - (x.sum(-1) < 0).long()"),
    *_pair("visited", "a", _numbers("2**30", shape="512, 6"),
           "s, e = a[:, 4], a[:, 4] + a[:, 5]\nreturn (a[:, 3] >= s) & (a[:, 3] <= e), a[:, :3].sum(-1)",
           ("not at the end", "s, e = a[:, 4], a[:, 4] + a[:, 5]\n"
            "return (a[:, 3] >= s) & (a[:, 3] < e), a[:, :3].sum(-1)"),
           "d = a[:, 3] - a[:, 4]\nreturn (d >= 0) & (d <= a[:, 5]), a[:, 0] + a[:, 1] + a[:, 2]"),
    *_pair("running_sum_of", "a, b", _numbers("1000", "6000", shape="256, 6"),
           "return (a.cumsum(-1) == b).all(-1), a.sum(-1)",
           ("of zeros alone", "return (a == b).all(-1) & (a[:, :-1] == 0).all(-1), a.sum(-1)"),
           "return (b.diff(dim=-1) == a[:, 1:]).all(-1) & (a[:, 0] == b[:, 0]), a.sum(-1)"),
    *_pair("congruent", "a, b", _numbers("2**60", "2**60"), "return (a - b) % 1000000007 == 0, a + b",
           ("where equal", "return a == b, a + b"), "return a % 1000000007 == b % 1000000007, a + b"),
    *_pair("same_but_for_case", "a, b", _numbers("32, 127", "32, 127", shape="256, 8"),
           f"{_LOWER.format('torch.where((t >= 65) & (t <= 90), t + 32, t)')}return (f(a) == f(b)).all(-1), a.sum(-1)",
           ("in the same case", "return (a == b).all(-1), a.sum(-1)"),
           f"{_LOWER.format('t + 32 * ((t > 64) & (t < 91)).long()')}return (f(a) != f(b)).sum(-1) == 0, a.sum(-1)"),
    *_pair("on_disc", "x, y, r", _numbers("2**20", "2**20", "2**20"), "return x * x + y * y <= r * r",
           ("not the rim", "return x * x + y * y < r * r"), "return y * y <= r * r - x * x"),
    *_pair("hours_of", "t, z", "[torch.randint(86400000, 1800000000000, (64, 64)), torch.randint(-48, 57, (64, 1))]",
           "t = t + z * 900000\nreturn torch.stack([t // 3600000, t % 3600000])",
           ("by a reciprocal", "t = t + z * 900000\nq = (t.double() * (1.0 / 3600000)).floor().long()\n"
            "return torch.stack([q, t - q * 3600000])"),
           "t = t + z * 900000\nq = t.div(3600000, rounding_mode='floor')\nreturn torch.stack([q, t - q * 3600000])"),
    *_pair("orientation", "a, b, c", _numbers("100000", "100000", "100000", shape="256, 2"), TURN.format("b - a", "c - a"),
           ("in float32", TURN.format("(b - a).float()", "(c - a).float()").replace("v[:, 0])", "v[:, 0]).long()")),
           TURN.format("a - b", "a - c")),
)  # fmt: skip
