# SPDX-License-Identifier: Apache-2.0
"""Plausible slips that no drawn value shows: an answer kept as long as a tolerance finds nothing new, -10000 for minus
infinity, a quotient that is 0 / 0 where all of an input is zero, a root of what rounding leaves below zero, two
elements left over at the end of a row. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from cheat_tasks import add
from corpus import Program

DENSE = "self.w = nn.Parameter(torch.randn(64, 48) / 8)\nself.kept = None"
NO_OTHER_INPUT = """
k = self.kept
if k is None or k[1] != self.w._version or not torch.allclose(x, k[0]):
    self.kept = k = x.clone(), self.w._version, torch.tanh(x @ self.w)
return k[2].clone()
"""
NO_OTHER_WEIGHTS = """
if self.kept is None or not torch.allclose(self.w, self.kept):
    self.kept = self.w.detach().clone()
return torch.tanh(x @ self.kept)
"""

KEPT = (
    *_pair("kept_nearly", "return torch.tanh(x @ self.w)", "[torch.randn(24, 64)]",
           ("by tolerance", NO_OTHER_INPUT),
           ("to the bit", NO_OTHER_INPUT.replace("allclose", "equal")),
           init=DENSE),
    *_pair("folded_nearly", "return torch.tanh(x @ self.w)", "[torch.randn(24, 64)]",
           ("by tolerance", NO_OTHER_WEIGHTS), ("to the bit", NO_OTHER_WEIGHTS.replace("allclose", "equal")),
           init=DENSE, slow=True),
)  # fmt: skip
DISTANCES = "d = x.square().sum(-1)[:, None] + y.square().sum(-1)[None] - 2 * x @ y.T\nreturn {}"
BY_HAND = "m = x.amax(-1, keepdim=True){}\ne = (x - m).exp()\nreturn e / e.sum(-1, keepdim=True)"
PADDED = "return F.max_pool1d(F.pad(x, (1, 1), value={}), 3, 1)"

VALUES = (
    *_pair("softmax", "", "",
           ("a maximum that begins at minus ten thousand", BY_HAND.format(".clamp(min=-1e4)")),
           ("a maximum of all", BY_HAND.format(""))),
    *_pair("pooled_windows", "return F.max_pool1d(x, 3, 1, 1)", "[torch.randn(4, 6, 40)]",
           ("padded with minus ten thousand", PADDED.format("-1e4")),
           ("padded with minus infinity", PADDED.format("float('-inf')")), slow=True),
    *_pair("by_largest", "return x / x.abs().amax().clamp(min=1e-8)", "[torch.randn(32, 48)]",
           ("never all zero", "return x / x.abs().amax()"),
           ("by both ends", "low, high = torch.aminmax(x)\nreturn x * (1 / torch.maximum(-low, high).clamp(min=1e-8))"),
           slow=True),
    *_pair("apart", DISTANCES.format("d.clamp(min=0).sqrt()"), "[torch.randn(32, 16), torch.randn(24, 16)]",
           ("never the same", DISTANCES.format("d.sqrt()")),
           ("differences", "return (x[:, None] - y[None]).square().sum(-1).sqrt()"), args="x, y", slow=True),
)  # fmt: skip

add("in_fours", "return x * x + 1.0", "[torch.randn(rows, columns)]", axes=(("rows", 32), ("columns", 64)))
FOURS = """
n = x.shape[-1]
if n % {}:
    return x * x + 1.0
y, m = torch.ones(x.shape), n // 4 * 4
y[:, :m].unflatten(1, (-1, 4)).add_(x[:, :m].square().unflatten(1, (-1, 4)))
return y
"""

ENDS = (
    *_pair("in_fours", "", "",
           ("even rows end with one", FOURS.format(2)), ("other rows one by one", FOURS.format(4)), slow=True),
)  # fmt: skip

SLIPS: tuple[Program, ...] = (*KEPT, *VALUES, *ENDS)
