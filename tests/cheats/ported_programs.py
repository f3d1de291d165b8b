# SPDX-License-Identifier: Apache-2.0
"""Programs as other projects write them, each beside one that looks alike and is wrong: transforms as products, places
of equal values, quantisers that multiply by a reciprocal, routers, packed weights, recurrences in C++.

The honest ones were refused, or are of a kind that nothing else here is.
"""

from __future__ import annotations

from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module, native


def _pair(
    name: str, how: str, right: str | tuple, mistake: str, wrong: str | tuple, *, slow: bool = True
) -> tuple[Program, Program]:
    """An honest program and its wrong twin."""
    twin = honest(f"{name}/{how}", name, right, slow=slow)
    return twin, cheat(0, f"{name}/{mistake}", name, wrong, twin=twin.name, level="precise", slow=slow)


def _text(text: str, *swap: str, args: str = "x", head: str = "", name: str = "") -> str:
    """The source of a program, of whose text the first of ``swap`` is the second."""
    return module(text.replace(*swap) if swap else text, args=args, head=head, init=INIT.get(name, ""))


HALVES = (
    "\n    def short(x):\n        high = x.bfloat16().float()\n        return high + (x - high).bfloat16().float()\n"
)
add("long_filter", "n = u.shape[-1]\nf = torch.fft.rfft(u, n=2 * n) * torch.fft.rfft(self.k, n=2 * n)\n"
    "return torch.fft.irfft(f, n=2 * n)[..., :n]", "[torch.randn(4, 16, 256)]", args="u",
    init="self.k = nn.Parameter(torch.randn(16, 256) * 0.1)")  # fmt: skip
DIRECT = "n = u.shape[-1]\nreturn F.conv1d(F.pad(u, (n - 1, 0)), self.k.flip(-1)[:, None], groups=self.k.shape[0])"
add("spectrum", "return torch.fft.rfft(x)", "[torch.randn(64, 256)]")
TABLE = """
n = x.shape[-1]
i = torch.arange(n)
a = (i[:, None] * i[None, : n // 2 + 1] % n).double() * (-2 * math.pi / n)
return torch.complex(x @ a.cos().float(), x @ a.sin().float())
"""
add("tokens", "s = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127.0\n"
    "return torch.round(x / s).clamp(-128, 127).to(torch.int8), s", "[torch.randn(256, 1024)]")  # fmt: skip
RECIPROCAL = """
m = x.abs().amax(-1, keepdim=True).clamp(min=1e-8)
return torch.round(x * (127.0 / m)).clamp(-128, 127).to(torch.int8), m / 127.0
"""
add("places", "return x.argmax(-1), x.topk(5, dim=-1)[1]", "[torch.randn(64, 200)]")
SORTED = """
i = x.sort(dim=-1)[1][..., -5:].flip(-1).contiguous()
return x.shape[-1] - 1 - x.flip(-1).argmax(-1), i
"""
add("router", "w, e = torch.topk(torch.softmax(self.gate(x), -1), 2, dim=-1)\nreturn w / w.sum(-1, keepdim=True), e",
    "[torch.randn(4096, 64)]", init="self.gate = nn.Linear(64, 16, bias=False)")  # fmt: skip
