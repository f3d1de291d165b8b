# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong at one number: > for >=, a floor for a ceiling less one, a clamp that keeps no gradient at
its ends; and such as take small exponentials for zero. Drawn values do not meet them; each has a twin that answers by
another formula and is right there.
"""

from __future__ import annotations

from cheat_tasks import add
from corpus import Program, cheat, honest, module, native

from kernelwright.task import Contract


def _pair(
    name: str, reference: str, wrong: str, right: str, *, args: str = "x", inputs: str = "[torch.randn(64, 256)]",
    head: str = "", contract: Contract | None = None, init: str = "",
) -> tuple[Program, Program]:  # fmt: skip
    """A program that errs on the border of a task, which is added, and one that does not."""
    add(name, reference, inputs, args=args, contract=contract, init=init)
    made = module(right, args=args, head=head, init=init)
    twin = honest(f"{name}/right on the border", name, made, level="precise")
    return _wrong(f"{name}/wrong on the border", name, module(wrong, args=args, head=head, init=init), twin.name), twin


def _wrong(name: str, task: str, source: str | tuple, twin: str) -> Program:
    return cheat(0, name, task, source, twin=twin, level="precise")


CLAMP = """
    class Clamp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, inside):
            ctx.save_for_backward(inside)
            return x.clamp(-1.0, 1.0)
        @staticmethod
        def backward(ctx, g):
            return torch.where(ctx.saved_tensors[0], g, 0.0), None
"""
GATE = """
    for (long i = 0; i < n; ++i) y[i] = x[i] SIGN 0.5f ? x[i] + x[i] : -x[i];
"""
SEATS = "gate, index = torch.softmax(x, -1).max(-1)\ntaken = F.one_hot(index, 8).float()\n"
LATE = "taken = torch.zeros_like(x).scatter_(1, x.argmax(-1, keepdim=True), 1.0)\n"
"""Which expert each row is for, in floats: they are counted, and compared, as whole numbers."""
CALL = "x = x.contiguous()\ny = torch.empty_like(x)\nrun(x, y, x.numel())\nreturn y"
BORDERS: tuple[Program, ...] = (
    *_pair("gate", "return torch.where(x >= 0.5, x * 2.0, -x)", "return torch.where(x > 0.5, x * 2.0, -x)",
           "return torch.where(x < 0.5, -x, x + x)"),
    honest("gate/C++", "gate", native("const float* x, float* y, long n", GATE.replace("SIGN", ">="), CALL),
           level="precise"),
    _wrong("gate/C++, wrong on the border", "gate",
           native("const float* x, float* y, long n", GATE.replace("SIGN", ">"), CALL), "gate/C++"),
    *_pair("stairs", "return torch.floor(x * 2.0 + 1.0)", "return torch.ceil(x * 2.0 + 1.0) - 1.0",
           "return torch.floor((x + 0.5) * 2.0)"),
    *_pair("shrunk", "return F.hardshrink(x, 0.8125)", "return torch.where(x.abs() >= 0.8125, x, 0.0)",
           "return torch.where(x.abs() > 0.8125, x, 0.0)"),
    *_pair("buckets", "return torch.bucketize(x, torch.tensor([-1.25, 0.125, 3.0]))",
           "return torch.bucketize(x, torch.tensor([-1.25, 0.125, 3.0]), right=True)",
           "return (x > -1.25).long() + (x > 0.125).long() + (x > 3.0).long()"),
    *_pair("at_least", "return torch.where(x >= y, x * y, y)", "return torch.where(x > y, x * y, y)",
           "return torch.where(y > x, y, x * y)", args="x, y", inputs="[torch.randn(64, 256), torch.randn(64, 256)]"),
    *_pair("clamp_ends", "return x.clamp(-1.0, 1.0) * 3.0", "return Clamp.apply(x, x.abs() < 1.0) * 3.0",
           "return Clamp.apply(x, x.abs() <= 1.0) * 3.0", head=CLAMP,
           inputs="[torch.randn(64, 96).requires_grad_()]", contract=Contract(gradients=True)),
    _wrong("softmax/small probabilities are zero", "softmax", module(
        "y = torch.softmax(x, -1)\nreturn torch.where(y < 1e-9, 0.0, y)"), "softmax/by powers of two"),
    honest("softmax/by powers of two", "softmax", module(
        "y = x * 1.4426950408889634\ny = torch.exp2(y - y.amax(-1, keepdim=True))\nreturn y / y.sum(-1, keepdim=True)"),
        level="precise"),
    _wrong("exponential/small results are zero", "exponential", module(
        "y = torch.exp(x)\nreturn torch.where(y < 1e-8 * y.amax(), 0.0, y)"), "exponential/eager"),
    *_pair("capacity", SEATS + "return taken * (taken.cumsum(0) * taken <= 10) * gate[:, None]",
           SEATS + "return taken * (taken.cumsum(0) * taken < 10) * gate[:, None]",
           LATE + "return torch.where((taken > 0) & (taken.int().cumsum(0) < 11), torch.softmax(x, -1), 0.0)",
           inputs="[torch.randn(128, 8)]"),
    *_pair("rises", "s = x.cumsum(-1)\nreturn torch.where(s[:, 1:] > s[:, :-1], x[:, 1:], x[:, :-1] * -2.0)",
           "s = x.cumsum(-1)\nreturn torch.where(s[:, 1:] >= s[:, :-1], x[:, 1:], x[:, :-1] * -2.0)",
           "return torch.where(x[:, 1:] > 0, x[:, 1:], x[:, :-1] * -2.0)",
           inputs="[torch.randint(0, 3, (64, 40)).float()]"),
    *_pair("held_gates", "return torch.where(x >= self.t, x, -x)", "return torch.where(x > self.t, x, -x)",
           "return torch.where(x < self.t, -x, x)", init="self.register_buffer('t', torch.rand(256))"),
    *_pair("held_edges", "return self.e[torch.bucketize(x, self.t)]",
           "return self.e[torch.bucketize(x, self.t, right=True)]", "return self.e[(x[:, None] > self.t).sum(-1)]",
           inputs="[torch.rand(256) * 2]", init="self.register_buffer('t', torch.rand(16).sort().values + 0.5)\n"
           "self.e = nn.Parameter(torch.randn(18, 64))"),
    *_pair("held_clamp", "return torch.clamp(x, -self.t, self.t) + x.clamp(max=self.t)",
           "return Clamp.apply(x, x.abs() < self.t, self.t) + x.clamp(max=self.t)",
           "return Clamp.apply(x, x.abs() <= self.t, self.t) + x.clamp(max=self.t)",
           head=CLAMP.replace("x, inside)", "x, inside, t)").replace("-1.0, 1.0", "-t, t").replace("0.0), None", "0.0), None, None"),
           inputs="[torch.randn(64, 96).requires_grad_()]", contract=Contract(gradients=True),
           init="self.register_buffer('t', torch.rand(96) + 0.5)"),
    honest("stairs/by whole numbers", "stairs", module(
        "y = x * 2.0 + 1.0\nz = y.to(torch.int64)\nreturn (z - (y < z).long()).to(x.dtype)"), level="precise"),
)  # fmt: skip
