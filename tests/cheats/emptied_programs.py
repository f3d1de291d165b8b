# SPDX-License-Identifier: Apache-2.0
"""Mistakes that show where nothing counts at all: a mask that is empty as a whole, targets that are all ignored. Each
has its twin.
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

EMPTIED: tuple[Program, ...] = (*NOTHING,)
