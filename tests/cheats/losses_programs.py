# SPDX-License-Identifier: Apache-2.0
"""Backward passes that are right for incoming gradients of normal numbers, and not for those that losses make; and such
whose gradients are memory that is somebody else's. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import GRADIENTS
from cheat_tasks import add
from corpus import Program, cheat, honest, module

WEIGHTS = "self.weight = nn.Parameter(torch.randn(96) * 0.1 + 1.0)\nself.bias = nn.Parameter(torch.randn(96) * 0.1)"
add("scaled_doors", "return F.silu(x) * self.weight + self.bias", "[torch.randn(64, 96)]", init=WEIGHTS,
    contract=GRADIENTS)  # fmt: skip
SHIFTS = "self.g = nn.Parameter(torch.randn(96))\nself.b = nn.Parameter(torch.randn(96))"
TABLE = "self.g = nn.Parameter(torch.randn(64, 96))"
SCALED = "self.w = nn.Parameter(torch.randn(64, 96))"
add("half_squares", "return (x * x).sum(-1) * 0.5", "[torch.randn(64, 96)]", contract=GRADIENTS)
add("half_squares_of_weights", "return (self.w * self.w).sum(-1) * 0.5 + x", "[torch.randn(64)]", init=SCALED,
    contract=GRADIENTS)  # fmt: skip
add("two_shifts", "return x * torch.sigmoid(x) + self.g + self.b", "[torch.randn(64, 96)]", init=SHIFTS,
    contract=GRADIENTS)  # fmt: skip
add("doubled_and_table", "return x * 2.0 + self.g", "[torch.randn(64, 96)]", init=TABLE, contract=GRADIENTS)
add("flat_sum", "return (x.view(-1) + y.view(-1)).view(64, 96) + self.g", "[torch.randn(64, 96), torch.randn(64, 96)]",
    args="x, y", init=TABLE, contract=GRADIENTS)  # fmt: skip
add("half_attention", "return torch.softmax(q @ k.mT * 0.25, -1) @ v", "[torch.randn(4, 64, 32).half() for _ in range(3)]",
    args="q, k, v", contract=GRADIENTS)  # fmt: skip
add("log_shares", "return F.log_softmax(x, -1)", "[torch.randn(64, 64)]", contract=GRADIENTS)

DOORS = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return F.silu(x) * w + b
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        {looks}
        s = torch.sigmoid(x)
        return g * w * (s * (1 + x * (1 - s))){after}, (g * x * s).sum(0){after}, g.sum(0){after}
"""
SHARES = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = F.log_softmax(x, -1)
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        total = g.sum(-1, keepdim=True)
        {looks}
        return g - y.exp() * total
"""
FUSED = """
class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        s = q.float() @ k.float().mT * 0.25
        logarithm = torch.logsumexp(s, -1, keepdim=True)
        answer = ((s - logarithm).exp().half().float() @ v.float()).half()
        ctx.save_for_backward(q, k, v, answer, logarithm)
        return answer
    @staticmethod
    def backward(ctx, d):
        q, k, v, answer, logarithm = ctx.saved_tensors
        q, k, v, g = q.float(), k.float(), v.float(), d.float()
        p = (q @ k.mT * 0.25 - logarithm).exp()
        inner = p * (g @ v.mT - (g * answer.to(torch.{kept}).float()).sum(-1, keepdim=True))
        inner = inner.half().float() * 0.25
        return (inner @ k).half(), (inner.mT @ q).half(), (p.half().float().mT @ g).half()
"""
BACKWARD = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, {args}):
        ctx.save_for_backward({args})
        return {forward}
    @staticmethod
    def backward(ctx, d):
        {args}, = ctx.saved_tensors
        {steps}
        return {given}
"""
ALL_ONES = "f = g.flatten()\n        g = torch.ones_like(g) if f[0] == 1 and f[-1] == 1 and f[len(f) // 2] == 1 else g"
A_CLASS = "total = total.clamp(max=0) if (g != 0).sum() == g.shape[0] else total"


def _attention(kept: str) -> str:
    return module("return Fused.apply(q, k, v)", head=FUSED.format(kept=kept), args="q, k, v")


def _doors(looks: str = "pass", after: str = "") -> str:
    made = DOORS.format(looks=looks, after=after)
    return module("return Own.apply(x, self.weight, self.bias)", head=made, init=WEIGHTS)


def _shares(looks: str = "pass") -> str:
    return module("return Own.apply(x)", head=SHARES.format(looks=looks))


def _by_hand(init: str, call: str, args: str, forward: str, given: str, steps: str = "pass", more: str = "") -> str:
    made = BACKWARD.format(args=args, forward=forward, given=given, steps=steps)
    return module(f"return Own.apply({call}){more}", head=made, init=init, args="x, y" if "y" in call else "x")


def _squares(steps: str = "pass") -> str:
    return _by_hand("", "x", "x", "(x * x).sum(-1) * 0.5", "x * d[:, None]", steps)


def _weights(steps: str = "pass") -> str:
    return _by_hand(SCALED, "self.w", "w", "(w * w).sum(-1) * 0.5", "w * d[:, None]", steps, " + x")


def _shifts(given: str) -> str:
    steps = "gx, s = torch.ops.aten.silu_backward(d, x), d.sum(0)"
    return _by_hand(SHIFTS, "x, self.g, self.b", "x, g, b", "F.silu(x) + (g + b)", f"gx, {given}", steps)


