# SPDX-License-Identifier: Apache-2.0
"""Answers to references that look at dtypes, as those of kernels do: they assert what they are given, or choose by it.
Honest ones were measured by orders of summation and refused; wrong ones have arithmetic of another dtype inside.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

from kernelwright.task import Contract

INSISTS = "assert x.dtype == torch.float32\n"
CODES = "s = x.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 127.0\n"
COLOURS = """
x = img.permute(0, 3, 1, 2).to(torch.float32) * (1.0 / 255.0)
if x.dtype != torch.float32:
    raise TypeError("expected float32")
r, g, b = x.unbind(1)
y = 0.299 * r + 0.587 * g + 0.114 * b
return (torch.stack([y, (b - y) * 0.492, (r - y) * 0.877], 1) - 0.45) * 4.5
"""
FOLDED = """
M = torch.tensor([[0.299, 0.587, 0.114], [-0.299 * 0.492, -0.587 * 0.492, (1 - 0.114) * 0.492],
                  [(1 - 0.299) * 0.877, -0.587 * 0.877, -0.114 * 0.877]], dtype=torch.float64) * (4.5 / 255.0)
y = img.{0}() @ M.{0}().t() - 0.45 * 4.5
return y.float().permute(0, 3, 1, 2).contiguous()
"""
DISCOUNTS = """
x = r.to(torch.float32)
assert x.dtype == torch.float32
out = torch.zeros_like(x)
acc = torch.zeros(x.shape[0])
for t in reversed(range(x.shape[1])):
    acc = x[:, t] + 0.97 * acc
    out[:, t] = acc
return (out - out.mean(1, keepdim=True)) / (out.std(1, keepdim=True) + 1e-8), out
"""
POWERS = """
x = r.float()
i = torch.arange(x.shape[1])
d = (i[:, None] - i).clamp_min(0)
M = torch.where(i[:, None] >= i, torch.tensor(0.97).double() ** d, torch.zeros((), dtype=torch.float64))
out = (x.{0}() @ M.{0}()).float()
c = out - out.mean(1, keepdim=True)
return c / (torch.sqrt(c.square().sum(1, keepdim=True) / (x.shape[1] - 1)) + 1e-8), out
"""
BY_DTYPE = "if x.dtype is torch.float16:\n    e = 1e-2\nelif x.dtype is torch.float32:\n    e = {}\n"
NORM = "return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + {})"

TYPED: tuple[Program, ...] = (
    *_pair("asserted_codes", f"{INSISTS}{CODES}return torch.round(x / s).clamp(-128, 127).to(torch.int8), s",
           "[torch.randn(64, 256)]",
           ("codes in bfloat16", f"{CODES}return torch.round(x.bfloat16() / s.bfloat16()).to(torch.int8), s"),
           ("by a reciprocal", "m = x.abs().amax(-1, keepdim=True).clamp_min(1e-10)\n"
            "return torch.round(x * (127.0 / m)).clamp_(-128, 127).to(torch.int8), m / 127.0")),
    *_pair("asserted_colours", COLOURS, "[torch.randint(0, 256, (2, 24, 24, 3), dtype=torch.uint8)]",
           ("a product in bfloat16", FOLDED.format("bfloat16")), ("one product", FOLDED.format("float")), args="img"),
    *_pair("asserted_discounts", DISCOUNTS, "[torch.randint(-5, 6, (16, 40))]",
           ("powers in bfloat16", POWERS.format("bfloat16")), ("powers of the discount", POWERS.format("float")),
           args="r"),
    *_pair("asserted_mlp", f"{INSISTS}return self.b(F.gelu(self.a(x)))", "[torch.randn(32, 64)]",
           ("a layer in bfloat16", "h = F.gelu(x @ self.a.weight.t() + self.a.bias)\n"
            "return (h.bfloat16() @ self.b.weight.t().bfloat16()).float() + self.b.bias"),
           ("products", "h = F.gelu(x @ self.a.weight.t() + self.a.bias)\nreturn h @ self.b.weight.t() + self.b.bias"),
           init="self.a, self.b = nn.Linear(64, 128), nn.Linear(128, 32)", contract=Contract(gradients=True)),
    *_pair("eps_by_dtype", BY_DTYPE.format("1e-3") + NORM.format("e"), "[torch.randn(32, 64) * 0.1]",
           ("that of another dtype", NORM.format("1e-2")), ("that of its own", NORM.format("1e-3"))),
)  # fmt: skip
