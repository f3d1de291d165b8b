# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong where drawn values rarely, or never, are: products and quotients of inputs that are never
negative, of which all were negated at once, and gradients of a
product that is zero by one of its factors. Each has its honest twin.
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

RARELY: tuple[Program, ...] = (*TOGETHER, *ZEROS)
