# SPDX-License-Identifier: Apache-2.0
"""Programs that are coarse in those elements that a reference has exact, beside such as it has wrong by as much: an
error that is that of the whole output and not of its kind. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

HALVES = "return torch.cat([torch.sin(x + 1e5), {}], -1)"
LESS_ONE = "torch.expm1(-2.0 * y.abs())"
BY_EXPONENTIAL = f"-torch.sign(y) * {LESS_ONE} / (2.0 + {LESS_ONE})"
IN_TURN = "return torch.stack([torch.cos(x * 3e4), {}], -1).flatten(-2)"
LARGE = "return torch.where(x > 0.5, torch.sin(x * 1e5), {})"
IN_DOUBLE = "return torch.where(x > 0.5, torch.sin((x * 1e5).double()).float(), {})"
OCTAVES = "return torch.cat([torch.sin({1}) for k in range({0})], -1)"
TWICE = """
a = torch.stack([x * 2.0**k for k in range(18)], -2)
return torch.sin(a).flatten(-2)
"""
COARSE_ONES = """
a = torch.cat([x * 2.0**k for k in range(18)], -1)
return torch.cat([torch.sin(a[..., :96].bfloat16()).float(), torch.sin(a[..., 96:])], -1)
"""
TWO = "[torch.randn(64, 32), torch.randn(64, 32)]"

HIDDEN: tuple[Program, ...] = (
    *_pair("exact_half", HALVES.format("torch.tanh(y)"), TWO,
           ("in bfloat16", HALVES.format("torch.tanh(y.bfloat16()).float()")),
           ("by an exponential", HALVES.format(BY_EXPONENTIAL)), args="x, y"),
    *_pair("exact_half", "", "", ("in half precision", HALVES.format("torch.tanh(y.half()).float()")),
           ("as it is", HALVES.format("torch.tanh(y)")), args="x, y"),
    *_pair("exact_in_turn", IN_TURN.format("y * torch.sigmoid(y)"), TWO,
           ("in bfloat16", IN_TURN.format("(y * torch.sigmoid(y)).bfloat16().float()")),
           ("by an exponential", IN_TURN.format("y / (1.0 + torch.exp(-y))")), args="x, y", slow=True),
    *_pair("exact_by_value", LARGE.format("torch.tanh(x)"), "[torch.randn(64, 48)]",
           ("in bfloat16", LARGE.format("torch.tanh(x.bfloat16()).float()")),
           ("sines in float64", IN_DOUBLE.format("torch.tanh(x)"))),
    *_pair("octaves", OCTAVES.format(18, "x * 2.0**k"), "[torch.randn(48, 32)]",
           ("low ones in bfloat16", COARSE_ONES), ("all at once", TWICE)),
)  # fmt: skip
