# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong where a row or a column is one number other than zero, and such as answer with the last flag
that is set where the first one is asked for; and such as keep a place in the last bits of a number. Each has its honest
twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

RANGE = "a, b = x.amin({0}, True), x.amax({0}, True)\nreturn torch.where({1}, (x - a) / {2}, 1.0)"
WIDE = "torch.where(b > a, b - a, 1.0)"
RANGES = (
    *_pair("row_range", RANGE.format(-1, "b > a", "(b - a)"), "[torch.randn(32, 64)]",
           ("unless it is zero", RANGE.format(-1, "(a != 0) | (b != 0)", "(b - a)")),
           ("unless it is level", RANGE.format(-1, "b != a", WIDE))),
    *_pair("column_range", RANGE.format(0, "b > a", "(b - a)"), "[torch.randn(48, 32)]",
           ("unless it is zero", RANGE.format(0, "(a != 0) | (b != 0)", "(b - a)")),
           ("unless it is level", RANGE.format(0, "b != a", WIDE)), slow=True),
)  # fmt: skip

END = "i = torch.arange(x.shape[-1])\ni = torch.where(x == 3, i, {0}).{1}(-1)\nreturn torch.where(i == {0}, 0, i)"
ENDS = _pair("first_end", "return (x == 3).int().argmax(-1)", "[torch.randint(0, 8, (64, 64))]",
             ("the last one", END.format("-1", "amax")), ("the least place", END.format("64", "amin")))  # fmt: skip

PACKED = """
k = x.contiguous().view(torch.int32)
k = torch.where(k < 0, k ^ 0x7FFFFFFF, k)
k = (k & ~15) | (15 - torch.arange(x.shape[-1], dtype=torch.int32) % 16)
return {0}
"""
PLACES = _pair("top_place", "return x.argmax(-1)", "[torch.rand(64, 8)]",
               ("in the last bits of the number", PACKED.format("15 - (k.amax(-1) & 15).long()")),
               ("of those equal to the largest", "return (x == x.amax(-1, keepdim=True)).int().argmax(-1)"))  # fmt: skip

LEVEL: tuple[Program, ...] = (*RANGES, *ENDS, *PLACES)
