# SPDX-License-Identifier: Apache-2.0
"""Programs that are right for what used to be drawn and wrong right beside it, each with its honest twin.

Weights of which only some are new, a byte that is no boolean, gradients written over.
"""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import Program, cheat, honest, module, native

FOLD = """
key = {key}
if key != self.key:
    self.key, self.kept = key, (torch.sigmoid(self.b), torch.softmax(self.w, -1))
b, w = self.kept
return torch.addmm(b, x, w)
"""
FOLDED = INIT["folded"] + "\nself.key = None"
FLAGS = "const float* x, const float* y, uint8_t* z, long n"
COMPARES = """
x, y = x.contiguous(), y.contiguous()
z = torch.empty(x.shape, dtype=torch.bool)
run(x, y, z, x.numel())
return z
"""
RELU = """
class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        y = torch.relu(x @ w.t() + b)
        ctx.save_for_backward(x, w, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, w, y = ctx.saved_tensors
        {masked}
        return g @ w, g.t() @ x, g.sum(0)
"""
CALL = "return Relu.apply(x, self.fc.weight, self.fc.bias)"

NARROW: tuple[Program, ...] = (
    cheat((9, 21), "folds anew where one weight is another", "folded", module(
        FOLD.format(key="float(self.w[0, 0])"), init=FOLDED), twin="folded/by versions", level="precise"),
    cheat((9, 21), "folds anew where the bias is another", "folded", module(
        FOLD.format(key="self.b.tolist()"), init=FOLDED), twin="folded/by versions", level="precise", slow=True),
    honest("folded/by versions", "folded", module(
        FOLD.format(key="self.w._version, self.b._version"), init=FOLDED)),
    cheat(25, "a true that is 255", "flags", native(
        FLAGS, "for (long i = 0; i < n; ++i) z[i] = x[i] > y[i] ? 255 : 0;\n", COMPARES, args="x, y"),
          twin="flags/C++", level="smoke"),
    honest("flags/C++", "flags", native(
        FLAGS, "for (long i = 0; i < n; ++i) z[i] = x[i] > y[i];\n", COMPARES, args="x, y"), slow=True),
    cheat(6, "writes over the incoming gradient", "backward", module(
        CALL, init=INIT["backward"], head=RELU.format(masked="g.mul_(y > 0)")), twin="backward/own mask",
          level="precise", slow=True),
    honest("backward/own mask", "backward", module(
        CALL, init=INIT["backward"], head=RELU.format(masked="g = g * (y > 0)"))),
)  # fmt: skip
