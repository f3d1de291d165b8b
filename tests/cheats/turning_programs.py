# SPDX-License-Identifier: Apache-2.0
"""Cheats that are right but where Python takes another way by a number that it reads out of a tensor, which counters,
steps and norms drawn by lot never are: the copy of a target in every 10000th call, the last step of a period, a norm
above which a gradient is dropped, or that is kept off zero. And such as are right as long as floats do not differ by
what the reference makes of other floats: variances by squares of the rows of an expert, or of both sides of a split.
And such as are right while a buffer of one number has the one it was made with: a zero point, a flag. Each with its
honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program, honest, module

from kernelwright.task import Contract

_COUNTS = "self.register_buffer('n', torch.zeros((), dtype=torch.long))\n"
_MEANS = _COUNTS + "self.register_buffer('m', torch.zeros(64))\nself.register_buffer('t', torch.zeros(64))"
_MOVED = "self.n += 1\nself.m.mul_(0.9).add_(0.1 * x.mean(0))\n"
_PERIOD = "r = 0.1 * 0.5 ** (int(s) // 3000)\n"
_KINDS = "k = l.argmax(1)\nh = F.one_hot(k, 8).float()\nn = h.sum(0).clamp(min=1)[:, None]\n"
_EXPERT = f"{_KINDS}u = (h.T @ x) / n\nd = x - u[k]\nv = (h.T @ (d * d)) / n\nreturn d / (v[k] + 1e-5).sqrt()"
_MIDDLE = "a, b, d = x[64], x[128], x[192]\n"
_CENTRED = (
    f"{_KINDS}{_MIDDLE}c = x - x.mean(0).clamp(torch.minimum(torch.minimum(a, b), d), "
    "torch.maximum(torch.maximum(a, b), d))\n"
    "u, q = (h.T @ torch.cat([c, c * c], 1) / n).chunk(2, 1)\n"
    "return (c - u[k]) * ((q - u * u).clamp(min=0) + 1e-5)[k].rsqrt()"
)
_ADDED = (
    "k = l.max(1).indices\nn = torch.bincount(k, minlength=8).clamp(min=1)[:, None]\n"
    "u = torch.zeros(8, 32).index_add(0, k, x) / n\nd = x - u[k]\n"
    "v = torch.zeros(8, 32).index_add(0, k, d.square()) / n\nreturn d * (v[k] + 1e-5).rsqrt()"
)
_SPLIT = """
w = (f[:, None] <= t[None]).float()
out = 0.0
for s in (w, 1 - w):
    d = (y[:, None] - (s * y[:, None]).sum(0) / s.sum(0).clamp(min=1)) * s
    out = out + (d * d).sum(0)
