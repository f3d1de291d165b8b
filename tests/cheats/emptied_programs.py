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

EMPTIED: tuple[Program, ...] = (*NOTHING, *TABLES)
