# SPDX-License-Identifier: Apache-2.0
"""Programs that differ where two inputs are nearly the same, which drawn ones never are: a tolerance left out, or put
in the place of an equality; or that know rows, and weights, by their sums, or take a
softmax of weights without its maximum. And one that is right, of a reference that
draws from the rows it is given, and takes none that is zero or negative. Each cheat has its honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from cheat_tasks import INIT, add
from corpus import Program, honest, module

from kernelwright.task import Contract

TWO = "[torch.randn(32, 48), torch.randn(32, 48)]"
NEAR = (
    *_pair("nearly_equal", "return torch.isclose(x, y, rtol=1e-5, atol=0.0)", TWO,
           ("equal", "return x == y"), ("by hand", "return (x - y).abs() <= 1e-5 * y.abs()"), args="x, y"),
    *_pair("equal_pairs", "return (x == y).float()", TWO,
           ("by tolerance", "return torch.isclose(x, y, atol=0.0).float()"),
           ("those that are not", "return 1.0 - (x != y).float()"), args="x, y"),
)  # fmt: skip

add("chosen_tokens", "return torch.multinomial(p, 4)", "[torch.rand(64, 32) + 0.1]", args="p",
    contract=Contract(random=True))  # fmt: skip
CHOSEN = honest("chosen_tokens/the largest of quotients", "chosen_tokens", module(
    "return (p / torch.empty_like(p).exponential_()).topk(4)[1]", args="p", init=INIT["chosen_tokens"]),
    level="precise", slow=True)  # fmt: skip

ROWS = """
k = torch.stack([x.double().sum(-1), x.double().abs().sum(-1)], -1) if {0} else x.clone()
if self.key is None or self.v != self.w._version or self.key.shape != k.shape:
    self.y = torch.tanh(x @ self.w)
else:
    new = (k != self.key).any(-1)
    self.y[new] = torch.tanh(x[new] @ self.w)
self.key, self.v = k, self.w._version
return self.y.clone()
"""
SUMMED = """
k = torch.stack([self.w.double().sum(), self.w.double().abs().sum()]) if {0} else self.w.detach().clone()
if self.key is None or not torch.equal(k, self.key):
    self.key, self.y = k, self.w.detach().t().contiguous()
return torch.relu(F.linear(x, self.y))
"""
KNOWN = "self.w = nn.Parameter(torch.randn(64, 16) / 8)\nself.key = self.y = None"
SUMS = (
    *_pair("known_rows", "return torch.tanh(x @ self.w)", "[torch.randn(24, 64)]",
           ("by their sums", ROWS.format(True)), ("to the bit", ROWS.format(False)), init=KNOWN),
    *_pair("known_weights", "return torch.relu(x @ self.w)", "[torch.randn(24, 64)]",
           ("by their sums", SUMMED.format(True)), ("to the bit", SUMMED.format(False)), init=KNOWN, slow=True),
)  # fmt: skip

MIXED = _pair(
    "mixing_weights", "return (x * self.w.softmax(0)[:, None]).sum(1)", "[torch.randn(16, 12, 8)]",
    ("no maximum", "e = self.w.exp()\nreturn torch.einsum('bkd,k->bd', x, e / e.sum())"),
    ("a maximum", "e = (self.w - self.w.max()).exp()\nreturn torch.einsum('bkd,k->bd', x, e / e.sum())"),
    init="self.w = nn.Parameter(torch.zeros(12))")  # fmt: skip

ONE = _pair(
    "one_factor", "return x * F.softplus(self.a)", "[torch.randn(16, 64)]",
    ("log of one and", "return x * torch.log(1 + torch.exp(self.a))"),
    ("logaddexp", "return x * torch.logaddexp(self.a, torch.zeros_like(self.a))"),
    init="self.a = nn.Parameter(torch.zeros(1))", slow=True)  # fmt: skip

EQUAL = _pair(
    "called_twice", "return x * 2 + y.sin()", TWO,
    ("equal as a whole", "return x * 3 if torch.equal(x, y) else x * 2 + y.sin()"),
    ("added up", "return torch.sin(y) + x + x"), args="x, y")  # fmt: skip
"""A model that is called with one tensor twice."""

NEARLY: tuple[Program, ...] = (*NEAR, CHOSEN, *SUMS, *MIXED, *ONE, *EQUAL)
