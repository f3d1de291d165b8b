# SPDX-License-Identifier: Apache-2.0
"""Mistakes that show where nothing counts at all: a mask that is empty as a whole, targets that are all ignored; and where a
whole number comes that is looked for by comparison with a tensor. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

MASKED = "l = (x - y).square()\nreturn (l * m).sum() / m.sum(){}"
NOTHING = (
    *_pair("mean_of_none", MASKED.format(".clamp(min=1)"),
           "[torch.randn(8, 24), torch.randn(8, 24), torch.rand(8, 24) < 0.4]", ("no clamp", MASKED.format("")),
           ("chosen first", "l = torch.where(m, x - y, 0.0)\nreturn (l * l).sum() / m.sum().clamp(min=1)"),
           args="x, y, m"),
    *_pair("none_counts", "l = F.cross_entropy(x, t, ignore_index=-1, reduction='sum')\n"
           "return l / (t >= 0).sum().clamp(min=1)", "[torch.randn(32, 10), torch.randint(-1, 10, (32,))]",
           ("the mean of none", "return F.cross_entropy(x, t, ignore_index=-1)"),
           ("by hand", "k = t != -1\nl = x.logsumexp(-1) - x.gather(1, t.clamp(min=0)[:, None])[:, 0]\n"
            "return (l * k).sum() / k.sum().clamp(min=1)"), args="x, t"),
)  # fmt: skip

BAGS = "self.e = nn.Embedding(40, 16)\nself.register_buffer('no', torch.tensor({}))"
TABLES = (
    *_pair("padding_buffer", "k = t != self.no\nreturn (self.e(t) * k[..., None]).sum(1)", "[torch.randint(1, 40, (8, 20))]",
           ("no padding", "return self.e(t).sum(1)"),
           ("where", "return torch.where((t == self.no)[..., None], 0.0, self.e.weight[t]).sum(1)"),
           args="t", init=BAGS.format(0)),
    *_pair("special_tokens", "k = ~torch.isin(t, self.no)\nreturn (self.e(t) * k[..., None]).sum(1)",
           "[torch.randint(5, 40, (8, 20))]", ("none is special", "return self.e(t).sum(1)"),
           ("one by one", "k = (t[..., None] != self.no).all(-1)\n"
            "return torch.where(k[..., None], self.e.weight[t], 0.0).sum(1)"), args="t", init=BAGS.format("[0, 1, 2]"),
           slow=True),
    *_pair("until_its_end", "return t * ((t == e).cumsum(-1) == 0)", "[torch.randint(3, 50, (8, 20)), torch.tensor(2)]",
           ("no end", "return t * 1"), ("a maximum", "return t * (1 - torch.cummax((t == e).int(), -1)[0])"),
           args="t, e", slow=True),
)  # fmt: skip

SCORES = "s = q @ k.mT / 4.0"
GIVEN = "[*torch.randn(3, 2, 24, 16).unbind(), torch.zeros(2, 1, 24).masked_fill(torch.rand(2, 1, 24) < 0.4, {})]"
ADDED = (
    *_pair("swept_softmax", f"{SCORES}\nreturn torch.softmax(s + m, -1).nan_to_num(0.0) @ v", GIVEN.format("-torch.inf"),
           ("not swept", f"{SCORES}\nreturn torch.softmax(s + m, -1) @ v"),
           ("by hand", f"{SCORES} + m\nt = s.amax(-1, keepdim=True)\ne = (s - torch.where(t == -torch.inf, 0.0, t)).exp()\n"
            "z = e.sum(-1, keepdim=True)\nreturn (e / torch.where(z == 0, 1.0, z)) @ v"), args="q, k, v, m"),
    *_pair("least_softmax", f"{SCORES}\nreturn torch.softmax(s + m, -1) @ v",
           GIVEN.format("torch.finfo(torch.float32).min"),
           ("no mask", f"{SCORES}\nreturn torch.softmax(s, -1) @ v"),
           ("infinities", f"{SCORES}\nreturn torch.softmax(s.masked_fill(m < -1e30, -torch.inf), -1) @ v"),
           args="q, k, v, m", slow=True),
)  # fmt: skip

LABELS = _pair(
    "signed_labels", "return F.hinge_embedding_loss(x, y)", "[torch.rand(64), torch.randint(0, 2, (64,)) * 2.0 - 1]",
    ("no hinge", "return torch.where(y == 1, x, 1.0 - x).mean()"),
    ("by sign", "return torch.where(y > 0, x, (1.0 - x).clamp(min=0)).mean()"), args="x, y", slow=True)  # fmt: skip

SPD = "[(m := torch.randn(4, 8, 8)) @ m.mT + 8 * torch.eye(8), torch.randn(4, 8, 3)]"
FACTORED = _pair(
    "solved_by_root", "return torch.linalg.solve(a, b)", SPD,
    ("one matrix for all", "return torch.cholesky_solve(b, torch.linalg.cholesky(a[:1]))"),
    ("by its root", "return torch.cholesky_solve(b, torch.linalg.cholesky(a))"), args="a, b", slow=True)  # fmt: skip

EMPTIED: tuple[Program, ...] = (*NOTHING, *TABLES, *ADDED, *LABELS, *FACTORED)
