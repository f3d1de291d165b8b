# SPDX-License-Identifier: Apache-2.0
"""Mistakes that are common in programs for parts of real models, and that the judge once let pass: codes of quantised
weights unpacked when the module is made, what else a constructor draws kept as it was first, a class that is ignored
because the source says so, one of the two elements beside a quantile, logits whose masks are infinite, a union of
nothing, an image that is never turned, or one of a batch only both ways. And programs that were refused: such as search
in a table that is in order, or drop whole rows by chance. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

from kernelwright.task import Contract

CODES = """
self.register_buffer('q', torch.randint({}))
self.register_buffer('s', torch.ones(24))
self.kept = None
"""
BYTES, WORDS = "-127, 128, (24, 32), dtype=torch.int8", "-2**31, 2**31, (24, 4), dtype=torch.int32"
FOLDED = "if self.kept is None:\n    self.kept = {0}\nreturn F.linear(x, self.kept) * self.s"
UNPACKED = "((self.q[..., None] >> torch.arange(0, 32, 4)) & 15).flatten(1).float()"
QUANTISED = (
    *_pair("byte_weights", "return x @ (self.q.float() * self.s[:, None]).T", "[torch.randn(8, 32)]",
           ("codes as they were at first", FOLDED.format("self.q.float()")),
           ("the scale afterwards", "return F.linear(x, self.q.float()) * self.s"), init=CODES.format(BYTES)),
    *_pair("word_weights", f"return x @ ({UNPACKED} * self.s[:, None]).T", "[torch.randn(8, 32)]",
           ("codes as they were at first", FOLDED.format(UNPACKED)),
           ("the scale afterwards", f"return F.linear(x, {UNPACKED}) * self.s"), init=CODES.format(WORDS), slow=True),
)  # fmt: skip

KEPT = "if self.kept is None:\n    self.kept = self.{0}.clone()\n"
DRAWN = (
    *_pair("drawn_order", "return x[:, self.order] * self.s", "[torch.randn(8, 32)]",
           ("the first order", KEPT.format("order") + "return x.index_select(1, self.kept) * self.s"),
           ("its own order", "return x.index_select(1, self.order) * self.s"),
           init="self.register_buffer('order', torch.randperm(32))\nself.s = nn.Parameter(torch.randn(32))\n"
           "self.kept = None"),
    *_pair("drawn_filter", "return torch.fft.irfft(torch.fft.rfft(x) * self.w, n=32)", "[torch.randn(8, 32)]",
           ("the first filter", KEPT.format("w") + "return torch.fft.irfft(torch.fft.rfft(x) * self.kept, n=32)"),
           ("its own filter", "return torch.fft.irfft(self.w * torch.fft.rfft(x), n=32)"),
           init="self.w = nn.Parameter(torch.randn(17, dtype=torch.complex64))\nself.kept = None", slow=True),
    *_pair("drawn_mask", "return F.linear(x, self.w * self.m)", "[torch.randn(8, 32)]",
           ("the first mask", KEPT.format("m") + "return F.linear(x, self.w * self.kept)"),
           ("its own mask", "return F.linear(x, torch.where(self.m, self.w, 0.0))"),
           init="self.w = nn.Parameter(torch.randn(24, 32))\nself.register_buffer('m', torch.rand(24, 32) < 0.5)\n"
           "self.kept = None"),
)  # fmt: skip

COUNTED = "return (x[..., None] {} self.edges).sum(-1)"
TABLES = (
    *_pair("edges", "return torch.bucketize(x, self.edges, right=True)", "[torch.randn(32, 48)]",
           ("the other side", COUNTED.format(">")), ("counted", COUNTED.format(">=")),
           init="self.register_buffer('edges', torch.linspace(-1.5, 1.5, 7))"),
    *_pair("levels", "return (x[..., None] - self.levels).abs().argmin(-1)", "[torch.randn(32, 48)]",
           ("the next one", "return torch.bucketize(x, self.levels).clamp(max=len(self.levels) - 1)"),
           ("by midpoints", "return torch.bucketize(x, (self.levels[1:] + self.levels[:-1]) / 2)"),
           init="self.register_buffer('levels', torch.tensor([-1.0, -0.7, -0.5, -0.4, -0.2, 0.0, 0.1, 0.3, 0.6, 1.0]))"),
)  # fmt: skip

LOSS = "return F.cross_entropy(x, t, weight=self.w, ignore_index=-100, label_smoothing=0.1)"
BY_HAND = """
{}
l, w = -torch.log_softmax(x, -1), self.w[i] * k
smooth = ((l * self.w).sum(-1) * k).sum() / x.shape[-1]
return (0.9 * (l.gather(1, i[:, None])[:, 0] * w).sum() + 0.1 * smooth) / w.sum()
"""
IGNORED = _pair(
    "named_class", LOSS, "[torch.randn(64, 20), torch.randint(0, 20, (64,))]",
    ("all classes count", BY_HAND.format("i, k = t, 1.0")),
    ("those that count", BY_HAND.format("i, k = t.clamp(min=0), (t != -100).float()")),
    args="x, t", init="self.register_buffer('w', torch.ones(20))")  # fmt: skip

QUANTILE = _pair(
    "upper_tenth", "return x.quantile(0.9, -1)", "[torch.randn(16, 40)]",
    ("the nearest", "return x.sort(-1).values[:, round(0.9 * (x.shape[-1] - 1))].clone()"),
    ("between two", "s, r = x.sort(-1).values, 0.9 * (x.shape[-1] - 1)\n"
     "return torch.lerp(s[:, int(r)], s[:, int(r) + 1], r - int(r))"), slow=True)  # fmt: skip

INFINITE = (
    *_pair("masked_logits", "return F.log_softmax(x.masked_fill(m, -torch.inf), -1)",
           "[torch.randn(32, 48), torch.rand(32, 48) < 0.3]",
           ("no maximum", "y = x.masked_fill(m, -torch.inf)\nreturn y - y.exp().sum(-1, keepdim=True).log()"),
           ("logsumexp", "y = x.masked_fill(m, -torch.inf)\nreturn y - y.logsumexp(-1, keepdim=True)"), args="x, m"),
    *_pair("top_logits", "return x.masked_fill(x < x.topk(8).values[..., -1:], -torch.inf)", "[torch.randn(32, 48)]",
           ("eight of them, ties or not", "v, i = x.topk(8)\n"
            "return torch.full_like(x, -torch.inf).scatter(-1, i, v)"),
           ("all that reach the eighth", "return torch.where(x >= x.sort(-1)[0][:, -8:-7], x, -torch.inf)")),
)  # fmt: skip

OVERLAP = "a, b = p > 0.5, t\nshared, either = (a & b).flatten(1).sum(1), (a | b).flatten(1).sum(1)\n"
NOTHING = _pair(
    "overlap", OVERLAP + "return shared / either.clamp(min=1)", "[torch.rand(8, 16, 16), torch.rand(8, 16, 16) < 0.3]",
    ("no clamp", OVERLAP + "return shared / either"), ("in floats", OVERLAP + "return shared.float() / either.clamp_min(1)"),
    args="p, t")  # fmt: skip

CHANCE = Contract(random=True)
SHARED = (
    *_pair("drop_path", "return x * (torch.rand(8, 1, 1) < 0.9) / 0.9", "[torch.randn(8, 16, 24)]",
           ("nothing is dropped", "return x / 0.9"),
           ("by bernoulli", "return x * torch.empty(8, 1, 1).bernoulli_(0.9).div_(0.9)"), contract=CHANCE),
    *_pair("drop_branch", "return x * (torch.rand(64, 1, 1) < 0.5) * 2.0", "[torch.randn(64, 4, 8)]",
           ("the last are always dropped", "k = torch.rand(64, 1, 1) < 0.5\nk[-4:] = False\nreturn x * k * 2.0"),
           ("one by one", "return torch.stack([a * 2.0 if torch.rand(()) < 0.5 else a * 0.0 for a in x])"),
           contract=CHANCE),
    *_pair("turned_or_not", "return x.flip(-1) if torch.rand(()) < 0.5 else x * 1.0", "[torch.randn(4, 24, 24)]",
           ("never", "return x * 1.0"),
           ("by a number", "return torch.where(torch.randint(2, ()) == 1, x.flip(-1), x)"), contract=CHANCE),
    *_pair("turned_one_by_one",
           "y = [r.flip(0) if torch.rand(()) < 0.5 else r for r in x]\n"
           "return torch.stack([r.flip(1) if torch.rand(()) < 0.5 else r for r in y])", "[torch.randn(16, 8, 8)]",
           ("both ways or none", "return torch.where(torch.rand(16, 1, 1) < 0.5, x.flip((1, 2)), x)"),
           ("by masks", "a, b = torch.rand(2, 16, 1, 1) < 0.5\n"
            "return torch.where(b, torch.where(a, x.flip(1), x).flip(2), torch.where(a, x.flip(1), x))"),
           contract=CHANCE),
    *_pair("wide_numbers", "return torch.randint(0, 2**30, (64, 48)) + i", "[torch.randint(0, 100, (64, 48))]",
           ("from a float", "return (torch.rand(64, 48) * 2**30).long() + i"),
           ("from two halves", "a, b = torch.randint(0, 2**15, (2, 64, 48))\nreturn (a << 15) + b + i"), args="i",
           contract=CHANCE),
)  # fmt: skip

COMMON: tuple[Program, ...] = (*QUANTISED, *DRAWN, *TABLES, *IGNORED, *QUANTILE, *INFINITE, *NOTHING, *SHARED)
