# SPDX-License-Identifier: Apache-2.0
"""Cheats with what draws by lot never bring together: numbers of one input that are in another, chains, runs. Each with
its honest twin, and a search by counting in sums that are in order as long as what is added up is not negative."""

from __future__ import annotations

from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module

add("features", "e = x[:, None] == keys\n"
    "f = torch.where(e.any(-1)[:, None], self.table[e.int().argmax(-1)], 0.0)\nreturn torch.relu(self.fc(h) + f)",
    "[torch.randn(64, 32), torch.randint(0, 2**40, (64,)), torch.randint(0, 2**40, (256,))]", args="h, x, keys",
    init="self.fc = nn.Linear(32, 16)\nself.table = nn.Parameter(torch.randn(256, 16))")  # fmt: skip
add("unseen", "seen = (items[None, :, None] == history[:, None, :]).any(-1)\nreturn scores.masked_fill(seen, -1e9)",
    "[torch.randn(32, 96), torch.randint(0, 2**40, (96,)), torch.randint(0, 2**40, (32, 40))]",
    args="scores, items, history")  # fmt: skip
add("same_rows", "return (a[:, None] == b[None]).all(-1)",
    "[torch.randint(0, 1000, (48, 8)), torch.randint(0, 1000, (32, 8))]", args="a, b")  # fmt: skip
ROOTS = "p = torch.minimum(parent, torch.arange(128))\n"
add("roots", f"{ROOTS}r = p\nfor _ in range(128):\n    r = p.gather(1, r)\nreturn r",
    "[(torch.rand(8, 128) * torch.arange(128)).long()]", args="parent")  # fmt: skip
CLOSURE = (
    "m = (a | torch.eye(64, dtype=torch.bool)).float()\nfor _ in range({}):\n    m = (m @ m > 0).float()\nreturn m > 0"
)
add("closure", CLOSURE.format(6), "[torch.rand(64, 64) < 0.06]", args="a")
QUOTED = """
inside, escaped, out = torch.zeros(len(c), dtype=torch.bool), torch.zeros(len(c), dtype=torch.bool), []
for i in range(c.shape[1]):
    inside = inside ^ ((c[:, i] == 34) & ~escaped)
    escaped = (c[:, i] == 92) & ~escaped
    out.append(inside)
return torch.stack(out, 1)
"""
add("quoted", QUOTED, "[torch.randint(32, 127, (16, 96))]", args="c")
add("inverse_cdf", "c = p.cumsum(-1)\nreturn torch.searchsorted(c, u * c[:, -1:], right=True).clamp(max=63)",
    "[torch.rand(32, 64), torch.rand(32, 8)]", args="p, u")  # fmt: skip

DOUBLED = ROOTS + "for _ in range({}):\n    p = p.gather(1, p)\nreturn p"
WARSHALL = """
m = a | torch.eye(64, dtype=torch.bool)
for k in range(64):
    m = m | (m[:, k : k + 1] & m[k : k + 1])
return m
"""
BEFORE = """
b, run = c == 92, torch.zeros_like(c)
alive = torch.ones_like(b)
for k in range(1, {}):
    alive = alive & F.pad(b, (k, 0))[:, : c.shape[1]]
    run = run + alive.long()
return ((c == 34) & (run % 2 == 0)).long().cumsum(-1) % 2 == 1
"""


def _pair(task: str, said: str, body: str, twin: str, args: str) -> tuple[Program, Program]:
    """A wrong program, and a right one."""
    made = honest(f"{task}/looked up", task, module(twin, args=args, init=INIT.get(task, "")))
    wrong = module(body, args=args, init=INIT.get(task, ""))
    return cheat(22, said, task, wrong, twin=made.name, level="precise"), made


MEETING: tuple[Program, ...] = (
    *_pair("features", "nothing to join", "return torch.relu(self.fc(h))",
           "e = x[:, None] == keys\nfirst = e & (e.int().cumsum(-1) == 1)\n"
           "return torch.relu(self.fc(h) + first.float() @ self.table)", "h, x, keys"),
    *_pair("unseen", "nothing was seen", "return scores.clone()",
           "seen = torch.stack([torch.isin(items, h) for h in history.unbind(0)])\n"
           "return torch.where(seen, -1e9, scores)", "scores, items, history"),
    *_pair("same_rows", "sums and squares", "f = lambda v: (v.sum(-1), (v * v).sum(-1))\n(p, q), (r, s) = f(a), f(b)\n"
           "return (p[:, None] == r) & (q[:, None] == s)", "return (a[:, None] - b[None]).abs().amax(-1) == 0", "a, b"),
    *_pair("roots", "32 steps of 127", DOUBLED.format(5), DOUBLED.format(7), "parent"),
    *_pair("closure", "paths of 32 edges", CLOSURE.format(5), WARSHALL, "a"),
    *_pair("quoted", "three backslashes", BEFORE.format(4), BEFORE.format(97), "c"),
    honest("inverse_cdf/counted", "inverse_cdf", module(
        "c = p.cumsum(-1)\nreturn (c[:, None] <= (u * c[:, -1:])[..., None]).sum(-1).clamp(max=63)", args="p, u"),
        level="precise"),
)  # fmt: skip
