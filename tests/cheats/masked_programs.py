# SPDX-License-Identifier: Apache-2.0
"""Mistakes where a judge asked nothing: gradients beside a row that a mask leaves nothing, rows that are NaN by design,
angles in half precision that a reference has in float32 on purpose, a module with running statistics or random results
whose gradients were not asked for in another way, a word about compiling in a comment. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import GRADIENTS, _pair
from cheat_tasks import add
from corpus import Program, cheat, honest, module

from kernelwright.task import Contract

PADDED = "[*(torch.randn(4, 32, 64) for _ in range(3)), torch.arange(32)[None] < torch.randint(16, 32, (4, 1))]"
SCORES = "s = (q @ k.mT / 8).masked_fill(~(m[:, :, None] & m[:, None, :]), {})\n"
add("padded_pairs", SCORES.format("-1e9") + "return torch.softmax(s, -1) @ v", PADDED, args="q, k, v, m",
    contract=GRADIENTS)  # fmt: skip
add("moved_doors", "return F.silu(self.norm(x))", "[torch.randn(16, 32, 8)]", init="self.norm = nn.BatchNorm1d(32)",
    contract=Contract(gradients=True, training=True))  # fmt: skip
ADDED = "self.a = nn.Parameter(torch.randn(64))\nself.b = nn.Parameter(torch.randn(64))"
add("dropped_and_moved", "return F.dropout(x, 0.5, True) + self.a + self.b", "[torch.randn(64, 64)]", init=ADDED,
    contract=Contract(gradients=True, random=True))  # fmt: skip
add("dense_doors", "return F.silu(self.fc(x))", "[torch.randn(64, 32)]", init="self.fc = nn.Linear(32, 48)")

PAIRS = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, m):
        s = (q @ k.mT / 8).masked_fill(~(m[:, :, None] & m[:, None, :]), -1e9)
        ctx.save_for_backward(q, k, v, m)
        return torch.softmax(s, -1) @ v
    @staticmethod
    def backward(ctx, g):
        q, k, v, m = ctx.saved_tensors
        keep = m[:, :, None] & m[:, None, :]
        p = torch.softmax({scores}, -1)
        d = g @ v.mT
        d = (p * (d - (p * d).sum(-1, keepdim=True)){after}) / 8
        return d @ k, d.mT @ q, p.mT @ g, None
"""
DOORS = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        y = x * s
        ctx.s, ctx.y = s, y{kept}
        return y
    @staticmethod
    def backward(ctx, g):
        return g * (ctx.s + ctx.y * (1 - ctx.s))
"""
MOVED = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, a, b):
        return x + a + b
    @staticmethod
    def backward(ctx, g):
        s = g.sum(0)
        return g, s, {other}
"""


def _pairs(scores: str, after: str = "") -> str:
    return module("return Own.apply(q, k, v, m)", head=PAIRS.format(scores=scores, after=after), args="q, k, v, m")


def _norm(kept: str) -> str:
    return module("return Own.apply(self.norm(x))", head=DOORS.format(kept=kept), init="self.norm = nn.BatchNorm1d(32)")


def _moved(other: str) -> str:
    return module(
        "return Own.apply(F.dropout(x, 0.5, True), self.a, self.b)", head=MOVED.format(other=other), init=ADDED
    )


def _dense(body: str) -> str:
    return "# not for torch.compile\n" + module(f"y = self.fc(x)\n{body}", init="self.fc = nn.Linear(32, 48)")


EXPERTS = 'self.register_buffer("w", torch.randn(1024, 32) / 6)'
SIX = """
s = (x @ self.w.T).view(-1, 32, 32)
v, i = s.topk(6, -1)
i = (i + torch.arange(0, 1024, 32).view(1, 32, 1)).flatten(1)
v, j = v.flatten(1).topk(8, -1)
return torch.softmax(v, -1), i.gather(1, j)
"""
FILLED = (q := SCORES.format("-torch.inf")) + "return torch.softmax(s, -1) @ v"
MASKED: tuple[Program, ...] = (
    honest("padded_pairs/by hand", "padded_pairs", _pairs("(q @ k.mT / 8).masked_fill(~keep, -1e9)", " * keep"),
           level="precise"),
    cheat((0, 4), "padded_pairs/no mask in the backward pass", "padded_pairs", _pairs("q @ k.mT / 8"),
          twin="padded_pairs/by hand", level="precise"),
    *_pair("empty_pairs", FILLED, PADDED,
           ("no maximum", q + "e = s.exp()\nreturn (e / e.sum(-1, keepdim=True)) @ v"),
           ("by hand", q + "e = (s - s.amax(-1, keepdim=True)).exp()\nreturn (e / e.sum(-1, keepdim=True)) @ v"),
           args="q, k, v, m"),
    *_pair("half_waves", "p = 6.2831853 * x @ self.w\nreturn torch.cat((p.sin(), p.cos()), -1).to(torch.bfloat16)",
           "[torch.rand(128, 3)]",
           ("angles of halves", "p = 6.2831853 * (x.bfloat16().float() @ self.w.bfloat16().float())\n"
            "return torch.cat((p.sin(), p.cos()), -1).to(torch.bfloat16)"),
           ("a sum", "p = 6.2831853 * (x[..., None] * self.w).sum(-2)\n"
            "return torch.cat((p.sin(), p.cos()), -1).to(torch.bfloat16)"),
           init="self.w = nn.Parameter(torch.randn(3, 64) * 10)"),
    *_pair("routed_by_buffer", "v, i = torch.sort(x @ self.w.T, -1, descending=True)\n"
           "return torch.softmax(v[:, :8], -1), i[:, :8]", "[torch.randn(64, 32)]", ("six of 32 neighbours", SIX),
           ("the largest", "v, i = (x @ self.w.T).topk(8, -1)\nreturn torch.softmax(v, -1), i"), init=EXPERTS),
    honest("moved_doors/by hand", "moved_doors", _norm(".clone()"), level="precise", slow=True),
    cheat((0, 4), "moved_doors/keeps its output", "moved_doors", _norm(".detach()"), twin="moved_doors/by hand",
          level="precise"),
    honest("dropped_and_moved/a gradient each", "dropped_and_moved", _moved("s.clone()"), level="precise", slow=True),
    cheat((0, 4), "dropped_and_moved/two gradients of one memory", "dropped_and_moved", _moved("s.detach()"),
          twin="dropped_and_moved/a gradient each", level="precise", slow=True),
    honest("dense_doors/by hand", "dense_doors", _dense("return y * torch.sigmoid(y)"), level="precise", slow=True),
    cheat((0, 4), "dense_doors/another one in train mode", "dense_doors", _dense(
        "return torch.relu(y) if self.training else F.silu(y)"), twin="dense_doors/by hand", level="precise"),
)  # fmt: skip