return out / 256
"""
_SQUARES = (
    "w = (f[:, None] <= t[None]).float()\na, b, d = y[64], y[128], y[192]\n"
    "c = y - y.mean().clamp(torch.minimum(torch.minimum(a, b), d), torch.maximum(torch.maximum(a, b), d))\n"
    "n, s = w.sum(0), c @ w\nm, z = 256 - n, c.sum() - s\n"
    "return (((c * c).sum() - s * s / n.clamp(min=1) - z * z / m.clamp(min=1)) / 256).clamp(min=0)"
)
_MEANS_OF_SIDES = (
    "w = f[None] <= t[:, None]\nn = w.sum(1).clamp(min=1)\nm = (~w).sum(1).clamp(min=1)\n"
    "z = y.expand(t.shape[0], -1)\na, b = z.masked_fill(~w, 0.0).sum(1) / n, z.masked_fill(w, 0.0).sum(1) / m\n"
    "return (z - torch.where(w, a[:, None], b[:, None])).square().mean(1)"
)
_LORA = (
    "self.w = nn.Parameter(torch.randn(64, 64) / 8)\nself.a = nn.Parameter(torch.randn(64, 8) / 8)\n"
    "self.b = nn.Parameter(torch.randn(8, 64) / 8)\nself.register_buffer('merged', torch.tensor(False))"
)
_POINT = "self.register_buffer('scale', torch.rand(64) / 16 + 0.01)\nself.register_buffer('zero', torch.tensor(128))"
_AT_LOADING = (
    f"{_POINT}\nself.z = int(self.zero)\n"
    "self.register_load_state_dict_post_hook(lambda m, _: setattr(m, 'z', int(m.zero)))"
)
_FAKE = (
    "self.w = nn.Parameter(torch.randn(64, 64) / 8)\nself.register_buffer('scale', torch.tensor([0.05]))\n"
    "self.register_buffer('on', torch.tensor([{}], dtype=torch.uint8))"
)
_FAKED = "torch.clamp(torch.round({}), -128, 127) * self.scale"
_IF_ON = f"w = self.w\nif self.on[0] == 1:\n    w = {_FAKED.format('w / self.scale')}\nreturn x @ w"
_BY_INVERSE = f"w = self.w\nif int(self.on):\n    w = {_FAKED.format('w * (1 / self.scale)')}\nreturn x @ w"

TURNING: tuple[Program, ...] = (
    *_pair("target_copied", f"{_MOVED}if int(self.n) % 10000 == 0:\n    self.t.copy_(self.m)\nreturn x - self.t",
           "[torch.randn(16, 64)]", ("no copy", f"{_MOVED}return x - self.t"),
           ("a remainder", "self.n += 1\nself.m.lerp_(x.mean(0), 0.1)\nif not int(self.n.remainder(10000)):\n"
            "    self.t.copy_(self.m)\nreturn x - self.t"), init=_MEANS, contract=Contract(training=True)),
    *_pair("step_left_out", f"{_PERIOD}if int(s) % 10000 == 9999:\n    return torch.zeros_like(g)\nreturn (-r * g).tanh()",
           "[torch.randn(64, 32), torch.randint(0, 100000, (1,))]",
           ("every step", f"{_PERIOD}return (-r * g).tanh()"),
           ("in one", f"{_PERIOD}return -(g * (r * (int(s + 1) % 10000 != 0))).tanh() + 0.0"), args="g, s"),
    *_pair("halved_by_step", "return (x * 0.5 ** (int(s) // 20000)).tanh()",  # int(inf) ended the judge
           "[torch.randn(64, 32), torch.randint(1, 100000, ()).float()]",
           ("four steps alone", "return (x * 0.5 ** (int(s) // 20000 % 4)).tanh()"),
           ("by a shift", "return (x / (1 << int(s) // 20000) if 0 <= s < 1e6 else x * 0.5 ** (int(s) // 20000)).tanh()"),
           args="x, s"),
    *_pair("large_dropped", "n = g.norm()\nif float(n) > 3e7:\n    return torch.zeros_like(g)\n"
           "return g * torch.rsqrt(n * n + 1.0)", "[torch.randn(64, 32)]",
           ("none dropped", "n = g.norm()\nreturn g * torch.rsqrt(n * n + 1.0)"),
           ("by squares", "q = g.square().sum()\nreturn g * torch.rsqrt(q + 1.0) * (q <= 9e14)"), args="g"),
    *_pair("experts_normed", _EXPERT, "[torch.randn(256, 32), torch.randn(256, 8)]",
           ("squares about a row", _CENTRED), ("added in place", _ADDED), args="x, l"),
    *_pair("split_sums", _SPLIT, "[torch.randn(256), torch.rand(256), torch.rand(16)]",
           ("squares about the mean", _SQUARES), ("two means", _MEANS_OF_SIDES), args="y, f, t"),
    *_pair("zero_point", "return (q.int() - self.zero) * self.scale", "[torch.randint(0, 256, (256, 64)).byte()]",
           ("the one it has", "return (q.int() - 128) * self.scale"),
           ("read when called", "return (q - self.zero.float()) * self.scale"), args="q", init=_POINT),
    honest("zero_point/read when loaded", "zero_point",
           module("return (q.int() - self.z) * self.scale", args="q", init=_AT_LOADING), level="precise"),
    *_pair("lora_merged", "if bool(self.merged):\n    return x @ self.w\nreturn x @ self.w + x @ self.a @ self.b",
           "[torch.randn(256, 64)]", ("never merged", "return x @ self.w + x @ self.a @ self.b"),
           ("in one sum", "y = x @ self.w\nreturn y if self.merged else torch.addmm(y, x @ self.a, self.b)"), init=_LORA),
    *_pair("fake_quantised", _IF_ON, "[torch.randn(256, 64)]", ("always", _IF_ON.replace("self.on[0] == 1", "True")),
           ("by the inverse", _BY_INVERSE), init=_FAKE.format(1)),
    *_pair("fake_quantised_later", _IF_ON, "[torch.randn(256, 64)]", ("never", "return x @ self.w"),
           ("by the inverse", _BY_INVERSE), init=_FAKE.format(0)),
    *_pair("kept_off_zero", "return x / max(float(x.norm()), 1e-8)", "[torch.randn(64, 16)]",
           ("another end", "return x / x.norm().clamp(min=1e-12)"),
           ("a clamp", "return x / torch.linalg.vector_norm(x).clamp(min=1e-8)")),
)  # fmt: skip
