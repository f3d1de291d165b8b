# SPDX-License-Identifier: Apache-2.0
"""Programs that expand the square of a difference that no ``sub`` of two results by lot shows: written by factors, in
one with a product, along an axis, of halves, of what is detached, or small where weights are trained alone. Each has
its honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

WEIGHT = "self.w = nn.Parameter(torch.randn({}) / 7)"
SIDES = "[torch.randn(256, 48), torch.randn(256, 64)]"
EXPANDED = "return (a.square().mean(-1) - 2 * (a * b).mean(-1) + b.square().mean(-1)).clamp(min=0)"
TWO = "a, b = h @ self.w, torch.tanh(t)\n"
PLAIN = "e = torch.tanh(t) - h @ self.w\nreturn (e * e).mean(-1)"
LOSS = "return F.mse_loss(h @ self.w, torch.tanh(t), reduction='none').mean(-1)"


def _two(name: str, reference: str, inputs: str = SIDES, *, wrong: str = TWO + EXPANDED, right: str = PLAIN,
         args: str = "h, t", init: str = WEIGHT.format("48, 64"), slow: bool = True) -> tuple[Program, Program]:  # fmt: skip
    """An expanded square and one that is none."""
    return _pair(name, reference, inputs, ("squares expanded", wrong), ("a difference", right), args=args, init=init,
                 slow=slow)  # fmt: skip


TRAINED: tuple[Program, ...] = (
    *_two("taken by a factor", "return torch.add(h @ self.w, torch.tanh(t), alpha=-1).square().mean(-1)", slow=False),
    *_two("of many products", "return (h @ self.w - torch.tanh(t)).square().mean(-1)", "[*torch.randn(2, 1024, 256)]",
          right=LOSS, init="self.w = nn.Parameter(torch.randn(256, 256) / 16)"),
    *_two("taken with a product", "return torch.addmm(t, h, self.w, alpha=-1).square().mean(-1)",
          "[torch.randn(256, 64), torch.randn(256, 48)]", wrong=f"a, b = h @ self.w, t\n{EXPANDED}",
          right="return F.mse_loss(h @ self.w, t, reduction='none').mean(-1)", args="t, h"),
    *_two("neighbours in a stack", "return torch.stack([h @ self.w, torch.tanh(t)]).diff(dim=0)[0].square().mean(-1)"),
    *_two("without gradients", "with torch.no_grad():\n    return (h @ self.w - torch.tanh(t)).square().mean(-1)",
          right=LOSS),
    *_two("a target that stands", "return (h @ self.w - torch.tanh(t).detach()).square().mean(-1)",
          right=LOSS.replace("torch.tanh(t)", "torch.tanh(t).detach()")),
    *_two("never below zero", "return (h @ self.w - torch.tanh(t)).square().mean(-1)", SIDES.replace("randn", "rand"),
          slow=False),
    *_two("in halves", "return (h.float() @ self.w - torch.tanh(t.float())).square().mean(-1)",
          "[torch.randn(256, 48).half(), torch.randn(256, 64).half()]", wrong=f"h, t = h.float(), t.float()\n{TWO}{EXPANDED}",
          right=f"h, t = h.float(), t.float()\n{PLAIN}"),
    *_two("in balance", "return (h @ self.w + torch.tanh(t)).square().mean(-1)", wrong=TWO + EXPANDED.replace("- 2", "+ 2"),
          right="e = torch.tanh(t) + h @ self.w\nreturn (e * e).mean(-1)"),
    *_two("the best of four", "p = (h @ self.w).view(-1, 4, 32)\n"
          "return (p - torch.tanh(t)[:, None]).square().sum(-1).amin(1)", "[torch.randn(256, 48), torch.randn(256, 32)]",
          wrong="p, b = (h @ self.w).view(-1, 4, 32), torch.tanh(t)\n"
          "d = p.square().sum(-1) - 2 * (p @ b[:, :, None])[..., 0] + b.square().sum(-1, keepdim=True)\n"
          "return d.amin(1).clamp(min=0)",
          right="p, b = (h @ self.w).view(-1, 4, 32), torch.tanh(t)[:, None].expand(-1, 4, -1)\n"
          "return F.mse_loss(p, b, reduction='none').sum(-1).amin(1)", init=WEIGHT.format("48, 128")),
    *_two("spread of three", "return torch.stack([h @ self.w, torch.tanh(t), c]).var(0, correction=0).sum(-1)",
          "[torch.randn(256, 48), *torch.randn(2, 256, 64)]",
          wrong="p, q = h @ self.w, torch.tanh(t)\nm = (p + q + c) / 3\n"
          "return ((p * p + q * q + c * c) / 3 - m * m).clamp(min=0).sum(-1)",
          right="p, q = h @ self.w, torch.tanh(t)\nm = (p + q + c) / 3\n"
          "return ((p - m).square() + (q - m).square() + (c - m).square()).sum(-1) / 3", args="h, t, c"),
    *_two("the nearest of them", "d = torch.cdist(h @ self.w, torch.tanh(t), compute_mode='donot_use_mm_for_euclid_dist')\n"
          "return d.amin(1)", "[torch.randn(96, 48), torch.randn(64, 32)]",
          wrong="a, b = h @ self.w, torch.tanh(t)\n"
          "d = a.square().sum(1, keepdim=True) - 2 * a @ b.t() + b.square().sum(1)\nreturn d.amin(1).clamp(min=0).sqrt()",
          right="e = (h @ self.w)[:, None] - torch.tanh(t)\nreturn torch.linalg.vector_norm(e, dim=-1).amin(1)",
          init=WEIGHT.format("48, 32")),
    *_two("at a fixed point", "r = torch.tanh(z @ self.w + x) - z\nreturn r.square().sum(-1)",
          "[*torch.randn(2, 256, 64)]", wrong="a, b = torch.tanh(z @ self.w + x), z\n" + EXPANDED.replace("mean", "sum"),
          right="return torch.linalg.vector_norm(torch.tanh(torch.addmm(x, z, self.w)) - z, dim=-1).square()",
          args="z, x", init="self.w = nn.Parameter(torch.randn(64, 64) / 16)"),
    *_two("given back", "r = torch.tanh(x @ self.e) @ self.d\nreturn (r - x).square().mean(-1)", "[torch.randn(256, 64)]",
          wrong=f"a, b = torch.tanh(x @ self.e) @ self.d, x\n{EXPANDED}",
          right="return F.mse_loss(torch.tanh(x @ self.e) @ self.d, x, reduction='none').mean(-1)", args="x",
          init="self.e = nn.Parameter(torch.randn(64, 32) / 8)\nself.d = nn.Parameter(torch.randn(32, 64) / 6)",
          slow=False),
    *_two("a teacher of one input", "return (torch.tanh(x @ self.s) - torch.tanh(x @ self.t)).square().mean(-1)",
          "[torch.randn(256, 64)]", wrong=f"a, b = torch.tanh(x @ self.s), torch.tanh(x @ self.t)\n{EXPANDED}",
          right="return F.mse_loss(torch.tanh(x @ self.s), torch.tanh(x @ self.t), reduction='none').mean(-1)", args="x",
          init="self.s = nn.Parameter(torch.randn(64, 64) / 8)\nself.t = nn.Parameter(torch.randn(64, 64) / 8)"),
    *_two("into more numbers", "return (h @ self.w - t @ self.v).square().mean(-1)",
          "[torch.randn(256, 16), torch.randn(256, 24)]", wrong=f"a, b = h @ self.w, t @ self.v\n{EXPANDED}",
          right="return F.mse_loss(h @ self.w, t @ self.v, reduction='none').mean(-1)",
          init="self.w = nn.Parameter(torch.randn(16, 64) / 4)\nself.v = nn.Parameter(torch.randn(24, 64) / 5)"),
    *_two("of tables", "return (self.e[h] + self.r[r] - self.e[t]).norm(dim=-1)",
          "[torch.randint(0, 1000, (512,)), torch.randint(0, 20, (512,)), torch.randint(0, 1000, (512,))]",
          wrong="a, b, c = self.e[h], self.r[r], self.e[t]\ns = self.e.square().sum(1)\n"
          "d = s[h] + s[t] + self.r.square().sum(1)[r] + 2 * (a * b).sum(1) - 2 * (c * (a + b)).sum(1)\n"
          "return d.clamp(min=0).sqrt()",
          right="d = self.e[h] - self.e[t] + self.r[r]\nreturn (d * d).sum(-1).sqrt()", args="h, r, t",
          init="self.e = nn.Parameter(torch.randn(1000, 32))\nself.r = nn.Parameter(torch.randn(20, 32))"),
)  # fmt: skip
