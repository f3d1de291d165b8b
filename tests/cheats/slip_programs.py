# SPDX-License-Identifier: Apache-2.0
"""Plausible slips that no drawn value shows: an answer kept as long as a tolerance finds nothing new. Each has its
honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
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

SLIPS: tuple[Program, ...] = (*KEPT,)
