# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong with weights that nobody trains, and inputs that a task never changes, as these may be:
centres far from zero, factors below it, a chosen matrix, transitions that were loaded later, bounds, a third mode,
paddings. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import GRADIENTS, _pair
from corpus import Program

from kernelwright.task import Contract

WEIGHT = "self.w = nn.Parameter(torch.randn(64, 64) / 8)\n"
X = "[torch.randn(256, 64)]"
CODED = "return x @ ({} / {}).T"
PATHS = "a = e[:, 0]\nfor i in range(1, e.shape[1]):\n    a = (a[:, :, None] + {}).amax(1) + e[:, i]\nreturn a"
GROUPS = f"{WEIGHT}self.s = nn.Parameter(torch.rand(4, 64) + 0.5)\nself.register_buffer('g', torch.arange(64) // 16)"
RANGE = "a = torch.where(torch.isinf(self.amax), x.abs().amax(), self.amax)\n"
CLIPPED = "s = {} / 127\nreturn ((x / s).clamp(-127, 127) * s) @ self.w"
PLACES = "[torch.randn(64, 512), torch.rand(64, 512).argsort(1)[:, :256].contiguous()]"
TAKEN = "m = i != -1\nreturn ({}).sum(1) / m.sum(1).clamp(min=1)"
AFFINE = "\n".join(
    f"self.{n} = nn.Parameter(torch.{k}(1, 16, 1, 1), requires_grad=False)" for n, k in (("g", "ones"), ("b", "zeros"))
)
KNOWN = "w = torch.cos(t.double() * 1e-6).float()[:, None]\nreturn {}"
ORDER = "if float(a) == 1.0:\n    return -(x * x.log()).sum(-1)\nreturn (x**a).sum(-1).log() / (1 - a)"

TURNED = """
def times(a, b):
    aw, av, bw, bv = a[:, :1], a[:, 1:], b[:, :1], b[:, 1:]
    return torch.cat([aw * bw - (av * bv).sum(-1, keepdim=True), aw * bv + bw * av + torch.linalg.cross(av, bv)], -1)
other = torch.cat([q[:, :1], -q[:, 1:]], -1)
return times(times(q, F.pad(v, (1, 0))), other)[:, 1:]
"""
SHORT = "w = torch.linalg.cross(q[:, 1:], v)\nreturn v + {} * (q[:, :1] * w + torch.linalg.cross(q[:, 1:], w))"

