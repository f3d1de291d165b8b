# SPDX-License-Identifier: Apache-2.0
"""Programs that differ where two inputs are nearly the same, which drawn ones never are: a tolerance left out, or put
in the place of an equality; or that know rows, and weights, by their sums, or take a
softmax of weights without its maximum. And one that is right, of a reference that
draws from the rows it is given, and takes none that is zero or negative. And such as expand squares of what is left of
a square matrix that nearly is the identity, or its own transpose, or of weights near others. Each cheat has its twin.
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

GRADIENTS = Contract(gradients=True)
ON = "on = (c.diagonal() - 1).pow(2).sum()\n"
OFF = "return torch.stack([on, c.flatten()[:-1].view({0} - 1, {0} + 1)[:, 1:].pow(2).sum()])"
BY_DIAGONAL = "return torch.stack([on, c.pow(2).sum() - c.diagonal().pow(2).sum()])"
TWINS = "x, y = ((v - v.mean(0)) / v.std(0) for v in (x, y))\nc = x.T @ y / len(x)\n"
BY_MASK = "return torch.stack([on, c.masked_fill(torch.eye({}, dtype=torch.bool), 0).pow(2).sum()])"
ANCHORED = """
self.w, self.v = (nn.Parameter(torch.randn(64, n) / 8) for n in (48, 32))
self.register_buffer('w0', torch.randn(64, 48) / 8)
self.register_buffer('v0', torch.randn(64, 32) / 8)
self.register_buffer('f', torch.rand(64, 48))
"""
PENALTY = "return x @ self.w, x @ self.v, (self.f * (self.w - self.w0).pow(2)).sum() + (self.v - self.v0).pow(2).sum()"
ABOUT_ANCHORS = """
d, e = self.w - self.w0, self.v - self.v0
return x @ self.w, x @ self.v, torch.dot((self.f * d).flatten(), d.flatten()) + torch.linalg.vector_norm(e).square()
"""
OUT_OF_ANCHORS = """
f, w, o, v, a = self.f, self.w, self.w0, self.v, self.v0
p = (f * w * w).sum() - 2 * (f * w * o).sum() + (f * o * o).sum()
return x @ w, x @ v, (p + (v * v).sum() - 2 * (v * a).sum() + (a * a).sum()).clamp(min=0)
"""
MATRICES = (
    *_pair("off_diagonal", ON + OFF.format(96), "[torch.randn(96, 96)]", ("all less the diagonal", ON + BY_DIAGONAL),
           ("by a mask", ON + BY_MASK.format(96)), args="c"),
    *_pair("twins", TWINS + ON + OFF.format(24), "[torch.randn(256, 24), torch.randn(256, 24)]",
           ("all less the diagonal", TWINS + ON + BY_DIAGONAL), ("by a mask", TWINS + ON + BY_MASK.format(24)),
           args="x, y"),
    *_pair("symmetric_part", "return (a + a.mT).square().sum((1, 2))", "[torch.randn(16, 48, 48)]",
           ("by a trace", "return (2 * (a * a).sum((1, 2)) + 2 * (a * a.mT).sum((1, 2))).clamp(min=0)"),
           ("a norm", "return torch.linalg.matrix_norm(a.mT + a).square()"), args="a"),
    *_pair("off_identity", "return x @ (self.w - torch.eye(48))", "[torch.randn(128, 48)]",
           ("taken off after", "return torch.addmm(x, x, self.w, beta=-1)"),
           ("transposed", "w = self.w.T.clone()\nw.diagonal().sub_(1)\nreturn F.linear(x, w)"),
           init="self.w = nn.Parameter(torch.eye(48) + torch.randn(48, 48) / 7)"),
    *_pair("orthogonal_weight", "g = self.w.T @ self.w - torch.eye(24)\nreturn x @ self.w, g.pow(2).sum()",
           "[torch.randn(64, 40)]",
           ("squares expanded", "g = self.w.T @ self.w\n"
            "return x @ self.w, (g.pow(2).sum() - 2 * self.w.pow(2).sum() + 24).clamp(min=0)"),
           ("fused", "g = torch.addmm(torch.eye(24), self.w.T, self.w, beta=-1)\nreturn x @ self.w, (g * g).sum()"),
           init="self.w = nn.Parameter(torch.randn(40, 24) / 6)"),
    *_pair("anchored", PENALTY, "[torch.randn(64, 64)]", ("squares expanded", OUT_OF_ANCHORS),
           ("products", ABOUT_ANCHORS), init=ANCHORED, contract=GRADIENTS),
)  # fmt: skip

NEARLY: tuple[Program, ...] = (*NEAR, CHOSEN, *SUMS, *MIXED, *ONE, *EQUAL, *MATRICES)