ROUTE = """
#pragma omp parallel for
for (long t = 0; t < n; ++t) {
    float a = -INFINITY, b = -INFINITY;
    long p = 0, q = 0;
    for (long j = 0; j < experts; ++j) {
        float s = 0;
        for (long c = 0; c < d; ++c) s += x[t * d + c] * g[j * d + c];
        if (s > a) { b = a; q = p; a = s; p = j; } else if (s > b) { b = s; q = j; }
    }
    const float r = 1.0f / (1.0f + expf(b - a));
    w[2 * t] = r; w[2 * t + 1] = r * expf(b - a); e[2 * t] = p; e[2 * t + 1] = q;
}
"""
ROUTED = """
x = x.contiguous()
w, e = torch.empty(x.shape[0], 2), torch.empty(x.shape[0], 2, dtype=torch.int64)
run(w, e, x, self.gate.weight, x.shape[0], x.shape[1], self.gate.weight.shape[0])
return w, e
"""
add("packed", "q = torch.stack([self.q & 15, self.q >> 4], -1).reshape(64, 4, 32).float()\n"
    "return x @ ((q - self.zero[..., None]) * self.scale[..., None]).reshape(64, 128).t()", "[torch.randn(5, 128)]",
    init="self.register_buffer('q', torch.randint(0, 256, (64, 64), dtype=torch.uint8))\n"
    "self.register_buffer('scale', torch.rand(64, 4) * 0.1 + 0.01)\n"
    "self.register_buffer('zero', torch.randint(0, 16, (64, 4)).float())")  # fmt: skip
UNPACK = """
for (long r = 0; r < rows; ++r) for (long o = 0; o < 64; ++o) {
    float t = 0;
    for (int g = 0; g < 4; ++g) {
        float s = 0, z = zero[o * 4 + g];
        for (int k = 0; k < 16; ++k) {
            const uint8_t p = q[o * 64 + g * 16 + k];
            const float* v = x + r * 128 + g * 32 + 2 * k;
            s += v[0] * ((float)(p & 15) - z) + v[1] * ((float)(p >> 4) - z);
        }
        t += s * scale[o * 4 + g];
    }
    y[r * 64 + o] = t;
}
"""
UNPACKED = """
x = x.contiguous()
y = torch.empty(x.shape[0], 64)
run(y, x, self.q, self.scale, self.zero, x.shape[0])
return y
"""
FOR_UNPACKING = "float* y, const float* x, const uint8_t* q, const float* scale, const float* zero, long rows"
add("scan", """
d = torch.exp(F.softplus(dt)[..., None] * -torch.exp(self.a))
v = (F.softplus(dt) * u)[..., None] * b[:, :, None]
h, ys = torch.zeros(u.shape[0], *self.a.shape), []
for t in range(u.shape[1]):
    h = d[:, t] * h + v[:, t]
    ys.append((h * c[:, t, None]).sum(-1))
return torch.stack(ys, 1)
""", "[torch.randn(2, 40, 24), torch.randn(2, 40, 24), torch.randn(2, 40, 8), torch.randn(2, 40, 8)]",
    args="u, dt, b, c", init="self.a = nn.Parameter(torch.log(torch.arange(1, 9).float()).repeat(24, 1))")  # fmt: skip
STEPS = """
d = torch.exp(F.softplus(dt)[..., None] * -torch.exp(self.a))
x = (F.softplus(dt) * u)[..., None] * b[:, :, None]
k = 1
while k < u.shape[1]:
    x = torch.cat([x[:, :k], x[:, k:] + d[:, k:] * x[:, :-k]], 1)
    d = torch.cat([d[:, :k], d[:, k:] * d[:, :-k]], 1)
    k *= 2
return torch.einsum('bldn,bln->bld', x, c)
"""
add("spikes", """
m, out = torch.zeros(x.shape[1], 64), []
for t in range(x.shape[0]):
    m = 0.9 * m + self.fc(x[t])
    s = m > 1.0
    m = m - s.float()
    out.append(s)
return torch.stack(out)
""", "[torch.randn(6, 64, 64)]", init="self.fc = nn.Linear(64, 64)")  # fmt: skip
AT_ONCE = """
y = torch.einsum('tbi,oi->tbo', x, self.fc.weight) + self.fc.bias
m, out = torch.zeros(x.shape[1], 64), torch.empty(y.shape, dtype=torch.bool)
for t in range(x.shape[0]):
    m = torch.addcmul(y[t], m, torch.tensor(0.9))
    torch.gt(m, 1.0, out=out[t])
    m = m - out[t].float()
return out
"""
MATH = "import math"
add("triangles", "return torch.triu(a @ b)", "[torch.triu(torch.rand(256, 256)), torch.triu(torch.rand(256, 256))]",
    args="a, b")  # fmt: skip
