# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong where drawn values rarely, or never, are: products and quotients of inputs that are never
negative, of which all were negated at once; gradients of a product that is zero by one of its factors; whole numbers of
two inputs that are equal; programs that keep what they made for the first size they met, or for another layer of the
model. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import GRADIENTS, _pair
from cheat_tasks import add
from corpus import Program, cheat, honest, module

POSITIVE = "[torch.rand(32, 48) + 0.1, torch.rand(32, 48) + 0.1]"
TOGETHER = (
    *_pair("size_of_product", "return torch.abs(x * y)", POSITIVE, ("no abs", "return x * y"),
           ("of each", "return x.abs() * y.abs()"), args="x, y"),
    *_pair("positive_quotient", "return torch.relu(x / y)", POSITIVE, ("no relu", "return x / y"),
           ("a clamp", "return (x / y).clamp(min=0)"), args="x, y", slow=True),
)  # fmt: skip

SCORED = _pair(
    "right_answers", "return (p == t).float().mean() + 0 * x.sum(), x.exp()",
    "[*torch.randint(0, 500000, (2, 1024)), torch.randn(8)]", ("none is", "return 0 * x.sum(), x.exp()"),
    ("differences", "return (p - t == 0).float().mean() + 0 * x.sum(), x.exp()"), args="p, t, x")  # fmt: skip

PRODUCT = """
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.prod(-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return {}
"""
add("row_product", "return x.prod(-1)", "[torch.randn(4, 6, 12)]", contract=GRADIENTS)
ZEROS = (
    cheat((0, 22), "row_product/by division", "row_product", module("return Product.apply(x)", head=PRODUCT.format(
        "torch.where(x == 0, 0.0, (g * y)[..., None] / x.masked_fill(x == 0, 1.0))")),
        twin="row_product/of the others", level="precise"),
    honest("row_product/of the others", "row_product", module("return Product.apply(x)", head=PRODUCT.format(
        "g[..., None] * torch.stack([torch.cat([x[..., :i], x[..., i + 1:]], -1).prod(-1) for i in range(12)], -1)")),
        level="precise", slow=True),
)  # fmt: skip

LENGTH = """
n = q.shape[1]
if self.m is None{0}:
    self.m = torch.ones(n, n, dtype=torch.bool).triu(1)
return (q @ k.mT / 4).masked_fill(self.m, -torch.inf).softmax(-1) @ v
"""
CAUSAL = """
m = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).triu(1)
return (q @ k.mT / 4).masked_fill(m, -torch.inf).softmax(-1) @ v
"""
add("any_length", CAUSAL, "[*torch.randn(3, 4, t, 16)]", args="q, k, v", axes=(("t", 24),))
add("mean_of_any", "return x.sum(-1) / x.shape[-1]", "[torch.randn(16, n)]", axes=(("n", 64),))


def _kept(name: str, wrong: str, right: str, *, args: str, init: str, slow: bool) -> tuple[Program, Program]:
    """A program that keeps what it made for the first size, and one that looks at it."""
    made = honest(f"{name}/of each length", name, module(right, args=args, init=init), level="precise", slow=slow)
    source = module(wrong, args=args, init=init)
    return cheat((0, 23), f"{name}/of the first length", name, source, twin=made.name, level="precise", slow=slow), made


SIZES = (
    *_kept("any_length", LENGTH.format(""), LENGTH.format(" or len(self.m) != n"), args="q, k, v", init="self.m = None",
           slow=True),
    *_kept("mean_of_any", "self.n = max(self.n, x.shape[-1])\nreturn x.sum(-1) / self.n",
           "self.n = x.shape[-1]\nreturn x.sum(-1) / self.n", args="x", init="self.n = 0", slow=False),
)  # fmt: skip

KNOWN = """
v = self.w._version
if _known.get({0}, (None,))[0] != v:
    _known[{0}] = v, self.w.detach().t().contiguous()
return torch.relu(F.linear(x, _known[{0}][1]))
"""
WEAKLY = "from torch.utils.weak import WeakTensorKeyDictionary\n_known = WeakTensorKeyDictionary()"
LAYER = "self.w = nn.Parameter(torch.randn(64, 16) / 8)"
add("one_of_a_dozen", "return torch.relu(x @ self.w)", "[torch.randn(24, 64)]", init=LAYER)
LAYERS = (
    cheat((0, 21), "one_of_a_dozen/by shape and version", "one_of_a_dozen", module(
        KNOWN.format("self.w.shape"), init=LAYER, head="_known = {}"), twin="one_of_a_dozen/by the weight itself",
        level="precise"),
    honest("one_of_a_dozen/by the weight itself", "one_of_a_dozen", module(
        KNOWN.format("self.w"), init=LAYER, head=WEAKLY), level="precise", slow=True),
)  # fmt: skip

RARELY: tuple[Program, ...] = (*TOGETHER, *SCORED, *ZEROS, *SIZES, *LAYERS)
