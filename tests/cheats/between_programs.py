# SPDX-License-Identifier: Apache-2.0
"""Programs whose gradients are right until somebody writes to what a call gave, or was given, before he asks for them.
Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import GRADIENTS
from cheat_tasks import add
from corpus import Program, cheat, honest, module

add("soft_steps", "return F.softplus(x) * 1.0", "[torch.randn(32, 64)]", contract=GRADIENTS)
add("soft_doors", "return torch.sigmoid(x) * 2.0", "[torch.randn(32, 48)]", contract=GRADIENTS)

OWN = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = {made}
        {keeps}
        return y
    @staticmethod
    def backward(ctx, g):
        kept, = {kept}
        return g * {slope}
"""
SOFT = {"made": "F.softplus(x)", "slope": "-torch.expm1(-kept)"}
DOOR = {"made": "torch.sigmoid(x) * 2.0", "slope": "2.0 * torch.sigmoid(kept) * torch.sigmoid(-kept)"}


def _own(how: dict[str, str], keeps: str, kept: str) -> str:
    return module("return Own.apply(x)", head=OWN.format(keeps=keeps, kept=kept, **how))


BETWEEN: tuple[Program, ...] = (
    cheat(4, "keeps its result for its gradient behind torch's back", "soft_steps", _own(
        SOFT, "ctx.y = y.detach()", "(ctx.y,)"), twin="soft_steps/saves its result", level="precise"),
    honest("soft_steps/saves its result", "soft_steps", _own(SOFT, "ctx.save_for_backward(y)", "ctx.saved_tensors")),
    honest("soft_steps/keeps a copy of its result", "soft_steps", _own(SOFT, "ctx.y = y.clone()", "(ctx.y,)")),
    cheat(4, "keeps its input for its gradient behind torch's back", "soft_doors", _own(
        DOOR, "ctx.x = x.detach()", "(ctx.x,)"), twin="soft_doors/saves its input", level="precise"),
    honest("soft_doors/saves its input", "soft_doors", _own(DOOR, "ctx.save_for_backward(x)", "ctx.saved_tensors")),
)  # fmt: skip
