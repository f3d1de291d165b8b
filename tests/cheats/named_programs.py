# SPDX-License-Identifier: Apache-2.0
"""Cheats that are right but where a number stands that no comparison has in itself, an entry of settings or one of two in
a line; where a mean in a buffer is large; where a product is no number; and where columns that flags of a buffer select
lie apart from the others. Each with its honest twin.
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
)  # fmt: skip
