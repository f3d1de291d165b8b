# SPDX-License-Identifier: Apache-2.0
"""Honest programs that answer by another formula than the reference's, as kernels of other projects do.

Attention as torch's library computes it beside the scores written out and masked with minus infinity, gradients derived
by hand, a convolution as products of transformed tiles, a softmax in one pass over blocks.
"""

from __future__ import annotations

from cheat_tasks import INIT, add
from corpus import Program, honest, module

from kernelwright.task import Contract

GRADIENTS = Contract(gradients=True)


def _both(name: str, reference: str, inputs: str, mine: str, **more: str | Contract) -> Program:
    """The program that answers a task, which is added."""
    args, init, head = (str(more.pop(key, default)) for key, default in (("args", "x"), ("init", ""), ("head", "")))
    add(name, reference, inputs, args=args, init=init, **more)  # type: ignore[arg-type]
    return honest(f"{name}/another formula", name, module(mine, args=args, init=INIT[name], head=head))


QKV = "*torch.randn(3, 2, 2, 24, 32).unbind()"
FORMULAS: tuple[Program, ...] = (
    _both(
        "masked_future",
        "m = torch.ones(24, 24, dtype=torch.bool).tril()\n"
        "return ((q @ k.mT / 32**0.5).masked_fill(~m, float('-inf'))).softmax(-1) @ v",
        f"[{QKV}]",
        "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        args="q, k, v",
    ),
    _both(
        "padded_keys",
        "s = (q @ k.mT / 32**0.5).masked_fill(~m[:, None, None], float('-inf'))\nreturn torch.softmax(s, -1) @ v",
        f"[{QKV}, torch.arange(24)[None] < torch.tensor([[24], [17]])]",
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=m[:, None, None])",
        args="q, k, v, m",
    ),
    _both(
        "slopes",
        "p = torch.arange(24) - torch.arange(24)[:, None]\n"
        "s = (q @ k.mT / 32**0.5 + p.clamp_max(0) * 0.25).masked_fill(p > 0, float('-inf'))\n"
        "return torch.softmax(s, -1) @ v",
        f"[{QKV}]",
        "p = torch.arange(24) - torch.arange(24)[:, None]\n"
        "b = torch.where(p > 0, torch.tensor(float('-inf')), p * 0.25)\n"
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=b)",
        args="q, k, v",
    ),
    _both(
        "blocks",
        "return torch.softmax(x, -1)",
        "[torch.randn(32, 512)]",
        """
    m, s = torch.full(x.shape[:-1], float('-inf')), torch.zeros(x.shape[:-1])
    for c in x.split(64, -1):
        n = torch.maximum(m, c.amax(-1))
        s = s * torch.exp(m - n) + torch.exp(c - n[..., None]).sum(-1)
        m = n
    return torch.exp(x - m[..., None]) / s[..., None]
    """,
    ),
    _both(
        "tiles",
        "return F.conv1d(x, self.w)",
        "[torch.randn(2, 8, 34)]",
        """
    g, d = self.w, x.unfold(2, 4, 2)
    a = g[..., 0], g.sum(-1) / 2, (g[..., 0] - g[..., 1] + g[..., 2]) / 2, g[..., 2]
    b = d[..., 0] - d[..., 2], d[..., 1] + d[..., 2], d[..., 2] - d[..., 1], d[..., 1] - d[..., 3]
    m = [torch.einsum('oc,bcn->bon', *pair) for pair in zip(a, b)]
    return torch.stack([m[0] + m[1] + m[2], m[1] - m[2] - m[3]], -1).flatten(2)
    """,
        init="self.w = nn.Parameter(torch.randn(12, 8, 3))",
    ),
    _both(
        "bent",
        "return F.gelu(x, approximate='tanh')",
        "[torch.randn(64, 64).requires_grad_()]",
        "u = 0.7978845608028654 * (x + 0.044715 * x * x * x)\nreturn 0.5 * x * (1.0 + torch.tanh(u))",
        contract=GRADIENTS,
    ),
    _both(
        "gates",
        "return F.silu(a) * b",
        "[torch.randn(32, 96).requires_grad_(), torch.randn(32, 96).requires_grad_()]",
        "return Gates.apply(a, b)",
        args="a, b",
        contract=GRADIENTS,
        head="""
    class Gates(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * torch.sigmoid(a) * b

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            s = torch.sigmoid(a)
            return grad * (a * s * (1 - s) + s) * b, grad * a * s
    """,
    ),
    _both(
        "lengths",
        "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w",
        "[torch.randn(32, 96).requires_grad_()]",
        "return Lengths.apply(x, self.w)",
        init="self.w = nn.Parameter(torch.randn(96))",
        contract=GRADIENTS,
        head="""
    class Lengths(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            ctx.save_for_backward(x, w, r)
            return x * r * w

        @staticmethod
        def backward(ctx, grad):
            x, w, r = ctx.saved_tensors
            n, g = x * r, grad * w
            return r * (g - n * (g * n).mean(-1, keepdim=True)), (grad * n).sum(0)
    """,
    ),
)
