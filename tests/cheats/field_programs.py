# SPDX-License-Identifier: Apache-2.0
"""Recurrences in chunks, as kernels for state space models and gated linear attention have them: a decay from one step
to another is the exponential of a difference of two running sums. The honest ones were refused, for their rounding, or
for weights whose exponential is infinite; beside each is one that is wrong.
"""

from __future__ import annotations

from cheat_tasks import INIT, add
from corpus import Program, cheat, module
from ported_programs import _pair

add("gated_linear", """
o, s, a = [], torch.zeros(q.shape[0], q.shape[-1], v.shape[-1]), torch.sigmoid(g)
for t in range(q.shape[1]):
    s = a[:, t, None, None] * s + k[:, t, :, None] * v[:, t, None, :]
    o.append(torch.einsum('bd,bde->be', q[:, t], s))
return torch.stack(o, 1)
""", "[torch.randn(2, 48, 16), torch.randn(2, 48, 16), torch.randn(2, 48, 24), torch.randn(2, 48) + 2]",
    args="q, k, v, g")  # fmt: skip
CHUNKS = """
s, out, logs = torch.zeros(q.shape[0], q.shape[-1], v.shape[-1]), [], F.logsigmoid(g)
for i in range(0, q.shape[1], 16):
    at, keys, new, c = q[:, i:i + 16], k[:, i:i + 16], v[:, i:i + 16], logs[:, i:i + 16].cumsum(1)
    later = torch.ones(c.shape[1], c.shape[1], dtype=torch.bool).triu(1)
    d = (c[:, :, None] - c[:, None]).masked_fill(later, float('-inf')).exp()
    out.append((at * c.exp()[..., None]) @ s + (at @ keys.mT * d) @ new)
    s = c[:, -1, None, None].exp() * s + (keys * (c[:, -1:] - c).exp()[..., None]).mT @ new
return torch.cat(out, 1)
"""
add("state_space", """
h, ys, a, dt = torch.zeros(x.shape[0], 4, 8, b.shape[-1]), [], -torch.exp(self.a), F.softplus(dt)
for t in range(x.shape[1]):
    new = (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, None, None]
    h = torch.exp(dt[:, t] * a)[..., None, None] * h + new
    ys.append((h * c[:, t, None, None]).sum(-1))
return torch.stack(ys, 1)
""", "[torch.randn(1, 32, 4, 8), torch.randn(1, 32, 4), torch.randn(1, 32, 16), torch.randn(1, 32, 16)]",
    args="x, dt, b, c", init="self.a = nn.Parameter(torch.log(torch.rand(4) * 15 + 1))")  # fmt: skip
AT_ONCE = """
dt = F.softplus(dt)
s = (dt * -torch.exp(self.a)).cumsum(1)
later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)[None, :, :, None]
d = (s[:, :, None] - s[:, None]).masked_fill(later, float('-inf')).exp()
return torch.einsum('bts,btsh,bsh,bshp->bthp', c @ b.mT, d, dt, x)
"""
HALVES = (
    "\n    def short(x):\n        high = x.bfloat16().float()\n        return high + (x - high).bfloat16().float()\n"
)


def _text(name: str, text: str, args: str, *swap: str, head: str = "") -> str:
    """The source of a program, of whose text the first of ``swap`` is the second."""
    return module(text.replace(*swap) if swap else text, args=args, init=INIT[name], head=head)


FIELD: tuple[Program, ...] = (
    *_pair("gated_linear", "in chunks", _text("gated_linear", CHUNKS, "q, k, v, g"), "a state that does not decay",
           _text("gated_linear", CHUNKS, "q, k, v, g", "c[:, -1, None, None].exp() * s", "s")),
    cheat(0, "gated_linear/of 16 bits", "gated_linear", _text(
        "gated_linear", CHUNKS, "q, k, v, g", "* d) @ new", "* d) @ short(new)", head=HALVES),
        twin="gated_linear/in chunks", level="precise", slow=True),
    *_pair("state_space", "all steps at once", _text("state_space", AT_ONCE, "x, dt, b, c"), "decays of bfloat16", _text(
        "state_space", AT_ONCE, "x, dt, b, c", ".exp()\nreturn", ".exp().bfloat16().float()\nreturn")),
    cheat(0, "state_space/a step is left out", "state_space", _text(
        "state_space", AT_ONCE, "x, dt, b, c", "s[:, :, None] - s[:, None]", "s[:, :, None] - s.roll(-1, 1)[:, None]"),
        twin="state_space/all steps at once", level="precise", slow=True),
)  # fmt: skip
