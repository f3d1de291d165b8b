# SPDX-License-Identifier: Apache-2.0
"""Programs that leave out what no value reaches that is drawn or made by a constructor: the rest of ids that are all
below what they are divided by. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

RESTS = _pair(
    "hashed_ids", "return F.embedding(i % 100, self.t)", "[torch.randint(0, 100, (16, 12))]",
    ("ids as they are", "return F.embedding(i, self.t)"),
    ("what is left of a quotient", "return self.t[i - 100 * torch.div(i, 100, rounding_mode='floor')]"), args="i",
    init="self.t = nn.Parameter(torch.randn(100, 16))")  # fmt: skip

UNREACHED: tuple[Program, ...] = (*RESTS,)
