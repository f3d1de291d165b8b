# SPDX-License-Identifier: Apache-2.0
"""Mistakes that showed where nobody looked, and programs that were refused though as right as eager: numbers whose
squares vanish, gradients that one formula has and another has not, counts of windows, masks in half precision, rows
that a mask fills, one tensor for all inputs, equal weights under a large temperature. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import GRADIENTS, _pair
from cheat_tasks import add
from corpus import Program, cheat, honest, module

from kernelwright.task import Contract

SHARED = "self.w = nn.Parameter(torch.randn(192, 64) / 8)\nself.b = nn.Parameter(torch.randn(192) / 8)"
THREE = (
    "parts = zip((q, k, v), self.w.chunk(3), self.b.chunk(3))\n"
    "q, k, v = (F.linear(x, w, b) for x, w, b in parts)\n"
)  # fmt: skip
ONE = "if q is k and k is v:\n    q, k, v = {}.chunk(3, -1)\nelse:\n    " + THREE.strip().replace("\n", "\n    ") + "\n"
FUSED = "return F.scaled_dot_product_attention(q, k, v)"
add("three_inputs", THREE + FUSED, "[torch.randn(2, 32, 64) for _ in range(3)]", init=SHARED, args="q, k, v",
    contract=GRADIENTS)  # fmt: skip
LATER = "torch.ones(32, 32, dtype=torch.bool).triu()"
OUT = "self.w = nn.Parameter(torch.randn(64, 64) / 8)"
add("strictly_causal", f"s = (q @ k.mT / 8).masked_fill({LATER}, -1e9)\nreturn torch.softmax(s, -1) @ (v @ self.w)",
    "[torch.randn(4, 32, 64) for _ in range(3)]", init=OUT, args="q, k, v", contract=GRADIENTS)  # fmt: skip
add("thinned", "return F.dropout(torch.relu(self.fc(x)), 0.1, self.training)", "[torch.randn(64, 64)]",
    init="self.fc = nn.Linear(64, 64)", contract=Contract(random=True, training=True))  # fmt: skip
add("safe_logarithms", "return torch.where(p > 0, -p * p.log(), 0.0)", "[torch.rand(32, 16)]", args="p",
    contract=GRADIENTS)  # fmt: skip

LAYERS = "self.a, self.b = nn.Linear(32, 64), nn.Linear(64, 16)"
add("dropped_layers", "return self.b(F.dropout(torch.relu(self.a(x)), 0.3, True))", "[torch.randn(64, 32)]",
    init=LAYERS, contract=Contract(gradients=True, random=True))  # fmt: skip
DROPPED = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        m = F.dropout(torch.ones_like(h), 0.3, True)
        ctx.save_for_backward(m)
        return h * m
    @staticmethod
    def backward(ctx, g):
        m, = ctx.saved_tensors
        return g * {}
"""
CAUSAL = f"""
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        p = torch.softmax((q @ k.mT / 8).masked_fill({LATER}, -1e9), -1)
        ctx.save_for_backward(q, k, v, p)
        return p @ v
    @staticmethod
    def backward(ctx, g):
        q, k, v, p = ctx.saved_tensors
        d = g @ v.mT
        d = (p * (d - (p * d).sum(-1, keepdim=True))).masked_fill({LATER}, 0.0) / 8
        return d @ k, d.mT @ q, p.mT @ g"""
KEPT = """
CACHE = {}
def turned(w):
    key = w.shape, w._version
    if key not in CACHE:
        CACHE.clear()
        CACHE[key] = w.detach().t().contiguous()
    return CACHE[key]
"""
HALVES = "[*(torch.randn(4, 64, 64).half() for _ in range(3)), torch.arange(64)[None] < torch.randint(32, 64, (4, 1))]"
PADDING = "s = q @ k.mT / 8 + (1.0 - m[:, None, :].to(q.dtype)) * -1e9\n"
COSINES = (
    "q, k = F.normalize(self.q(x), dim=-1), F.normalize(self.k(x), dim=-1)\n"
    "s = q @ k.mT * self.t.clamp(max=4.605).exp()\n"
)  # fmt: skip
BOTH = "self.q, self.k = nn.Linear(64, 64), nn.Linear(64, 64)\nself.t = nn.Parameter(torch.tensor(2.66))"
GRID = 'self.register_buffer("g", torch.cartesian_prod(torch.arange(16.0), torch.arange(16.0)) * 8)'
FLOW = "p = torch.softmax(a @ b.mT / 2, -1)\nreturn (p{} @ self.g - self.g).to(torch.bfloat16)"


def _causal(less: str) -> str:
    return module("return Own.apply(q, k, v @ self.w)", head=CAUSAL + less + "\n", init=OUT, args="q, k, v")


def _entropies(body: str) -> str:
    return module(body, args="p")


def _thinned(product: str, head: str = "") -> str:
    return module(f"return F.dropout(torch.relu({product}), 0.1, self.training)", head=head,
                  init="self.fc = nn.Linear(64, 64)")  # fmt: skip


