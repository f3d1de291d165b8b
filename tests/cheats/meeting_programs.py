# SPDX-License-Identifier: Apache-2.0
"""Cheats with what draws by lot never bring together: numbers of one input that are in another. Each with
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
add("inverse_cdf", "c = p.cumsum(-1)\nreturn torch.searchsorted(c, u * c[:, -1:], right=True).clamp(max=63)",
    "[torch.rand(32, 64), torch.rand(32, 8)]", args="p, u")  # fmt: skip


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
    honest("inverse_cdf/counted", "inverse_cdf", module(
        "c = p.cumsum(-1)\nreturn (c[:, None] <= (u * c[:, -1:])[..., None]).sum(-1).clamp(max=63)", args="p, u"),
        level="precise"),
)  # fmt: skip
