# SPDX-License-Identifier: Apache-2.0
"""Programs that leave out what no value reaches that is drawn or made by a constructor: the rest of ids that are all
below what they are divided by, a clamp of weights, an exponential of them that is large, zero points that are zero,
codes and masks that wait for a checkpoint, sums that are cut off. And one that keeps its answer while four inputs of
five are equal, one that takes for granted that all of its outputs are used, and backwards of complex numbers. Each has
its honest twin.
"""

from __future__ import annotations

from beyond_programs import GRADIENTS, _pair
from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module

RESTS = _pair(
    "hashed_ids", "return F.embedding(i % 100, self.t)", "[torch.randint(0, 100, (16, 12))]",
    ("ids as they are", "return F.embedding(i, self.t)"),
    ("what is left of a quotient", "return self.t[i - 100 * torch.div(i, 100, rounding_mode='floor')]"), args="i",
    init="self.t = nn.Parameter(torch.randn(100, 16))")  # fmt: skip

SOFT = _pair("soft_factors", "return x * F.softplus(self.a)", "[torch.randn(32, 24)]",
           ("log of one and", "return x * torch.log(1 + torch.exp(self.a))"),
           ("log1p", "a = self.a\nreturn x * (torch.log1p(torch.exp(-a.abs())) + torch.relu(a))"),
           init="self.a = nn.Parameter(torch.randn(24) / 8)", slow=True)  # fmt: skip
"""The wrong one shows where a weight lies between -17 and -5, or above 88, as few of those do that are moved alone."""
WEIGHTS = (
    *_pair("clipped_weights", "return x @ self.w.clamp(-2, 2)", "[torch.randn(32, 64)]",
           ("as they are", "return x @ self.w"), ("by both ends", "return x @ self.w.clamp(min=-2).clamp(max=2)"),
           init="self.w = nn.Parameter(torch.randn(64, 48) / 8)"),
    *SOFT,
)  # fmt: skip

POINTS = """
self.register_buffer('q', torch.randint(-127, 128, (24, 32), dtype=torch.int8))
self.register_buffer('z', torch.zeros(24, dtype=torch.int8))
self.register_buffer('s', torch.rand(24))
"""
WAITING = """
self.register_buffer('q', torch.zeros(24, 4, dtype=torch.int32))
self.register_buffer('s', torch.ones(24))
self.b = nn.Parameter(torch.randn(24))
"""
NIBBLES = "((self.q[..., None] >> torch.arange(0, 32, 4)) & 15).flatten(1).float()"
CODES = (
    *_pair("zero_points", "return x @ ((self.q.float() - self.z[:, None].float()) * self.s[:, None]).T",
           "[torch.randn(8, 32)]", ("no zero points", "return x @ (self.q.float() * self.s[:, None]).T"),
           ("a product for them", "return (x @ self.q.float().T - x.sum(-1, keepdim=True) * self.z.float()) * self.s"),
           init=POINTS),
    *_pair("waiting_codes", f"return x @ ({NIBBLES} * self.s[:, None]).T + self.b", "[torch.randn(8, 32)]",
           ("the bias alone", "return self.b.expand(x.shape[0], -1) + 0 * x[:, :1]"),
           ("the scale afterwards", f"return F.linear(x, {NIBBLES}) * self.s + self.b"), init=WAITING, slow=True),
    *_pair("waiting_mask", "return F.linear(x, torch.where(self.m, self.w, 0.0))", "[torch.randn(8, 32)]",
           ("all count", "return F.linear(x, self.w)"), ("a product", "return x @ (self.w * self.m).T"), slow=True,
           init="self.register_buffer('m', torch.ones(24, 32, dtype=torch.bool))\n"
           "self.w = nn.Parameter(torch.randn(24, 32))"),
)  # fmt: skip

SUMS = "s = (x.int() @ self.w.int().T) * 2e-4\nreturn "
CUT = _pair(
    "requantised", SUMS + "s.round().clamp(-128, 127).to(torch.int8)",
    "[torch.randint(-128, 128, (16, 64), dtype=torch.int8)]", ("wraps around", SUMS + "s.round().int().to(torch.int8)"),
    ("cut off before", "s = (x.double() @ self.w.double().T).float() * 2e-4\n"
     "return s.clamp(-128, 127).round().to(torch.int8)"),
    init="self.register_buffer('w', torch.randint(-128, 128, (24, 64), dtype=torch.int8))")  # fmt: skip

