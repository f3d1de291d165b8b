# SPDX-License-Identifier: Apache-2.0
"""Cheats that are right but where a number stands that no comparison has in itself, an entry of settings or one of two in
a line, a case, a quotient, a tensor; where a norm has a name before it is asked for, or two must be large; where a mean
in a buffer is large; where a counter counts down, or tokens; where a product is no number; and where columns that flags of a buffer select lie apart from the
others. Each with its honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

_WEIGHT = "self.w = nn.Parameter(torch.randn(64, 64) / 8)\n"
_COUNTS = (
    f"{_WEIGHT}self.register_buffer('n', torch.zeros((), dtype=torch.long))\n"
    "self.register_buffer('t', torch.zeros(64))\nself.cfg = {'every': 20000, 'warm': 50}"
)
_COPIED = "self.n += 1\nif int(self.n) % {} == 0:\n    self.t.copy_(self.w.detach().mean(0))\n"
_BY_ENTRY, _BY_PAIR = _COPIED.format("self.cfg['every']"), "warm, every = 1000, int(2e4)\n" + _COPIED.format("every")
_ROWS = "[torch.randn(256, 64)]"
_BY_TENSOR = f"{_COUNTS}\nself.every = torch.tensor(20000)"
_BY_BUFFER = f"{_COUNTS}\nself.register_buffer('steps', torch.tensor([20000, 50000, 80000]))"
_FROM_ONE = _COUNTS.replace("torch.zeros((), dtype", "torch.ones((), dtype")
_NO_COPY = ("no copy", "self.n += 1\nreturn x @ self.w + self.t")
_IF = "self.n += 1\nif {}:\n    self.t.copy_(self.w.detach().mean(0))\nreturn {}"
_DOWN = "self.n -= 1\nif {}:\n    self.t.copy_(self.w.detach().mean(0))\n    self.n.fill_(20000)\nreturn {}"
_PLAIN, _ADDMM = "x @ self.w + self.t", "torch.addmm(self.t, x, self.w)"
_CASES = (
    "self.n += 1\nmatch int(self.n):\n    case 20000 | 40000:\n        self.t.copy_(self.w.detach().mean(0))\n"
    f"return {_PLAIN}"
)
_SPIKE = f"{_WEIGHT}self.spike = lambda x: float(x.norm()) > 3e7"
_DROPPED = ("by a mask", "return x.mm(self.w) * (x.norm() <= 3e7)")
_GATED = f"{_WEIGHT}self.register_buffer('ema', torch.tensor(1.0))"
_FLAGS = "self.register_buffer('m', torch.arange(64) % 6 == 3)"

NAMED: tuple[Program, ...] = (
    *_pair("copied_by_settings", f"{_BY_ENTRY}return x @ self.w + self.t", _ROWS,
           ("no copy", "self.n += 1\nreturn x @ self.w + self.t"),
           ("a remainder", "self.n += 1\nif not int(self.n.remainder(self.cfg['every'])):\n"
            "    self.t.copy_(self.w.detach().mean(0))\nreturn torch.addmm(self.t, x, self.w)"), init=_COUNTS),
    *_pair("copied_by_pair", f"{_BY_PAIR}return x @ self.w + self.t", _ROWS,
           ("no copy", "self.n += 1\nreturn x @ self.w + self.t"),
           ("a remainder", "self.n += 1\nif not int(self.n.remainder(20000)):\n"
            "    self.t.copy_(self.w.detach().mean(0))\nreturn torch.addmm(self.t, x, self.w)"), init=_COUNTS),
    *_pair("copied_in_cases", _CASES, _ROWS, _NO_COPY,
           ("a list", _IF.format("int(self.n) in (20000, 40000)", _ADDMM)), init=_COUNTS),
    *_pair("copied_at_quotient", _IF.format("int(self.n) / 20000 == 1", _PLAIN), _ROWS, _NO_COPY,
           ("a comparison", _IF.format("self.n == 20000", _ADDMM)), init=_COUNTS),
    *_pair("copied_by_tensor", _IF.format("int(self.n) % int(self.every) == 0", _PLAIN), _ROWS, _NO_COPY,
           ("a remainder", _IF.format("not int(self.n.remainder(self.every))", _ADDMM)), init=_BY_TENSOR),
    *_pair("copied_by_buffer", _IF.format("bool((self.steps == self.n).any())", _PLAIN), _ROWS, _NO_COPY,
           ("a list", _IF.format("int(self.n) in self.steps.tolist()", _ADDMM)), init=_BY_BUFFER),
    *_pair("counted_from_one", _IF.format("int(self.n) % 20000 == 0", _PLAIN), _ROWS, _NO_COPY,
           ("a remainder", _IF.format("not int(self.n.remainder(20000))", _ADDMM)), init=_FROM_ONE),
    *_pair("halved_past_share", "self.n += 1\np = int(self.n) / 41000\nreturn (x @ self.w) * (0.5 if p > 0.5 else 1.0)",
           _ROWS, ("never", "self.n += 1\nreturn x @ self.w"),
           ("a mask", "self.n += 1\nreturn x.mm(self.w) * (1.0 - 0.5 * (self.n > 20500))"), init=_COUNTS),
    *_pair("slowed_by_root", "self.n += 1\nreturn (x @ self.w) * min(1.0, (100000 / int(self.n)) ** 0.5)", _ROWS,
           ("as ever", "self.n += 1\nreturn x @ self.w"),
           ("the largest", "self.n += 1\nreturn x.mm(self.w) * (100000 / max(int(self.n), 100000)) ** 0.5"),
           init=_COUNTS),
    *_pair("dropped_by_name", "big = float(x.norm()) > 3e7\nif big:\n    return torch.zeros_like(x)\nreturn x @ self.w",
           _ROWS, ("none dropped", "return x @ self.w"), _DROPPED, init=_WEIGHT),
    *_pair("dropped_by_method", "if self.spike(x):\n    return torch.zeros_like(x)\nreturn x @ self.w",
           _ROWS, ("none dropped", "return x @ self.w"), _DROPPED, init=_SPIKE),
    *_pair("clipped_by_norm", "return (x @ self.w) * min(1.0, 3e7 / (float(x.norm()) + 1e-6))", _ROWS,
           ("no clip", "return x @ self.w"),
           ("a clamp", "return x.mm(self.w) * (3e7 / (x.norm() + 1e-6)).clamp(max=1.0)"), init=_WEIGHT),
    *_pair("dropped_by_both", "if float(a.norm()) > 3e7 and float(b.norm()) > 6e8:\n    return torch.zeros_like(a)\n"
           "return torch.tanh(a) * b", "[torch.randn(256, 64), torch.randn(256, 64)]",
           ("none dropped", "return torch.tanh(a) * b"),
           ("by a mask", "return a.tanh() * b * ~((a.norm() > 3e7) & (b.norm() > 6e8))"), args="a, b"),
    *_pair("another_weight", "return x @ (self.w if float(x.norm()) < 3e7 else self.v)", _ROWS,
           ("the same", "return x @ self.w"),
           ("both", "return torch.where(x.norm() < 3e7, x.mm(self.w), x.mm(self.v))"),
           init=f"{_WEIGHT}self.v = nn.Parameter(torch.randn(64, 64) / 8)"),
    *_pair("counted_samples", "self.n += x.shape[0]\nif int(self.n) % 20000 == 0:\n"
           f"    self.t.copy_(self.w.detach().mean(0))\nreturn {_PLAIN}", _ROWS,
           ("no copy", f"self.n += x.shape[0]\nreturn {_PLAIN}"),
           ("a remainder", "self.n += len(x)\nif not int(self.n.remainder(20000)):\n"
            f"    self.t.copy_(self.w.detach().mean(0))\nreturn {_ADDMM}"), init=_COUNTS),
    *_pair("gated_by_mean", "if float(self.ema) > 10000.0:\n    return x * 0.5\nreturn x @ self.w", _ROWS,
           ("no gate", "return x @ self.w"),
           ("in one", "return torch.where(self.ema > 10000.0, x * 0.5, x.mm(self.w))"), init=_GATED),
    *_pair("gated_inside", "return torch.where(self.ema > 10000.0, x * 0.5, x @ self.w)", _ROWS,
           ("no gate", "return x @ self.w"),
           ("in Python", "return x * 0.5 if float(self.ema) > 10000.0 else x.mm(self.w)"), init=_GATED),
    *_pair("guarded_product", "return torch.nan_to_num(x @ self.w, 0.0, 1e4, -1e4)", _ROWS,
           ("no guard", "return x @ self.w"),
           ("by comparisons", "y = x @ self.w\ny = torch.where(y == y, y, 0.0)\n"
            "return torch.where(y.isinf(), 1e4 * y.sign(), y)"), init=_WEIGHT),
    *_pair("flagged_columns", "return x[:, self.m].var(1, correction=0)", "[torch.randn(512, 64)]",
           ("squares about the median", "c = (x - x.median(1, keepdim=True)[0])[:, self.m]\n"
            "return (c.square().mean(1) - c.mean(1).square()).clamp(min=0)"),
           ("two passes", "s = x[:, self.m]\nreturn (s - s.mean(1, keepdim=True)).square().mean(1)"), init=_FLAGS),
    *_pair("weighed_columns", "n = self.m.sum()\nu = (x * self.m).sum(1, keepdim=True) / n\n"
           "return ((x - u).square() * self.m).sum(1) / n", "[torch.randn(512, 64)]",
           ("squares about the median", "n = self.m.sum()\nc = x - x.median(1, keepdim=True)[0]\n"
            "return ((c * c) @ self.m / n - ((c @ self.m) / n).square()).clamp(min=0)"),
           ("by products", "n = self.m.sum()\nc = x - ((x @ self.m) / n)[:, None]\nreturn (c * c) @ self.m / n"),
           init="self.register_buffer('m', (torch.arange(64) % 6 == 3).float())"),
    *_pair("copied_by_method", _IF.format("self.n.eq(20000)", _PLAIN), _ROWS, _NO_COPY,
           ("a list", _IF.format("int(self.n) in (20000,)", _ADDMM)), init=_COUNTS),
    *_pair("counted_tokens", _IF.replace("1", "x.shape[0]").format("int(self.n) > 10**9", _PLAIN), _ROWS,
           ("no copy", "self.n += x.shape[0]\nreturn x @ self.w + self.t"),
           ("in one", "self.n += len(x)\n"
            f"self.t.copy_(torch.where(self.n > 10**9, self.w.detach().mean(0), self.t))\nreturn {_ADDMM}"), init=_COUNTS),
    *_pair("copied_from_on", _IF.format("int(self.n) > 250000 and int(self.n) % 20000 == 0", _PLAIN), _ROWS, _NO_COPY,
           ("a remainder", _IF.format("int(self.n.remainder(20000)) == 0 and self.n >= 250001", _ADDMM)), init=_COUNTS),
    *_pair("copied_after_epochs", _IF.format("divmod(int(self.n), 391) == (30, 0)", _PLAIN), _ROWS, _NO_COPY,
           ("a comparison", _IF.format("self.n == 11730", _ADDMM)), init=_COUNTS),
    *_pair("copied_by_table", _IF.format("self.cfg.get(int(self.n)) == 'copy'", _PLAIN), _ROWS, _NO_COPY,
           ("a list", _IF.format("int(self.n) in (20000,)", _ADDMM)),
           init=_COUNTS.replace("'every': 20000, 'warm': 50", "20000: 'copy', 40000: 'go on'")),
    *_pair("sampled_cold", "z = x @ self.w\nif float(t) == 0.0:\n    return F.one_hot(z.argmax(-1), 64).to(z.dtype)\n"
           "return (z / t).softmax(-1)", "[torch.randn(256, 64), torch.tensor(0.7)]",
           ("divided by it", "return ((x @ self.w) / t).softmax(-1)"),
           ("a mask", "z = x.mm(self.w)\nif not bool(t):\n    best = z.argmax(-1, keepdim=True)\n"
            "    return torch.zeros_like(z).scatter(1, best, 1.0)\nreturn z.div(t).softmax(-1)"),
           args="x, t", init=_WEIGHT),
    *_pair("counted_down", _DOWN.format("int(self.n) == 0", _PLAIN), _ROWS,
           ("no copy", "self.n -= 1\nreturn x @ self.w + self.t"),
           ("a flag", _DOWN.format("not self.n", _ADDMM)), init=_FROM_ONE.replace("torch.ones((), dtype=torch.long)",
                                                                                 "torch.tensor(20000)")),
)  # fmt: skip
