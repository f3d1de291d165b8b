# SPDX-License-Identifier: Apache-2.0
"""Floats that hang on which side of a border a number lies: signs of sums, rows of a table, steps of a quantiser.

The honest programs round otherwise, and now and then one of their numbers falls to the other side: the first was refused
in one judgement of a few. Each has a twin that takes sides by numbers of 16 bits.
"""

from __future__ import annotations

from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module

SHORT = "\n    def short(x):\n        return x.bfloat16().float()\n"


def _pair(name: str, how: str, right: str, *swap: str, args: str = "x", slow: bool = True) -> tuple[Program, Program]:
    """An honest program, and the one in which the first of ``swap`` is the second."""
    twin = honest(f"{name}/{how}", name, module(right, args=args, init=INIT[name]), level="precise", slow=slow)
    wrong = module(right.replace(*swap), args=args, init=INIT[name], head=SHORT)
    return twin, cheat(0, f"{name}/sides by 16 bits", name, wrong, twin=twin.name, level="precise", slow=slow)


add("signs", "return torch.sign(self.fc(x))", "[torch.randn(64, 64)]", init="self.fc = nn.Linear(64, 384)")
HALVES = """
w = self.fc.weight
return torch.sign(x[:, :32] @ w[:, :32].T + (x[:, 32:] @ w[:, 32:].T + self.fc.bias))
"""
add("codes", """
d = x.square().sum(1, keepdim=True) - 2 * x @ self.c.T + self.c.square().sum(1)
return self.c[d.argmin(1)]
""", "[torch.randn(128, 16)]", init="self.c = nn.Parameter(torch.randn(64, 16))")  # fmt: skip
DIRECT = "return self.c[(x[:, None] - self.c[None]).square().sum(-1).argmin(1)]"
add("steps_of", "s = x.abs().amax(-1, keepdim=True) / 127\nreturn torch.round(x / s) * s", "[torch.randn(64, 96)]")
BY_RECIPROCAL = "m = x.abs().amax(-1, keepdim=True)\nreturn torch.round(x * (127 / m)) * (m / 127)"
add("binary", "return torch.sign(self.fc(x)) @ self.w", "[torch.randn(256, 64)]",
    init="self.fc = nn.Linear(64, 128)\nself.w = nn.Parameter(torch.randn(128, 16))")  # fmt: skip

SIDES: tuple[Program, ...] = (
    *_pair("signs", "sums in halves", HALVES, "x[:, :32] @", "short(x)[:, :32] @", slow=False),
    *_pair("codes", "differences", DIRECT, "x[:, None]", "short(x)[:, None]"),
    *_pair("steps_of", "by a reciprocal", BY_RECIPROCAL, "round(x *", "round(short(x) *"),
    *_pair("binary", "sums in halves", HALVES.rstrip() + " @ self.w\n", "x[:, :32] @", "short(x)[:, :32] @"),
)
