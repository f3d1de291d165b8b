# SPDX-License-Identifier: Apache-2.0
"""Programs that are right while floats do not lie apart by classes which the reference makes of whole numbers, or which
buffers hold: every sixteenth of the ids, what a map says of them, columns that indices take, labels. And such as leave
out what Python does at a number of a list, or what a norm or a clamp does to weights that are far larger than a
constructor makes them; and both in cases of more multiply-adds. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

from kernelwright.task import Contract

_IDS = "[torch.randint(0, {}, (512,)), torch.randn(512, 16)]"
_HOT = "h = F.one_hot(k, {}).to(x.dtype)\nn = h.sum(0).clamp(min=1)[:, None]\n"
_ABOUT = "c = x - torch.stack([x[64], x[128], x[192]]).median(0)[0]\nu = (h.T @ c) / n\n"
_SQUARES = f"{_ABOUT}v = ((h.T @ (c * c)) / n - u * u).clamp(min=0)\n"
_TWICE = "u = (h.T @ x) / n\nd = x - u[k]\nv = (h.T @ (d * d)) / n\n"
_ADDED = (
    "n = torch.bincount(k, minlength={0}).clamp(min=1)[:, None]\nu = x.new_zeros({0}, x.shape[1]).index_add(0, k, x)\n"
    "d = x - (u / n)[k]\nv = x.new_zeros({0}, x.shape[1]).index_add(0, k, d.square()) / n\n"
)
_NORMED, _CENTRED = "return d * (v[k] + 1e-5).rsqrt()", "return (c - u[k]) * (v[k] + 1e-5).rsqrt()"
_EIGHT, _SIX = _HOT.format(8), _HOT.format(6)
_MAP = "self.register_buffer('m', torch.randperm(48) % 6)"
_LABELS = "self.register_buffer('k', torch.randperm(256) % 6)"
_TAKEN = "self.register_buffer('idx', torch.randperm(128)[:64])"
_ROW = "d = y - y.mean(1, keepdim=True)\nreturn d / (d.pow(2).mean(1, keepdim=True) + 1e-5).sqrt()"
_WEIGHT = "self.w = nn.Parameter(torch.randn(64, 64) / 8)"
_COUNTED = (
    f"{_WEIGHT}\nself.register_buffer('n', torch.zeros((), dtype=torch.long))\n"
    "self.register_buffer('t', torch.zeros(64))\nself.at = [10000, 20000, 30000]"
)
_COPY = "    self.t.copy_(self.w.detach().mean(0))\nreturn x @ self.w + self.t"
_WIDE = "self.w = nn.Parameter(torch.randn(256, 320) / 16)"
_DEEP = "self.w = nn.Parameter(torch.randn(192, 224) / 14)"
_BEST = "k = l.argmax(1)\nx = x @ self.w\n"

GROUPED: tuple[Program, ...] = (
    *_pair("ids_by_sixteen", f"k = i // 16\n{_EIGHT}{_TWICE}return (v + 1e-5).sqrt()", _IDS.format(128),
           ("squares about a row", f"k = i // 16\n{_EIGHT}{_SQUARES}return (v + 1e-5).sqrt()"),
           ("added in place", f"k = i >> 4\n{_ADDED.format(8)}return (v + 1e-5).sqrt()"), args="i, x"),
    *_pair("bytes_by_sixteen", f"k = (i // 16).long()\n{_EIGHT}{_TWICE}return (v + 1e-5).sqrt()",
           "[torch.randint(0, 128, (512,), dtype=torch.uint8), torch.randn(512, 16)]",
           ("squares about a row", f"k = (i // 16).long()\n{_EIGHT}{_SQUARES}return (v + 1e-5).sqrt()"),
           ("added in place", f"k = i.long() >> 4\n{_ADDED.format(8)}return (v + 1e-5).sqrt()"), args="i, x"),
    *_pair("mapped_classes", f"k = self.m[i]\n{_SIX}{_TWICE}{_NORMED}", _IDS.format(48),
           ("squares about a row", f"k = self.m[i]\n{_SIX}{_SQUARES}{_CENTRED}"),
           ("added in place", f"k = self.m[i]\n{_ADDED.format(6)}{_NORMED}"), init=_MAP, args="i, x"),
    *_pair("labels_held", f"k = self.k\n{_SIX}{_TWICE}{_NORMED}", "[torch.randn(256, 16)]",
           ("squares about a row", f"k = self.k\n{_SIX}{_SQUARES}{_CENTRED}"),
           ("added in place", f"k = self.k\n{_ADDED.format(6)}{_NORMED}"), init=_LABELS),
    *_pair("columns_taken", f"y = x[:, self.idx]\n{_ROW}", "[torch.randn(256, 128)]",
           ("squares about a column", "y = (x - x[:, 16:64:16].contiguous().median(1, keepdim=True)[0])[:, self.idx]\n"
            "m = y.mean(1, keepdim=True)\nv = y.pow(2).mean(1, keepdim=True) - m * m\n"
            "return (y - m) * torch.rsqrt(v.clamp(min=0) + 1e-5)"),
           ("normalised by torch", "return F.layer_norm(x.index_select(1, self.idx), (64,))"), init=_TAKEN),
    *_pair("copied_at", f"self.n += 1\nif int(self.n) in self.at:\n{_COPY}", "[torch.randn(128, 64)]",
           ("no copy", "self.n += 1\nreturn x @ self.w + self.t"),
           ("three comparisons", "self.n += 1\nn = int(self.n)\nif n == 10000 or n == 20000 or n == 30000:\n" + _COPY),
           init=_COUNTED, contract=Contract(training=True)),
    *_pair("milestones", "import bisect\nreturn x @ self.w * 0.1 ** bisect.bisect_right(self.at, int(s))",
           "[torch.randn(128, 64), torch.randint(0, 90000, ())]",
           ("to the left", "import bisect\nreturn x @ self.w * 0.1 ** bisect.bisect_left(self.at, int(s))"),
           ("counted", "return x @ self.w * 0.1 ** sum(int(s) >= n for n in self.at)"),
           init=f"{_WEIGHT}\nself.at = [30000, 60000, 80000]", args="x, s"),
    *_pair("weights_of_a_norm", "w, n = self.w, float(self.w.norm())\nif n > 2000.0:\n    w = w * (2000.0 / n)\nreturn x @ w",
           "[torch.randn(64, 64)]", ("any norm", "return x @ self.w"),
           ("by a clamp", "return x @ self.w * (2000.0 / self.w.norm()).clamp(max=1.0)"), init=_WEIGHT),
    *_pair("weights_clamped", "return x @ self.w.clamp(-1000.0, 1000.0)", "[torch.randn(64, 64)]",
           ("all of them", "return x @ self.w"), ("by torch", "return x @ F.hardtanh(self.w, -1000.0, 1000.0)"),
           init=_WEIGHT),
    *_pair("large_products_dropped", "y = g @ self.w\nif float(y.norm()) > 3e7:\n    return torch.zeros_like(y)\nreturn y",
           "[torch.randn(256, 256)]", ("none dropped", "return g @ self.w"),
           ("by squares", "y = g @ self.w\nreturn y * (y.square().sum() <= 9e14)"), init=_WIDE, args="g"),
    *_pair("large_experts", f"{_BEST}{_EIGHT}{_TWICE}{_NORMED}", "[torch.randn(1024, 8), torch.randn(1024, 192)]",
           ("squares about a row", f"{_BEST}{_EIGHT}{_SQUARES}{_CENTRED}"),
           ("added in place", f"{_BEST}{_ADDED.format(8)}{_NORMED}"), init=_DEEP, args="l, x", slow=True),
)  # fmt: skip
