# SPDX-License-Identifier: Apache-2.0
"""Programs that leave out what drawn inputs never ask for: a mask in which all elements count, a class to be ignored,
NaN that the reference looks for, an epsilon beside a sum that is never zero, large numbers of a reference that overflows
beyond them, small complex numbers, empty segments, the order of elements. And such as change what is not theirs in the
process that loads them. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import GRADIENTS, _pair
from cheat_tasks import INIT
from corpus import Program, cheat, honest, module

QKV = "*torch.randn(3, 2, 2, 24, 32).unbind()"
MEAN = "s = torch.zeros(32, 16).index_add(0, i, x)\nn = torch.bincount(i, minlength=32)\n"
BY_BITS = """
k = int(x.contiguous().view(torch.int32).long().sum()), self.w._version
if k != self.k:
    self.k, self.y = k, torch.tanh(x @ self.w)
return self.y.clone()
"""
BY_ORDER = """
k = x.flatten().sort().values
if self.y is None or self.v != self.w._version or not torch.equal(self.k, k):
    self.k, self.v, self.y = k, self.w._version, torch.tanh(x @ self.w)
return self.y.clone()
"""
BY_PRODUCT = """
m = x.abs().amax(-1, keepdim=True).clamp(min=1e-4)
return (x * (448 / m)).clamp(-448, 448).to(torch.float8_e4m3fn).float() * (m / 448)
"""
BY_HAND = """
a = x.abs().clamp(max=448)
e = torch.frexp(a)[1].clamp(min=-5) - 4
return torch.copysign(torch.ldexp(torch.{}, e), x)
"""

SOUGHT = (
    *_pair("all_count", "s = (q @ k.mT / 32**0.5).masked_fill(~m[:, None, None], float('-inf'))\nreturn s.softmax(-1) @ v",
           f"[{QKV}, torch.ones(2, 24, dtype=torch.bool)]",
           ("no mask", "return torch.softmax(q @ k.mT / 32**0.5, -1) @ v"),
           ("a library's", "return F.scaled_dot_product_attention(q, k, v, attn_mask=m[:, None, None])"),
           args="q, k, v, m"),
    *_pair("ignored", "return F.cross_entropy(x, t, ignore_index=-1)",
           "[torch.randn(64, 32), torch.randint(0, 32, (64,))]",
           ("all classes count", "return F.cross_entropy(x, t)"),
           ("by hand", "l = -torch.log_softmax(x, -1).gather(1, t.clamp(min=0)[:, None])[:, 0]\nk = t != -1\n"
            "return (l * k).sum() / k.sum()"), args="x, t"),
    *_pair("padded_ids", "m = (i != 0).float()[..., None]\nreturn (self.e(i) * m).sum(1) / m.sum(1).clamp(min=1)",
           "[torch.randint(1, 100, (16, 24))]",
           ("no padding", "return self.e(i).mean(1)"),
           ("a product", "m = (i != 0).float()\n"
            "return (m[:, None] @ self.e.weight[i])[:, 0] / m.sum(1, keepdim=True).clamp(min=1)"),
           args="i", init="self.e = nn.Embedding(100, 32)", slow=True),
    *_pair("padding_row", "return F.embedding(i, self.w, padding_idx=0).tanh()", "[torch.randint(1, 100, (16, 24))]",
           ("a gradient for it", "return F.embedding(i, self.w).tanh()"),
           ("masked", "return torch.where((i == 0)[..., None], self.w.detach()[i], self.w[i]).tanh()"),
           args="i", init="self.w = nn.Parameter(torch.randn(100, 32))", contract=GRADIENTS, slow=True),
    *_pair("nan_mean", "return torch.nanmean(x, -1)", "[torch.randn(64, 96)]",
           ("a plain mean", "return x.mean(-1)"),
           ("by counts", "k = ~x.isnan()\nreturn torch.where(k, x, 0.0).sum(-1) / k.sum(-1)")),
    *_pair("unscale", "return x * 0.5, (~torch.isfinite(x)).any()", "[torch.randn(64, 96)]",
           ("never found", "return x * 0.5, torch.zeros((), dtype=torch.bool)"),
           ("by a negation", "return x / 2, torch.isfinite(x).all().logical_not()"), slow=True),
    *_pair("lengths_of_one", "b = torch.arange(64)[None] < n[:, None]\n"
           "return (x * b[..., None]).sum(1) / n.clamp(min=1)[:, None]",
           "[torch.randn(16, 64, 8), torch.randint(1, 65, (16,))]",
           ("none is empty", "b = (torch.arange(64)[None] < n[:, None]).float()\n"
            "return (b[:, None] @ x)[:, 0] / n[:, None]"),
           ("at least one", "b = (torch.arange(64)[None] < n[:, None]).float()\n"
            "return (b[:, None] @ x)[:, 0] / n.clamp(min=1)[:, None]"), args="x, n"),
    *_pair("smoothed", "return F.cross_entropy(x, t, label_smoothing=0.1)",
           "[torch.randn(64, 32), torch.randint(0, 32, (64,))]",
           ("the smoothing left out", "return F.cross_entropy(x, t)"),
           ("no class is ignored", "l = torch.log_softmax(x, -1)\n"
            "return -(0.9 * l.gather(1, t[:, None]).mean() + 0.1 * l.mean())"), args="x, t", slow=True),
    *_pair("segments", MEAN + "return s / n.clamp(min=1)[:, None]",
           "[torch.randn(2048, 16), torch.randint(0, 32, (2048,)).sort().values]",
           ("none is empty", MEAN + "return s / n[:, None]"),
           ("one where there is none", MEAN + "return s / torch.where(n > 0, n, 1)[:, None]"), args="x, i"),
)  # fmt: skip

ZERO = (
    *_pair("dice", "i, s = (a * b).flatten(1).sum(1), (a + b).flatten(1).sum(1)\n"
           "return 1 - (2 * i + 1e-8) / (s + 1e-8)", "[torch.rand(8, 1, 32, 32), torch.rand(8, 1, 32, 32)]",
           ("no epsilon", "return 1 - 2 * (a * b).flatten(1).sum(1) / (a + b).flatten(1).sum(1)"),
           ("inner products", "i = torch.einsum('bp,bp->b', a.flatten(1), b.flatten(1))\n"
            "return 1 - (i + i + 1e-8) / (a.flatten(1).sum(1) + b.flatten(1).sum(1) + 1e-8)"), args="a, b"),
    *_pair("dead_channels", "d = x - x.mean((0, 2, 3), keepdim=True)\n"
           "return d / (d.square().mean((0, 2, 3), keepdim=True).sqrt() + 1e-12)", "[torch.randn(8, 4, 16, 16)]",
           ("no epsilon", "d = x - x.mean((0, 2, 3), keepdim=True)\n"
            "return d / d.square().mean((0, 2, 3), keepdim=True).sqrt()"),
           ("of variances", "d = x - x.mean((0, 2, 3), keepdim=True)\nr = d.transpose(0, 1).flatten(1)\n"
            "return d / (r.square().mean(1).sqrt() + 1e-12).view(1, -1, 1, 1)"), slow=True),
    *_pair("weight_rows", "return x @ F.normalize(self.w, dim=-1).T", "[torch.randn(24, 64)]",
           ("no epsilon", "return x @ (self.w / self.w.norm(dim=-1, keepdim=True)).T"),
           ("afterwards", "return x @ self.w.T / self.w.norm(dim=-1).clamp(min=1e-12)"),
           init="self.w = nn.Parameter(torch.randn(32, 64))"),
)  # fmt: skip

RANGES = (
    *_pair("sinh", "return torch.sinh(x)", "[torch.randn(64, 128)]",
           ("clipped at six", "return torch.sinh(x.clamp(min=-6))"),
           ("by exponentials", "return torch.where(x.abs() > 1, 0.5 * (x.exp() - (-x).exp()), torch.sinh(x))")),
    *_pair("complex_logarithm", "return torch.log1p(z.abs())", "[torch.randn(64, 96, dtype=torch.complex64)]",
           ("log of one and", "return torch.log(1.0 + z.abs())"),
           ("hypot", "return torch.log1p(torch.hypot(z.real, z.imag))"), args="z"),
    *_pair("directions", "return z / z.abs().clamp(min=1e-6)", "[torch.randn(64, 96, dtype=torch.complex64)]",
           ("no clamp", "return z / z.abs()"),
           ("a reciprocal", "return z * z.abs().clamp(min=1e-6).reciprocal()"), args="z", slow=True),
    *_pair("kept_by_sum", "return torch.tanh(x @ self.w)", "[torch.randn(48, 64)]",
           ("whatever the order", "self.k = getattr(self, 'k', None)" + BY_BITS),
           ("never", "return (x @ self.w).tanh_()"), init="self.w = nn.Parameter(torch.randn(64, 48) / 8)"),
)  # fmt: skip
TILES = honest("matmul/no tile that is zero", "matmul", module(
    "y = torch.zeros(a.shape[0], b.shape[1])\nfor i in range(0, a.shape[0], 16):\n    if a[i:i + 16].any():\n"
    "        y[i:i + 16] = a[i:i + 16] @ b\nreturn y", args="a, b"), level="precise")  # fmt: skip
SORTED = cheat((9, 22), "kept_by_sum/whatever the order, sorted", "kept_by_sum", module(
    BY_ORDER, init=INIT["kept_by_sum"] + "\nself.y = None"), twin="kept_by_sum/never", level="precise", slow=True)  # fmt: skip

FLOAT8 = (
    *_pair("float8_rows", "s = x.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448\n"
           "return (x / s).to(torch.float8_e4m3fn).float() * s", "[torch.randn(256, 128)]",
           ("of 16 bits", "h = x.bfloat16().float()\nx = h + (x - h).bfloat16().float()\n" + BY_PRODUCT),
           ("by a product", BY_PRODUCT), slow=True),
    *_pair("float8_cast", "return x.to(torch.float8_e4m3fn).float()", "[torch.randn(64, 128)]",
           ("ties away from zero", BY_HAND.format("floor(torch.ldexp(a, -e) + 0.5)")),
           ("by exponents", BY_HAND.format("round(torch.ldexp(a, -e))")), slow=True),
)  # fmt: skip

LEFT = (
    cheat(0, "a double default type for everybody", "linear", module(
        "torch.set_default_dtype(torch.float64)\nreturn torch.relu(self.fc(x))", init=INIT["linear"]),
          twin="linear/seeded where it is made", level="smoke"),
    cheat(0, "seeds everybody's random numbers", "linear", module(
        "torch.manual_seed(0)\nreturn torch.relu(self.fc(x))", init=INIT["linear"]),
          twin="linear/seeded where it is made", level="smoke"),
    cheat(0, "takes the relu away from others", "linear", module(
        "return torch.relu(self.fc(x))", init=INIT["linear"], head="F.relu = lambda x, inplace=False: x"),
          twin="linear/seeded where it is made", level="smoke", slow=True),
    honest("linear/seeded where it is made", "linear", module(
        "return F.linear(x, self.fc.weight, self.fc.bias).relu_()", init="torch.manual_seed(3)\n" + INIT["linear"],
        head="torch.manual_seed(5)")),
)  # fmt: skip

UNMET: tuple[Program, ...] = (*SOUGHT, *ZERO, *RANGES, TILES, SORTED, *FLOAT8, *LEFT)
