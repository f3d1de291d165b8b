# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong with weights that a checkpoint may hold and no constructor gives: a parameter of zeros, a
bound where there was none, unused codes, groups in another order, a filter that is off, a third mode. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

WEIGHT = "self.w = nn.Parameter(torch.randn(64, 64) / 8)\n"
X = "[torch.randn(256, 64)]"
CODED = "return x @ ((self.w / s).round() * s)"
CODES = (
    "self.register_buffer('cluster', torch.ones(128))\nself.register_buffer('avg', torch.randn(128, 32))\n"
    "self.e = nn.Parameter(torch.randn(128, 32))"
)
GROUPS = (
    "self.register_buffer('q', torch.randint(-8, 8, (64, 64), dtype=torch.int8))\n"
    "self.register_buffer('s', torch.rand(4, 64) / 16 + 0.01)\nself.register_buffer('g', torch.arange(64) // 16)"
)
KEPT = "x.masked_fill(x < x.topk(k, -1).values[:, -1:], float('-inf'))"
MODE = "y, m = x @ self.w, int(self.mode)"
DIVIDED = "c = self.cluster[:, None]\nreturn torch.where(c > 0, self.avg / c, self.e)[i]"

REPLACED: tuple[Program, ...] = (
    *_pair("zero_scale", f"s = (self.w.abs().amax() / 127).clamp(min=1e-8)\n{CODED}", X,
           ("no clamp", f"s = self.w.abs().amax() / 127\n{CODED}"),
           ("a maximum", f"s = self.w.abs().amax().div(127).clamp_min(1e-8)\n{CODED}"), init=WEIGHT),
    *_pair("no_bound_yet", "return torch.minimum(x @ self.w, self.cap)", X,
           ("no bound", "return x @ self.w"), ("clamped", "return (x @ self.w).clamp(max=self.cap)"),
           init=f"{WEIGHT}self.register_buffer('cap', torch.tensor(float('inf')))"),
    *_pair("unused_codes", DIVIDED, "[torch.randint(0, 128, (256,))]",
           ("always divided", "return (self.avg / self.cluster[:, None])[i]"),
           ("rows first",
            "c = self.cluster[i][:, None]\nreturn torch.where(c > 0, self.avg[i] / c, self.e[i])"),
           args="i", init=CODES),
    *_pair("groups_of_rows", "return x @ (self.q.to(x.dtype) * self.s[self.g])", X,
           ("in order", "return x @ (self.q.to(x.dtype) * self.s.repeat_interleave(16, 0))"),
           ("by index", "return x @ (self.q.to(x.dtype) * self.s.index_select(0, self.g))"), init=GROUPS, slow=True),
    *_pair("filter_off", f"k = int(self.k)\nif k > 0:\n    x = {KEPT}\nreturn x.softmax(-1)", X,
           ("one at the least", f"k = max(int(self.k), 1)\nreturn ({KEPT}).softmax(-1)"),
           ("off first", f"k = int(self.k)\nif k <= 0:\n    return x.softmax(-1)\nreturn ({KEPT}).softmax(-1)"),
           init="self.register_buffer('k', torch.tensor(5))"),
    *_pair("three_modes", f"{MODE}\nif m == 0:\n    return y\nreturn F.relu(y) if m == 1 else F.gelu(y)", X,
           ("two of them", f"{MODE}\nreturn F.relu(y) if m == 1 else y"),
           ("by turns", f"{MODE}\nif m == 1:\n    return y.relu_()\nreturn F.gelu(y) if m else y"),
           init=f"{WEIGHT}self.register_buffer('mode', torch.tensor(1))"),
)  # fmt: skip
