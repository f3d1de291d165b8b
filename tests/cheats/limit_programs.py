# SPDX-License-Identifier: Apache-2.0
"""References that ask what their type can hold: masks filled with its least number, logarithms and quotients guarded by
its eps. In float64 these are others. And one with a count in float64 beside moments in float32, and one
that has a variance in float64 inside. Programs that lose precision there, or fill and guard with another number, each
with its honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

TABLES = (
    "self.tok, self.typ = nn.Embedding(100, 32), nn.Embedding(2, 32)\n"
    "self.pos, self.ln = nn.Embedding(40, 32), nn.LayerNorm(32)"
)
MASK = "return self.ln(e), (1.0 - m[:, None].to(e.dtype)) * torch.finfo(e.dtype).min"
EMBED = f"at = torch.arange(40, device=x.device)\n{{}}\n{MASK}"
CENTRED = "c = x - x.mean(0)\nv = (c * c).mean(0)\n"
MERGED = "return (c ** 3).mean(0) * r ** 3, (c ** 4).mean(0) * r ** 4 - 3, count + len(x)"
POWERS = """
m, s, t = x.mean(0), (x * x).mean(0), (x ** 3).mean(0)
v = (s - m * m).clamp(min=0) + 1e-12
u = (x ** 4).mean(0) - 4 * m * t + 6 * m * m * s - 3 * m ** 4
return (t - 3 * m * s + 2 * m ** 3) / v ** 1.5, u / v ** 2 - 3, count + len(x)
"""
SCORES = "s = q @ k.mT / 4.0\n"
LEAST = "torch.finfo(s.dtype).min"
SHARES = "s = s - s.amax(-1, keepdim=True)\np = s.exp()\nreturn (p / p.sum(-1, keepdim=True)) @ k"
KEYS = "[torch.randn(4, 24, 16), torch.randn(4, 32, 16), torch.rand(4, 1, 32) > 0.3]"

LIMITS: tuple[Program, ...] = (
    *_pair("masked_embeddings", EMBED.format("e = self.tok(x) + self.typ(m) + self.pos(at)"),
           "[torch.randint(0, 100, (4, 40)), (torch.rand(4, 40) > 0.3).long()]",
           ("sums in bfloat16", EMBED.format("e = (self.tok(x) + self.typ(m) + self.pos(at)).bfloat16().float()")),
           ("places first", EMBED.format("e = (self.tok(x) + self.pos(at)) + self.typ(m)")), args="x, m", init=TABLES),
    *_pair("merged_moments", f"{CENTRED}z = c / torch.sqrt(v + 1e-12)\n"
           "return (z ** 3).mean(0), (z ** 4).mean(0) - 3, count + len(x)",
           "[torch.randn(200, 32), torch.tensor(100.0, dtype=torch.float64)]",
           ("powers of what is not centred", POWERS), ("powers of the root", f"{CENTRED}r = torch.rsqrt(v + 1e-12)\n"
           f"{MERGED}"), args="x, count"),
    *_pair("guarded_logarithm", "return x.relu().clamp(min=torch.finfo(x.dtype).eps).log()", "[torch.randn(64, 128)]",
           ("another guard", "return x.relu().clamp(min=2e-7).log()"),
           ("the larger of the two", "return torch.log(torch.where(x > 2.0 ** -23, x, 2.0 ** -23))")),
    *_pair("least_score", f"{SCORES}return s.masked_fill(~m, {LEAST}).softmax(-1) @ k", KEYS,
           ("scores in bfloat16", f"{SCORES}s = s.bfloat16().float()\n"
            f"return s.masked_fill(~m, {LEAST}).softmax(-1) @ k"),
           ("by hand", f"{SCORES}s = torch.where(m, s, {LEAST})\n{SHARES}"), args="q, k, m"),
    *_pair("own_guard", "return F.rms_norm(x, (64,), w)", "[torch.randn(64, 64), torch.randn(64)]",
           ("a lesser guard", "return F.rms_norm(x, (64,), w, 1e-8)"),
           ("by its formula", "return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 2.0 ** -23) * w"),
           args="x, w"),
    *_pair("variance_in_double", "d = x.double()\nreturn ((d * d).mean(1) - d.mean(1) ** 2).float()",
           "[torch.randn(256, 256)]", ("in float32", "return (x * x).mean(1) - x.mean(1) ** 2"),
           ("centred", "d = x.double()\nreturn (d - d.mean(1, keepdim=True)).square().mean(1).float()")),
    *_pair("least_of_set", "return x.masked_fill(~m, torch.finfo(x.dtype).max).amin(-1)",
           "[torch.randn(32, 64), torch.rand(32, 64) > 0.5]",
           ("not so large", "return x.masked_fill(~m, 1e4).amin(-1)"),
           ("chosen", "return torch.where(m, x, torch.finfo(torch.float32).max).min(-1).values"), args="x, m"),
)  # fmt: skip
