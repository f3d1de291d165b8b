# SPDX-License-Identifier: Apache-2.0
"""Plausible slips that no drawn value shows: an answer kept as long as a tolerance finds nothing new, two elements left
over at the end of a row. Each has its honest twin.
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

SLIPS: tuple[Program, ...] = (*KEPT, *ENDS)