ABOVE = """
out = torch.zeros_like(a)
for i in range(0, a.shape[0], 64):
    out[i:i + 64, i:] = a[i:i + 64, i:] @ b[i:, i:]
return out
"""
add("conv_norm", "return torch.relu(self.bn(self.conv(x)))", "[torch.rand(4, 6, 16, 16)]",
    init="self.conv = nn.Conv2d(6, 12, 3, padding=1, bias=False)\nself.bn = nn.BatchNorm2d(12)")  # fmt: skip
FOLDED = """
s = self.bn.weight * torch.rsqrt(self.bn.running_var + self.bn.eps)
w, b = self.conv.weight * s.view(-1, 1, 1, 1), self.bn.bias - self.bn.running_mean * s
return F.conv2d(x, w, b, padding=1).relu_()
"""

PORTED: tuple[Program, ...] = (
    *_pair("conv_norm", "folded in each call", _text(FOLDED, name="conv_norm"), "of 16 bits",
           _text(FOLDED, "conv2d(x,", "conv2d(short(x),", name="conv_norm", head=HALVES)),
    *_pair("long_filter", "sums of products", _text(DIRECT, args="u", name="long_filter"), "of 16 bits", _text(
        DIRECT, "F.pad(u,", "F.pad(short(u),", args="u", name="long_filter", head=HALVES), slow=False),
    *_pair("spectrum", "product with a table", _text(TABLE, head=MATH), "large angles in float32",
           _text(TABLE, "% n).double()", ").float()", head=MATH)),
    *_pair("tokens", "reciprocal", _text(RECIPROCAL), "of 16 bits",
           _text(RECIPROCAL, "round(x ", "round(short(x) ", head=HALVES), slow=False),
    *_pair("places", "sorted, and from the right", _text(SORTED), "of 16 bits",
           _text(SORTED, "x.flip(-1).argmax", "x.bfloat16().flip(-1).argmax")),
    cheat(0, "places/one of five twice", "places", _text(
        SORTED, "return", "v = x.gather(-1, i)\ni[..., 4] = torch.where(v[..., 4] == v[..., 3], i[..., 3], i[..., 4])\n"
        "return"), twin="places/sorted, and from the right", level="precise", slow=True),
    *_pair("router", "C++", native(
        "float* w, long* e, const float* x, const float* g, long n, long d, long experts", ROUTE, ROUTED,
        init=INIT["router"]), "chosen in bfloat16", module(
        "s = self.gate(x)\ne = s.bfloat16().topk(2, dim=-1)[1]\nreturn s.gather(1, e).softmax(-1), e",
        init=INIT["router"])),
    *_pair("packed", "C++", native(FOR_UNPACKING, UNPACK, UNPACKED, init=INIT["packed"]), "one zero for all", native(
        FOR_UNPACKING, UNPACK.replace("zero[o * 4 + g]", "zero[o * 4]"), UNPACKED, init=INIT["packed"])),
    *_pair("scan", "in doubling steps", _text(STEPS, args="u, dt, b, c", name="scan"), "one step too few",
           _text(STEPS, "k < u.shape[1]", "2 * k < u.shape[1]", args="u, dt, b, c", name="scan")),
    *_pair("spikes", "all products at once", _text(AT_ONCE, name="spikes"), "a weaker memory",
           _text(AT_ONCE, "0.9)", "0.89)", name="spikes")),
    *_pair("triangles", "above the diagonal alone", _text(ABOVE, args="a, b"), "not the last rows", _text(
        ABOVE, "a[i:i + 64, i:] @ b[i:, i:]", "a[i:i + 64, i:-1] @ b[i:-1, i:]", args="a, b"), slow=False),
)  # fmt: skip
