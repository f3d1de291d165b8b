# SPDX-License-Identifier: Apache-2.0
"""Programs whose constructor takes what repositories give it: a configuration with names, the class of an activation, a
function of torch, a norm with its eps. Each has its honest twin.
"""

from __future__ import annotations

from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module

TAKES = "cfg, act, last"
GIVEN = "[types.SimpleNamespace(d=64, norm=functools.partial(nn.LayerNorm, eps=1e-3)), nn.Mish, F.gelu]"
MADE = "self.norm, self.fc = cfg.norm(cfg.d), nn.Linear(cfg.d, 48)\nself.act, self.last = act(), last"
NORM = "u = x - x.mean(-1, keepdim=True)\nh = u * torch.rsqrt(u.square().mean(-1, keepdim=True) + {})\n"
REST = "y = self.fc(h * self.norm.weight + self.norm.bias)\nreturn self.last(y * torch.tanh(F.softplus(y)))"

add("configured", "return self.last(self.act(self.fc(self.norm(x))))", "[torch.randn(32, 64) * 0.1]", init=MADE,
    takes=TAKES, given=GIVEN, head="import functools\nimport types\n\n\n")  # fmt: skip

CONFIGURED: tuple[Program, ...] = (
    cheat((0, 22), "configured/the eps of every norm", "configured",
          module(NORM.format("1e-5") + REST, init=INIT["configured"], takes=TAKES),
          twin="configured/the eps it was given", level="precise"),
    honest("configured/the eps it was given", "configured",
           module(NORM.format("self.norm.eps") + REST, init=INIT["configured"], takes=TAKES), level="precise"),
    honest("configured/what the partial call keeps", "configured",
           module(NORM.format("self.eps") + REST, takes=TAKES,
                  init=INIT["configured"] + "\nself.eps = cfg.norm.keywords['eps']\n"
                  "assert act is nn.Mish and last is F.gelu and cfg.norm.func is nn.LayerNorm"), level="precise"),
)  # fmt: skip