UNTRAINED: tuple[Program, ...] = (
    *_pair("distances_to_centres", "return ((x[:, None] - self.c) ** 2).sum(-1)", X,
           ("expanded", "return (x * x).sum(1, keepdim=True) - 2 * x @ self.c.t() + (self.c * self.c).sum(1)"),
           ("by cdist", "return torch.cdist(x, self.c, compute_mode='donot_use_mm_for_euclid_dist').square()"),
           init="self.register_buffer('c', torch.randn(48, 64))"),
    *_pair("frozen_gain", "return F.relu((x @ self.w) * self.g)", X,
           ("before it", "return F.relu(x @ self.w) * self.g"), ("clamped", "return (x @ self.w).mul(self.g).clamp(min=0)"),
           init=f"{WEIGHT}self.g = nn.Parameter(torch.ones(64), requires_grad=False)"),
    *_pair("folded_norm", "return F.relu((x @ self.w) * self.scale) + self.shift", X,
           ("before it", "return F.relu(x @ self.w) * self.scale + self.shift"),
           ("in place", "return (x @ self.w).mul_(self.scale).clamp_(min=0).add_(self.shift)"),
           init=f"{WEIGHT}self.register_buffer('scale', torch.ones(64))\n"
                "self.register_buffer('shift', torch.zeros(64))"),
    *_pair("turned_by_unit_quaternions", TURNED, "[F.normalize(torch.randn(40, 4), dim=-1), torch.randn(40, 3)]",
           ("half of it", SHORT.format(1)), ("by cross products", SHORT.format(2)), args="q, v",
           contract=Contract(as_drawn=(0,))),
    *_pair("unused_codes_in_rows", CODED.format("self.c", "self.c.norm(dim=1, keepdim=True).clamp(min=1e-12)"), X,
           ("no clamp", CODED.format("self.c", "self.c.norm(dim=1, keepdim=True)")),
           ("normalised", "return x @ F.normalize(self.c, dim=1).T"), init="self.register_buffer('c', torch.randn(48, 64))"),
    *_pair("best_paths", PATHS.format("self.t"), "[torch.randn(64, 8, 32)]",
           ("those of the first call", "if not hasattr(self, 'm'):\n    self.m = self.t.detach().clone()\n"
            + PATHS.format("self.m")), ("transposed", PATHS.format("self.t.T.contiguous().T")), args="e",
           init="t = torch.randn(32, 32)\nt[:, 0] = float('-inf')\nt[0, 0] = 0.0\nself.t = nn.Parameter(t)"),
    *_pair("log_variance", "return (x @ self.w) * torch.exp(-0.5 * self.logvar)", X, ("none", "return x @ self.w"),
           ("a root", "return (x @ self.w) / self.logvar.exp().sqrt()"),
           init=f"{WEIGHT}self.register_buffer('logvar', torch.zeros(64))"),
    *_pair("one_of_three", "return x @ self.v[self.active]", X, ("the first", "return x @ self.v[0]"),
           ("selected", "return x @ self.v.select(0, int(self.active))"),
           init="self.v = nn.Parameter(torch.randn(3, 64, 64) / 8)\nself.register_buffer('active', torch.tensor(0))"),
    *_pair("calibrated", RANGE + CLIPPED.format("a"), X, ("by the batch", CLIPPED.format("x.abs().amax()")),
           ("a condition", "a = self.amax if bool(self.amax.isfinite()) else x.abs().amax()\n" + CLIPPED.format("a")),
           init=f"{WEIGHT}self.register_buffer('amax', torch.tensor(float('-inf')))"),
    *_pair("groups_with_gradients", "return x @ (self.w * self.s[self.g])", X,
           ("in order", "return x @ (self.w * self.s.repeat_interleave(16, 0))"),
           ("by index", "return x @ (self.w * self.s.index_select(0, self.g))"), init=GROUPS, contract=GRADIENTS),
    *_pair("mean_of_places", TAKEN.format("torch.gather(x, 1, i.clamp(min=0)) * m"), PLACES,
           ("all there", "return torch.gather(x, 1, i.clamp(min=0)).mean(1)"),
           ("filled", TAKEN.format("torch.gather(x, 1, i.clamp(min=0)).masked_fill(~m, 0.0)")), args="x, i"),
    *_pair("known_times", KNOWN.format("torch.where(t[:, None] != 2147483647, x * w, self.b)"),
           "[torch.randint(0, 10**9, (512,)).sort().values, torch.randn(512, 64)]",
           ("all known", KNOWN.format("x * w")),
           ("filled", KNOWN.format("torch.where(t[:, None] == 2147483647, self.b, w * x)")), args="t, x",
           init="self.b = nn.Parameter(torch.randn(64))"),
    *_pair("last_places", "return x[torch.arange(32), i] @ self.w", "[torch.randn(32, 16, 64), torch.full((32,), -1)]",
           ("the last", "return x[:, -1] @ self.w"),
           ("gathered", "i = (i % 16)[:, None, None].expand(-1, 1, 64)\nreturn x.gather(1, i)[:, 0] @ self.w"), args="x, i",
           init=WEIGHT),
    *_pair("bounded_rows", "return torch.minimum(torch.maximum(x @ self.w, lo), hi)",
           "[torch.randn(256, 64), torch.full((64,), float('-inf')), torch.full((64,), float('inf'))]",
           ("no bounds", "return x @ self.w"), ("clamped", "return (x @ self.w).clamp(lo, hi)"), args="x, lo, hi",
           init=WEIGHT),
    *_pair("mode_of_a_call", "h, m = x @ self.w, int(mode)\nreturn h if m == 0 else F.relu(h) if m == 1 else F.gelu(h)",
           "[torch.randn(256, 64), torch.tensor(1)]",
           ("two of them", "h = x @ self.w\nreturn h if int(mode) == 0 else F.relu(h)"),
           ("listed", "return (lambda h: h, F.relu, F.gelu)[min(int(mode), 2)](x @ self.w)"), args="x, mode", init=WEIGHT),
    *_pair("entropy_of_an_order", ORDER, "[torch.rand(256, 64).softmax(-1), torch.tensor(1.5)]",
           ("any order", "return (x**a).sum(-1).log() / (1 - a)"),
           ("by entr", "if bool(a == 1.0):\n    return torch.special.entr(x).sum(-1)\nreturn x.pow(a).sum(-1).log() / (1 - a)"),
           args="x, a"),
    *_pair("mean_of_ids", "m = i.bool()[..., None]\nreturn (self.e[i] * m).sum(1) / m.sum(1).clamp(min=1)",
           "[torch.randint(1, 100, (64, 32))]", ("of all", "return self.e[i].mean(1)"),
           ("where", "m = (i != 0)[..., None]\nreturn torch.where(m, self.e[i], 0.0).sum(1) / m.sum(1).clamp(min=1)"),
           args="i", init="self.e = nn.Parameter(torch.randn(100, 64))"),
    *_pair("larger_number", "return torch.fmax(a, b)", "[torch.randn(256, 64), torch.randn(256, 64)]",
           ("of both", "return torch.maximum(a, b)"),
           ("where", "return torch.where(b.isnan() | (a >= b), a, b)"), args="a, b"),
    *_pair("frozen_affine", "return F.max_pool2d(x * self.g + self.b, 2)", "[torch.randn(4, 16, 16, 16)]",
           ("pooled first", "return F.max_pool2d(x, 2) * self.g + self.b"),
           ("by addcmul", "return F.max_pool2d(torch.addcmul(self.b, x, self.g), 2)"), init=AFFINE),
    *_pair("kept_channels", "return x[:, self.keep] @ self.w", X, ("each second", "return x[:, ::2] @ self.w"),
           ("by index", "return x.index_select(1, self.keep) @ self.w"),
           init="self.w = nn.Parameter(torch.randn(32, 64) / 6)\nself.register_buffer('keep', torch.arange(0, 64, 2))"),
    *_pair("capped_if_positive", "h = x @ self.w\nreturn torch.tanh(h / self.cap) * self.cap if float(self.cap) > 0 else h",
           X, ("never", "return x @ self.w"),
           ("where", "h = x.mm(self.w)\nreturn torch.where(self.cap > 0, torch.tanh(h / self.cap) * self.cap, h)"),
           init=f"{WEIGHT}self.register_buffer('cap', torch.tensor(-1.0))"),
    *_pair("steps_before", "return x * self.a[t][:, None]", "[torch.randn(256, 64), torch.randint(1, 100, (256,))]",
           ("shifted", "return x * self.a[1:][t - 1][:, None]"), ("by index", "return x * self.a.index_select(0, t)[:, None]"),
           args="x, t", init="self.register_buffer('a', torch.linspace(1.0, 0.01, 101))"),
)  # fmt: skip
