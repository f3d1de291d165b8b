# SPDX-License-Identifier: Apache-2.0
"""Programs that expand the square of a difference, and are wrong where it is small beside what it is of: where a model
is trained, a pose solved, a factorisation converged. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import GRADIENTS, _pair
from corpus import Program

from kernelwright.task import Contract

CLOUD = "torch.randn(16, 64, 2)"
TURNED = "c, s = a[:, None].cos(), a[:, None].sin()\n"
ERROR = """
x = c * p[..., 0] - s * p[..., 1] + t[:, :1] - q[..., 0]
y = s * p[..., 0] + c * p[..., 1] + t[:, 1:] - q[..., 1]
return (x * x + y * y).mean(1).sqrt()
"""
MOMENTS = """
c, s = a.cos(), a.sin()
mp, mq = p.mean(1), q.mean(1)
p, q = p - mp[:, None], q - mq[:, None]
H = p.transpose(1, 2) @ q
n = p.pow(2).sum((1, 2)) + q.pow(2).sum((1, 2))
u = c * (H[:, 0, 0] + H[:, 1, 1]) + s * (H[:, 0, 1] - H[:, 1, 0])
x = c * mp[:, 0] - s * mp[:, 1] + t[:, 0] - mq[:, 0]
y = s * mp[:, 0] + c * mp[:, 1] + t[:, 1] - mq[:, 1]
return ((n - 2 * u).clamp(min=0) / p.shape[1] + x * x + y * y).sqrt()
"""
POINTS = """
e = torch.stack([c * p[..., 0] - s * p[..., 1], s * p[..., 0] + c * p[..., 1]], -1) + t[:, None] - q
return e.square().sum(-1).mean(1).sqrt()
"""
BY_FACTORS = """
Q, R = torch.linalg.qr(U)
P = Q.transpose(1, 2) @ X
return (X.square().sum((1, 2)) - P.square().sum((1, 2))).clamp(min=0) + (P - R @ V).square().sum((1, 2))
"""
CENTRED = """
m, n = X.mean(1), y.mean(1)
Z = torch.cat([X - m[:, None], (y - n[:, None])[..., None]], -1)
v = torch.cat([self.w, -torch.ones(1)])
d = m @ self.w + self.b - n
return (((Z.transpose(1, 2) @ Z @ v) @ v).clamp(min=0) / X.shape[1] + d * d).sqrt()
"""
SEEN = "y = X @ R.transpose(1, 2)\nq = y[..., :2] / (y[..., 2:].abs() + 1.0)\n"
WEIGHT = "self.w = nn.Parameter(torch.randn({}) / 6)"

RANDOM = Contract(random=True)
SHAPED = "[torch.randn(128, 32), torch.randn(128, 40)]"
UNIT = "p, t = F.normalize(h @ self.w, dim=-1), F.normalize(t, dim=-1)\n"
PATCHES = "p = h @ self.w + self.b\nv, m = torch.var_mean(t, -1, keepdim=True)\nt = (t - m) * (v + 1e-6).rsqrt()\n"
EXPANDED = "return (p.square().sum(-1) - 2 * (p * t).sum(-1) + t.square().sum(-1)).clamp(min=0)"
BY_NORM = "return torch.linalg.vector_norm(p - t, dim=-1).square()"
HEADS = "self.w = nn.Parameter(torch.randn(48, 64) / 7)\nself.v = nn.Parameter(torch.randn(48, 32) / 7)"
BOTH = "torch.randn(256, 48), torch.randn(256, 64)"
TARGETS = f"[{BOTH}, torch.randn(256, 32)]"
APART = "def e(z, t):\n    return {}\n"
MEANS = APART.format("(z.square().mean(-1) - 2 * (z * t).mean(-1) + t.square().mean(-1)).clamp(min=0)")
LOSS = APART.format("F.mse_loss(z, t, reduction='none').mean(-1)")
NORMS = APART.format("torch.linalg.vector_norm(z - t, dim=-1).square() / t.shape[-1]")
PAIRED = "return e(h @ self.w, t) + e(h @ self.v, s)"
SIZES = "(a.abs().square().mean(-1) - 2 * (a * b.conj()).real.mean(-1) + b.abs().square().mean(-1)).clamp(min=0)"
COMPLEX = "torch.randn(256, {}, dtype=torch.complex64)"
LINE = "x = x - x.mean(-1, keepdim=True)\nb = (x @ self.t) / (self.t @ self.t)\n"

FITTED: tuple[Program, ...] = (
    *_pair("matches", "return torch.cdist(x @ self.w, y, compute_mode='donot_use_mm_for_euclid_dist')",
           "[torch.randn(64, 32), torch.randn(96, 48)]",
           ("squares expanded", "q = x @ self.w\nd = torch.addmm(y.square().sum(1)[None], q, y.T, alpha=-2)\n"
            "return (d + q.square().sum(1)[:, None]).clamp(min=0).sqrt()"),
           ("differences", "return ((x @ self.w)[:, None] - y).square().sum(-1).sqrt()"),
           args="x, y", init=WEIGHT.format("32, 48")),
    *_pair("factorised", "return (X - U @ V).pow(2).sum((1, 2))",
           "[torch.randn(4, 96, 128), torch.randn(4, 96, 6), torch.randn(4, 6, 128)]", ("by the factors", BY_FACTORS),
           ("a norm", "e = torch.baddbmm(X, U, V, alpha=-1).flatten(1)\nreturn (e * e).sum(1)"), args="X, U, V"),
    *_pair("registered", TURNED + ERROR, f"[{CLOUD}, {CLOUD}, torch.rand(16) * 6.28, torch.randn(16, 2)]",
           ("by moments", MOMENTS), ("points together", TURNED + POINTS), args="p, q, a, t"),
    *_pair("distilled", "return (h @ self.w - t).pow(2).sum(1)", "[torch.randn(128, 32), torch.randn(128, 60)]",
           ("squares expanded", "z = h @ self.w\nreturn (z.pow(2).sum(1) - 2 * (z * t).sum(1) + t.pow(2).sum(1))"
            ".clamp(min=0)"),
           ("a loss", "return F.mse_loss(h @ self.w, t, reduction='none').sum(1)"),
           args="h, t", init=WEIGHT.format("32, 60"), contract=GRADIENTS),
    *_pair("regressed", "r = X @ self.w + self.b - y\nreturn r.pow(2).mean(1).sqrt()",
           "[torch.randn(16, 256, 24), torch.randn(16, 256)]", ("by a centred Gram matrix", CENTRED),
           ("a norm", "return torch.linalg.vector_norm(F.linear(X, self.w[None], self.b)[..., 0] - y, dim=1) / 16.0"),
           args="X, y", init="self.w = nn.Parameter(torch.randn(24) * 0.3)\nself.b = nn.Parameter(torch.randn(1))"),
    *_pair("reprojected", f"{SEEN}e = q - uv\nreturn (e * e).sum(-1)",
           "[torch.randn(8, 64, 3), torch.randn(8, 64, 2), torch.randn(8, 3, 3)]",
           ("squares expanded", f"{SEEN}return (q.square().sum(-1) - 2 * (q * uv).sum(-1) + uv.square().sum(-1))"
            ".clamp(min=0)"),
           ("a loss", f"{SEEN}return F.mse_loss(uv, q, reduction='none').sum(-1)"), args="X, uv, R"),
    *_pair("own latent", UNIT + "return (p - t).pow(2).sum(-1)", SHAPED, ("squares expanded", UNIT + EXPANDED),
           ("a norm", UNIT + BY_NORM), args="h, t", init=WEIGHT.format("32, 40")),
    *_pair("masked patches", PATCHES + "return (p - t).pow(2).sum(-1)", SHAPED, ("squares expanded", PATCHES + EXPANDED),
           ("a norm", PATCHES.replace("h @ self.w + self.b", "torch.addmm(self.b, h, self.w)") + BY_NORM), args="h, t",
           init=WEIGHT.format("32, 40") + "\nself.b = nn.Parameter(torch.randn(40))"),
    *_pair("two towers", "return (x @ self.a - y @ self.b).pow(2).sum(-1)",
           "[torch.randn(128, 48), torch.randn(128, 32)]",
           ("squares expanded", f"p, t = x @ self.a, y @ self.b\n{EXPANDED}"),
           ("one product", "return (torch.cat([x, y], -1) @ torch.cat([self.a, -self.b])).pow(2).sum(-1)"),
           args="x, y", init="self.a = nn.Parameter(torch.randn(48, 64) / 7)\n"
           "self.b = nn.Parameter(torch.randn(32, 64) / 6)"),
    *_pair("a teacher in half", "return (h @ self.w - t.float()).pow(2).sum(-1)",
           "[torch.randn(128, 32), torch.randn(128, 40).bfloat16()]",
           ("squares expanded", f"p, t = h @ self.w, t.float()\n{EXPANDED}"),
           ("a norm", f"p = torch.addmm(t.float(), h, self.w, beta=-1)\nt = 0.0\n{BY_NORM}"), args="h, t",
           init=WEIGHT.format("32, 40")),
    *_pair("residual", "r = ut + u @ self.d\nreturn r.square().mean(-1)", "[torch.randn(128, 64), torch.randn(128, 64)]",
           ("squares expanded", "f = u @ self.d\nreturn (ut.square().mean(-1) + 2 * (ut * f).mean(-1) "
            "+ f.square().mean(-1)).clamp(min=0)"),
           ("fused", "r = torch.addmm(ut, u, self.d)\nreturn (r * r).sum(-1) / 64"), args="ut, u",
           init="self.d = nn.Parameter(torch.randn(64, 64) / 8)"),
    *_pair("orthogonal", "g = w.mT @ w - torch.eye(24)\nreturn g.pow(2).sum((1, 2))", "[torch.randn(8, 32, 24)]",
           ("squares expanded", "g = w.mT @ w\nreturn g.pow(2).sum((1, 2)) - 2 * w.pow(2).sum((1, 2)) + 24"),
           ("fused", "g = torch.baddbmm(torch.eye(24), w.mT, w, beta=-1).flatten(1)\nreturn (g * g).sum(1)"), args="w"),
    *_pair("of norm one", "return (g.flatten(1).norm(dim=1) - 1).pow(2)", "[torch.randn(256, 8, 8)]",
           ("squares expanded", "n = g.flatten(1).pow(2).sum(1)\nreturn n - 2 * n.sqrt() + 1"),
           ("by a product", "n = torch.einsum('nij,nij->n', g, g).sqrt() - 1.0\nreturn n * n"), args="g"),
    *_pair("detrended", LINE + "return (x - b[:, None] * self.t).square().mean(-1).sqrt()", "[torch.randn(128, 64)]",
           ("squares taken off", LINE + "s = x.square().sum(-1) - b * b * (self.t @ self.t)\n"
            "return s.clamp(min=0).div(64).sqrt()"),
           ("fused", LINE + "r = torch.addr(x, b, self.t, alpha=-1)\nreturn torch.linalg.vector_norm(r, dim=1) / 8"),
           init="self.register_buffer('t', torch.arange(64.0) - 31.5, persistent=False)"),
    *_pair("distilled beside dropout", "z = h @ self.w\nreturn (z - t).pow(2).sum(-1), F.dropout(z, 0.3, True)",
           "[torch.randn(64, 32), torch.randn(64, 40)]",
           ("squares expanded", "z = h @ self.w\nreturn (z.square().sum(-1) - 2 * (z * t).sum(-1) + t.square().sum(-1))"
            ".clamp(min=0), F.dropout(z, 0.3, True)"),
           ("a loss", "z = h @ self.w\nreturn F.mse_loss(z, t, reduction='none').sum(-1), F.dropout(z, 0.3, True)"),
           args="h, t", init=WEIGHT.format("32, 40"), contract=RANDOM),
    *_pair("unused beside dropout", "return F.dropout(torch.tanh(x @ self.w), 0.3, True)", "[torch.randn(32, 32)]",
           ("zeros for None", "return F.dropout(torch.tanh(x @ self.w), 0.3, True) + 0.0 * self.spare.sum()"),
           ("in place", "return F.dropout((x @ self.w).tanh_(), 0.3, True)"), args="x",
           init=WEIGHT.format("32, 32") + "\nself.spare = nn.Parameter(torch.randn(32))",
           contract=Contract(random=True, gradients=True)),
    *_pair("two targets", "return (h @ self.w - t).square().mean(-1) + (h @ self.v - s).square().mean(-1)", TARGETS,
           ("squares expanded", MEANS + PAIRED), ("losses", LOSS + PAIRED), args="h, t, s", init=HEADS),
    *_pair("two targets in bounds", "t, s = t.tanh(), s.tanh()\n"
           "return (h @ self.w - t).square().mean(-1) + (h @ self.v - s).square().mean(-1)", TARGETS,
           ("squares expanded", f"{MEANS}t, s = t.tanh(), s.tanh()\n{PAIRED}"),
           ("norms", f"{NORMS}t, s = t.tanh(), s.tanh()\n{PAIRED}"), args="h, t, s", init=HEADS),
    *_pair("of spectra", "return (torch.fft.rfft(h @ self.w) - torch.fft.rfft(t)).abs().square().mean(-1)", f"[{BOTH}]",
           ("squares expanded", f"a, b = torch.fft.rfft(h @ self.w), torch.fft.rfft(t)\nreturn {SIZES}"),
           ("one transform", "d = torch.view_as_real(torch.fft.rfft(h @ self.w - t))\n"
            "return d.square().sum(-1).mean(-1)"), args="h, t", init=WEIGHT.format("48, 64")),
    *_pair("of complex numbers", "return (h @ self.w - t).abs().square().mean(-1)",
           f"[{COMPLEX.format(48)}, {COMPLEX.format(64)}]",
           ("squares expanded", f"a, b = h @ self.w, t\nreturn {SIZES}"),
           ("pairs", "return torch.view_as_real(torch.addmm(t, h, self.w, beta=-1)).square().sum(-1).mean(-1)"),
           args="h, t", init=WEIGHT.format("48, 64, dtype=torch.complex64")),
    *_pair("under a mask", "return (h @ self.w * m - t * m).square().sum(-1)", f"[{BOTH}, torch.rand(256, 64)]",
           ("squares expanded", "z, q = h @ self.w, m * m\n"
            "return ((z * z * q).sum(-1) - 2 * (z * t * q).sum(-1) + (t * t * q).sum(-1)).clamp(min=0)"),
           ("the mask at last", "d = (h @ self.w - t) * m\nreturn (d * d).sum(-1)"), args="h, t, m",
           init=WEIGHT.format("48, 64")),
    *_pair("relative errors", "return (h @ self.w / t - 1).square().mean(-1)",
           "(lambda t: [torch.randn(256, 48), t + t.sign()])(torch.randn(256, 64))",
           ("squares expanded", "r = h @ self.w / t\nreturn (r.square().mean(-1) - 2 * r.mean(-1) + 1).clamp(min=0)"),
           ("a difference divided", "return ((torch.addmm(t, h, self.w, beta=-1)) / t).square().mean(-1)"),
           args="h, t", init=WEIGHT.format("48, 64")),
    *_pair("a likelihood", "z = h @ self.w\n"
           "return F.gaussian_nll_loss(z, t.tanh(), torch.ones_like(z), reduction='none').mean(-1)", f"[{BOTH}]",
           ("squares expanded", "a, b = h @ self.w, t.tanh()\n"
            "return (a.square().mean(-1) - 2 * (a * b).mean(-1) + b.square().mean(-1)).clamp(min=0) / 2"),
           ("a difference", "return torch.addmm(t.tanh(), h, self.w, beta=-1).square().mean(-1) / 2"), args="h, t",
           init=WEIGHT.format("48, 64")),
)  # fmt: skip