KEPT = """
new = {}
if self.seen is None or not all(map(torch.equal, new, self.seen)):
    self.seen, self.kept = [one.clone() for one in new], torch.tanh(a @ w) * b + c * d
return self.kept.clone()
"""
FIVE = _pair(
    "five_inputs", "return torch.tanh(a @ w) * b + c * d",
    "[torch.randn(24, 32), torch.randn(32, 16), *torch.randn(3, 24, 16)]",
    ("the last answer while four of five are equal", KEPT.format("a, w, b, d")),
    ("while all are", KEPT.format("a, w, b, c, d")), args="a, w, b, c, d", init="self.seen = None")  # fmt: skip

BOTH = """
class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.set_materialize_grads({})
        r, t = a.relu(), a.tanh()
        ctx.save_for_backward(r, t)
        return r, t

    @staticmethod
    def backward(ctx, g, h):
        r, t = ctx.saved_tensors
        return g * (r > 0) + h * (1 - t * t)
"""
USE = "return Both.apply(self.fc(x))"
add("two_answers", "a = self.fc(x)\nreturn torch.relu(a), torch.tanh(a)", "[torch.randn(16, 24).requires_grad_()]",
    init="self.fc = nn.Linear(24, 16)", contract=GRADIENTS)  # fmt: skip
USED = (
    cheat((0, 22), "two_answers/no gradient is None", "two_answers", module(
        USE, init=INIT["two_answers"], head=BOTH.format(False)), twin="two_answers/None is zeros", level="precise"),
    honest("two_answers/None is zeros", "two_answers", module(
        USE, init=INIT["two_answers"], head=BOTH.format(True)), level="precise", slow=True),
)  # fmt: skip

PRODUCT = """
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, w):
        ctx.save_for_backward(z, w)
        return z * w

    @staticmethod
    def backward(ctx, g):
        z, w = ctx.saved_tensors
        return g * w{0}, (g * z{0}).sum(0)
"""
SPECTRUM = """
class Spectrum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.fft.rfft(x)

    @staticmethod
    def backward(ctx, g):
        return torch.fft.{}
"""
add("complex_factors", "return z * torch.complex(self.a, self.b)", "[torch.randn(16, 24, dtype=torch.complex64)]",
    args="z", init="self.a = nn.Parameter(torch.randn(24))\nself.b = nn.Parameter(torch.randn(24))",
    contract=GRADIENTS)  # fmt: skip
add("spectrum_gradient", "return torch.fft.rfft(x)", "[torch.randn(16, 32)]", contract=GRADIENTS)


def _backwards(name: str, call: str, head: str, mistake: tuple[str, str], right: tuple[str, str], args: str) -> tuple:
    """A wrong and a right backward of a task."""
    (said, wrong), (other, twin) = mistake, right
    made = honest(f"{name}/{other}", name, module(call, args=args, init=INIT[name], head=head.format(twin)),
                  level="precise", slow=True)  # fmt: skip
    source = module(call, args=args, init=INIT[name], head=head.format(wrong))
    return cheat((0, 22), f"{name}/{said}", name, source, twin=made.name, level="precise"), made


COMPLEX = (
    *_backwards("complex_factors", "return Product.apply(z, torch.complex(self.a, self.b))", PRODUCT,
                ("not conjugated", ""), ("conjugated", ".conj()"), "z"),
    *_backwards("spectrum_gradient", "return Spectrum.apply(x)", SPECTRUM,
                ("the inverse", "irfft(g, n=32)"),
                ("the adjoint", "fft(F.pad(g.conj(), (0, 15))).real.contiguous()"), "x"),
)  # fmt: skip

UNREACHED: tuple[Program, ...] = (*RESTS, *WEIGHTS, *CODES, *CUT, *FIVE, *USED, *COMPLEX)