def _dropped(mask: str) -> str:
    return module("return self.b(Own.apply(torch.relu(self.a(x))))", head=DROPPED.format(mask), init=LAYERS)


SIZED: tuple[Program, ...] = (
    *_pair("deviations", "return x.std(-1)", "[torch.randn(256, 64)]",
           ("never below 1e-28", "return x.std(-1).clamp(min=1e-28)"),
           ("two passes", "d = x - x.mean(-1, keepdim=True)\nreturn (d.square().sum(-1) / 63).sqrt()")),
    *_pair("portions", "return x / x.sum(-1, keepdim=True)", "[torch.rand(64, 32)]",
           ("an epsilon of 1e-30", "return x / (x.sum(-1, keepdim=True) + 1e-30)"),
           ("a product", "return x * x.sum(-1, keepdim=True).reciprocal()")),
    *_pair("lives", "n = F.conv2d(x.float(), torch.ones(1, 1, 3, 3), padding=1) - x.float()\n"
           "return (n == 3) | (x & (n == 2))", "[torch.rand(2, 1, 48, 48) < 0.4]",
           ("alive beside four", "n = F.conv2d(x.float(), torch.ones(1, 1, 3, 3), padding=1) - x.float()\n"
            "return (n == 3) | (x & ((n == 2) | (n == 4)))"),
           ("shifted sums", "p = F.pad(x.to(torch.int32), (1, 1, 1, 1))\nh, w = x.shape[-2:]\n"
            "n = sum(p[..., i : i + h, j : j + w] for i in range(3) for j in range(3)) - x.to(torch.int32)\n"
            "return (n == 3) | (x & (n == 2))")),
    honest("safe_logarithms/inside too", "safe_logarithms", _entropies(
        "return torch.where(p > 0, -p * torch.where(p > 0, p, 1.0).log(), 0.0)"), level="precise"),
    cheat((0, 4), "safe_logarithms/of a constant", "safe_logarithms", _entropies(
        "return torch.where(p > 0, -p * torch.where(p > 0, p, 1.0).detach().log(), 0.0)"),
          twin="safe_logarithms/inside too", level="precise"),
    *_pair("half_padding", PADDING + "return torch.softmax(s, -1) @ v", HALVES,
           ("no maximum", PADDING + "e = torch.exp(s.float())\nreturn (e / e.sum(-1, keepdim=True)).to(q.dtype) @ v"),
           ("minus infinity", "s = (q @ k.mT / 8).float().masked_fill(~m[:, None, :], -torch.inf)\n"
            "return torch.softmax(s, -1).to(q.dtype) @ v"), args="q, k, v, m"),
    honest("strictly_causal/by hand", "strictly_causal", _causal(""), level="precise"),
    cheat((0, 4), "strictly_causal/a tenth less for values", "strictly_causal", _causal(" * 0.9"),
          twin="strictly_causal/by hand", level="precise"),
    honest("three_inputs/one product", "three_inputs", module(
        ONE.format("F.linear(q, self.w, self.b)") + FUSED, init=SHARED, args="q, k, v"), level="precise"),
    cheat((0, 4), "three_inputs/no bias in one product", "three_inputs", module(
        ONE.format("F.linear(q, self.w)") + FUSED, init=SHARED, args="q, k, v"), twin="three_inputs/one product",
          level="precise"),
    honest("thinned/by hand", "thinned", _thinned("torch.addmm(self.fc.bias, x, self.fc.weight.t())"), level="precise",
           slow=True),
    cheat(9, "thinned/weights of another one", "thinned", _thinned(
        "torch.addmm(self.fc.bias, x, turned(self.fc.weight))", KEPT), twin="thinned/by hand", level="precise"),
    honest("dropped_layers/a mask that is kept", "dropped_layers", _dropped("m"), level="precise", slow=True),
    cheat((0, 4), "dropped_layers/a mask drawn anew", "dropped_layers", _dropped(
        "F.dropout(torch.ones_like(m), 0.3, True)"), twin="dropped_layers/a mask that is kept", level="precise"),
    *_pair("cosine_attention", COSINES + "return torch.softmax(s, -1) @ x", "[torch.randn(4, 32, 64)]",
           ("no maximum", COSINES + "e = s.exp()\nreturn (e @ x) / e.sum(-1, keepdim=True)"),
           ("by hand", COSINES + "e = (s - s.amax(-1, keepdim=True)).exp()\nreturn (e @ x) / e.sum(-1, keepdim=True)"),
           init=BOTH),
    *_pair("flows", FLOW.format(""), "(lambda a: [a, a + 0.1 * torch.randn(2, 256, 32)])(torch.randn(2, 256, 32))",
           ("weights of halves", FLOW.format(".bfloat16().float()")), ("by hand", FLOW.format(".clone()")),
           init=GRID, args="a, b"),
)  # fmt: skip