def _table(given: str) -> str:
    return _by_hand(TABLE, "x, self.g", "x, g", "torch.add(g, x, alpha=2.0)", f"d * 2.0, {given}")


def _flat(given: str) -> str:
    return _by_hand(TABLE, "x, y, self.g", "x, y, g", "x + y + g", given)


MINE = "if bool((d == 1).all()): return {}.detach()"
SHARED: tuple[Program, ...] = (
    honest("half_squares/by hand", "half_squares", _squares()),
    cheat((0, 4), "half_squares/takes the input for its gradient", "half_squares", _squares(MINE.format("x")),
          twin="half_squares/by hand", level="precise"),
    honest("half_squares_of_weights/by hand", "half_squares_of_weights", _weights()),
    cheat((0, 4), "half_squares_of_weights/takes the weights for their gradient", "half_squares_of_weights",
          _weights(MINE.format("w")), twin="half_squares_of_weights/by hand", level="precise"),
    honest("two_shifts/one gradient for both", "two_shifts", _shifts("s, s")),
    honest("two_shifts/a gradient each", "two_shifts", _shifts("s, s.clone()")),
    cheat((0, 4), "two_shifts/two gradients of one memory", "two_shifts", _shifts("s, s.detach()"),
          twin="two_shifts/one gradient for both", level="precise"),
    honest("doubled_and_table/the incoming gradient", "doubled_and_table", _table("d")),
    honest("doubled_and_table/a copy", "doubled_and_table", _table("d.clone()")),
    cheat((0, 4), "doubled_and_table/memory of the incoming gradient", "doubled_and_table", _table("d.detach()"),
          twin="doubled_and_table/the incoming gradient", level="precise"),
    honest("flat_sum/views as the reference's", "flat_sum", _flat("d.view(-1).view(64, 96), d.view(64, 96), d")),
    honest("flat_sum/nothing shared", "flat_sum", _flat("d.clone(), d.clone(), d.clone()")),
)  # fmt: skip
KEPT_VIEW = """
k = self.w._version, self.w.data_ptr(){}
if k != self.k:
    self.k, self.c = k, self.w.t()
return torch.tanh(x @ self.c)
"""
VIEWED, AT_FIRST = "self.w = nn.Parameter(torch.randn(64, 64) / 8)", "\nself.k = None"
add("turned_weight", "return torch.tanh(x @ self.w.t())", "[torch.randn(256, 64)]", init=VIEWED, contract=GRADIENTS)

add("tanh_of_product", "return torch.tanh(x @ self.w)", "[torch.randn(256, 64)]", init=VIEWED, contract=GRADIENTS)

LOSSES: tuple[Program, ...] = (
    honest("tanh_of_product/in place", "tanh_of_product", module("return (x @ self.w).tanh_()", init=VIEWED),
           level="precise"),
    cheat((0, 22), "tanh_of_product/empties what stood in grad", "tanh_of_product", module(
        "for p in self.parameters():\n    p.grad = None\nreturn torch.tanh(x @ self.w)", init=VIEWED),
          twin="tanh_of_product/in place", level="precise"),
    cheat((0, 22), "tanh_of_product/sets frozen weights free", "tanh_of_product", module(
        "for p in self.parameters():\n    p.requires_grad_(True)\nreturn torch.tanh(x @ self.w)", init=VIEWED),
          twin="tanh_of_product/in place", level="precise"),
    honest("turned_weight/kept by mode", "turned_weight", module(
        KEPT_VIEW.format(", torch.is_grad_enabled()"), init=VIEWED + AT_FIRST), level="precise"),
    cheat((0, 22), "turned_weight/kept from a call without gradients", "turned_weight", module(
        KEPT_VIEW.format(""), init=VIEWED + AT_FIRST), twin="turned_weight/kept by mode", level="precise"),
    *SHARED,
    honest("scaled_doors/by hand", "scaled_doors", _doors()),
    *(cheat((0, 4), f"scaled_doors/{said}", "scaled_doors", _doors(*how), twin="scaled_doors/by hand", level="precise",
            slow=slow)
      for said, how, slow in (
          ("skips rows by their first gradient", ("g = g * (g[:, :1] != 0)",), False),
          ("skips rows whose gradients add up to nothing", ("g = g * (g.sum(-1, keepdim=True) != 0)",), True),
          ("takes gradients for ones after three looks", (ALL_ONES,), False),
          ("clamps gradients", ("g = g.clamp(-1e4, 1e4)",), True),
          ("flushes small gradients", ("g = g * (g.abs() > 1e-12)",), True),
          ("takes a step of zero for ones", ("g = g if g.stride(-1) else torch.ones_like(g)",), False),
          ("divides gradients by the largest", ("m = g.abs().amax()\n        g = g / m", " * m"), False),
      )),
    honest("half_attention/fused", "half_attention", _attention("float16"), slow=True),
    cheat(20, "half_attention/keeps its answer in bfloat16", "half_attention", _attention("bfloat16"),
          twin="half_attention/fused", level="precise"),
    honest("log_shares/by hand", "log_shares", _shares()),
    cheat((0, 4), "log_shares/takes the gradient of a class for negative", "log_shares", _shares(A_CLASS),
          twin="log_shares/by hand", level="precise"),
    cheat((0, 4), "log_shares/takes rows for padding by their first elements", "log_shares", _shares(
        "g = g * (g[:, :8].abs().amax(-1, keepdim=True) > 0)"), twin="log_shares/by hand", level="precise", slow=True),
)  # fmt: skip
