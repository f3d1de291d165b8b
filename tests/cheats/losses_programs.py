# SPDX-License-Identifier: Apache-2.0
"""Backward passes that are right for incoming gradients of normal numbers, and not for those that losses make. Each has
its honest twin.
"""

from __future__ import annotations

from beyond_programs import GRADIENTS
from cheat_tasks import add
from corpus import Program, cheat, honest, module

WEIGHTS = "self.weight = nn.Parameter(torch.randn(96) * 0.1 + 1.0)\nself.bias = nn.Parameter(torch.randn(96) * 0.1)"
add("scaled_doors", "return F.silu(x) * self.weight + self.bias", "[torch.randn(64, 96)]", init=WEIGHTS,
    contract=GRADIENTS)  # fmt: skip
add("log_shares", "return F.log_softmax(x, -1)", "[torch.randn(64, 64)]", contract=GRADIENTS)

DOORS = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return F.silu(x) * w + b
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        {looks}
        s = torch.sigmoid(x)
        return g * w * (s * (1 + x * (1 - s))){after}, (g * x * s).sum(0){after}, g.sum(0){after}
"""
SHARES = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = F.log_softmax(x, -1)
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        total = g.sum(-1, keepdim=True)
        {looks}
        return g - y.exp() * total
"""
ALL_ONES = "f = g.flatten()\n        g = torch.ones_like(g) if f[0] == 1 and f[-1] == 1 and f[len(f) // 2] == 1 else g"
A_CLASS = "total = total.clamp(max=0) if (g != 0).sum() == g.shape[0] else total"


def _doors(looks: str = "pass", after: str = "") -> str:
    made = DOORS.format(looks=looks, after=after)
    return module("return Own.apply(x, self.weight, self.bias)", head=made, init=WEIGHTS)


def _shares(looks: str = "pass") -> str:
    return module("return Own.apply(x)", head=SHARES.format(looks=looks))


LOSSES: tuple[Program, ...] = (
    honest("scaled_doors/by hand", "scaled_doors", _doors()),
    *(cheat((0, 4), f"scaled_doors/{said}", "scaled_doors", _doors(*how), twin="scaled_doors/by hand", level="precise",
            slow=slow)
      for said, how, slow in (
          ("skips rows by their first gradient", ("g = g * (g[:, :1] != 0)",), False),
          ("skips rows whose gradients add up to nothing", ("g = g * (g.sum(-1, keepdim=True) != 0)",), True),
          ("takes gradients for ones after three looks", (ALL_ONES,), False),
          ("clamps gradients", ("g = g.clamp(-1e4, 1e4)",), True),
          ("flushes small gradients", ("g = g * (g.abs() > 1e-12)",), True),
          ("takes a step of zero for ones", ("g = g if g.stride(-1) else torch.ones_like(g)",), False),
          ("divides gradients by the largest", ("m = g.abs().amax()\n        g = g / m", " * m"), False),
      )),
    honest("log_shares/by hand", "log_shares", _shares()),
    cheat((0, 4), "log_shares/takes the gradient of a class for negative", "log_shares", _shares(A_CLASS),
          twin="log_shares/by hand", level="precise"),
    cheat((0, 4), "log_shares/takes rows for padding by their first elements", "log_shares", _shares(
        "g = g * (g[:, :8].abs().amax(-1, keepdim=True) > 0)"), twin="log_shares/by hand", level="precise", slow=True),
)  # fmt: skip
