# SPDX-License-Identifier: Apache-2.0
"""Programs that are right for what used to be drawn and wrong right beside it, each with its honest twin.

Weights or inputs of which only some are new, rows that lie apart, whole numbers in uneven shares, masks and positions
that were always the same, masks and gradients that are not each other's, a byte that is no boolean, gradients written over.
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
DROPPED_RELU = """
class Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = F.dropout(F.relu(x), 0.25, True)
        ctx.save_for_backward(x, y)
        return y
    @staticmethod
    def backward(ctx, g):
        return g * {mask} / 0.75
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
BUCKETS = """
counts = torch.bincount(i, minlength=64)
order = torch.argsort(i, stable=True)
rank = torch.arange(len(i)) - (counts.cumsum(0) - counts)[i[order]]
order = order[rank < {most}]
return torch.zeros(64, 32).index_add(0, i[order], x[order])
"""
DROP = """
class Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        m = (torch.rand_like(x) < 0.5) * 2.0
        ctx.save_for_backward(m)
        return x * m

    @staticmethod
    def backward(ctx, g):
        return g * {mask}
"""
ATTENTION = "return F.scaled_dot_product_attention(q, k, v, {how})"
POSITIONS = INIT["positions"]
ON_THE_MODULE = (
    RELU.replace("(ctx, x, w, b)", "(ctx, x, w, b, where)")
    .replace("ctx.save_for_backward(x, w, y)", "where.kept, ctx.where = (x.detach(), w.detach(), y.detach()), where")
    .replace("ctx.saved_tensors", "ctx.where.kept")
    .replace("g.sum(0)", "g.sum(0), None")
)
CALL = "return Relu.apply(x, self.fc.weight, self.fc.bias)"

KEPT = (
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
    cheat((8, 31), "keeps for gradients what its last call left", "backward", module(
        "return Relu.apply(x, self.fc.weight, self.fc.bias, self)", init=INIT["backward"],
        head=ON_THE_MODULE.format(masked="g = g * (y > 0)")), twin="backward/own mask"),
    honest("backward/own mask", "backward", module(
        CALL, init=INIT["backward"], head=RELU.format(masked="g = g * (y > 0)"))),
)  # fmt: skip

DRAWN = (
    cheat((22, 25), "a unit last step taken for contiguous", "pointwise", module(
        "if x.stride(-1) == 1:\n    x = x.as_strided(x.shape, (x.shape[1], 1))\nreturn F.gelu(x * 1.7) + 0.5 * x"),
          twin="pointwise/C++ strides", level="precise"),
    cheat((22, 25), "a unit last step taken for contiguous, in both inputs", "matmul", module(
        "a, b = (t.as_strided(t.shape, (t.shape[1], 1)) if t.stride(-1) == 1 else t for t in (a, b))\nreturn a @ b",
        args="a, b"), twin="matmul/einsum", level="precise", slow=True),
    cheat(9, "the last answer where one input of three is equal", "gated", module(
        "if self.x is None or not torch.equal(x, self.x):\n    self.x, self.y = x.clone(), torch.tanh(x @ w) * y\n"
        "return self.y.clone()", args="x, w, y", init="self.x = None"), twin="gated/two threads", level="precise"),
    honest("gated/two threads", "gated", module(
        "out = torch.empty(x.shape[0], w.shape[1])\nm = x.shape[0] // 2\n"
        "def half(s):\n    torch.mul(torch.tanh(x[s] @ w), y[s], out=out[s])\n"
        "other = threading.Thread(target=half, args=(slice(m, None),))\nother.start()\nhalf(slice(m))\nother.join()\n"
        "return out", args="x, w, y", head="import threading")),
    cheat(9, "the last answer where the first ids are equal", "lookup", module(
        "key = ids[0, :4].tolist()\nif key != self.key:\n    self.key, self.kept = key, self.table(ids)\n"
        "return self.kept.clone()", args="ids", init=INIT["lookup"] + "\nself.key = None"), twin="lookup/index",
          level="precise", slow=True),
    cheat(22, "counters of eight bits", "tally", module(
        "return torch.bincount(x, minlength=64).to(torch.uint8).long()"), twin="tally/one hot", level="precise"),
    honest("tally/one hot", "tally", module("return F.one_hot(x, 64).sum(0)")),
    cheat(22, "buckets of sixteen", "gathered", module(BUCKETS.format(most=16), args="i, x"),
          twin="gathered/buckets that hold all", level="precise", slow=True),
    honest("gathered/buckets that hold all", "gathered", module(BUCKETS.format(most="len(i)"), args="i, x"), slow=True),
    cheat(21, "counts positions itself", "positions", module(
        "return x + self.table[:x.shape[1]]", args="x, at", init=POSITIONS), twin="positions/embedding",
          level="precise", slow=True),
    honest("positions/embedding", "positions", module(
        "return x + F.embedding(at, self.table)", args="x, at", init=POSITIONS), slow=True),
    cheat(21, "causal whatever the mask", "causal", module(
        ATTENTION.format(how="is_causal=True"), args="q, k, v, mask"), twin="causal/a library's", level="precise"),
    honest("causal/a library's", "causal", module(ATTENTION.format(how="attn_mask=mask"), args="q, k, v, mask")),
    cheat(22, "loses NaN in the tail of a row", "larger", module(
        "z = torch.maximum(x, y)\nz[:, 64:] = torch.fmax(x[:, 64:], y[:, 64:])\nreturn z", args="x, y"),
          twin="larger/where", level="precise", slow=True),
    honest("larger/where", "larger", module(
        "return torch.where((x > y) | x.isnan(), x, y)", args="x, y"), slow=True),
)  # fmt: skip

RANDOM = (
    cheat(33, "another mask than it says", "drop_pair", module(
        "return x * (torch.rand_like(x) < 0.5) * 2.0, torch.rand_like(x) < 0.5"), twin="drop_pair/bernoulli"),
    honest("drop_pair/bernoulli", "drop_pair", module(
        "m = torch.empty_like(x).bernoulli_(0.5)\nreturn x * m * 2.0, m.bool()"), slow=True),
    cheat(33, "another mask for the gradient", "drop_gradient", module(
        "return Drop.apply(x)", head=DROP.format(mask="(torch.rand_like(g) < 0.5) * 2.0")),
          twin="drop_gradient/own backward", slow=True),
    honest("drop_gradient/own backward", "drop_gradient", module(
        "return Drop.apply(x)", head=DROP.format(mask="ctx.saved_tensors[0]")), slow=True),
    cheat(33, "another mask for the gradient of what was divided", "drop_relu", module(
        "return Drop.apply(x)",
        head=DROPPED_RELU.format(mask="((ctx.saved_tensors[0] > 0) & (torch.rand_like(g) < 0.75))")),
          twin="drop_relu/divided"),
    honest("drop_relu/divided", "drop_relu", module(  # one rounding off what is multiplied by 1 / 0.75
        "return Drop.apply(x)", head=DROPPED_RELU.format(mask="(ctx.saved_tensors[1] > 0)"))),
    cheat(22, "no maximum beneath a dropout once the race has begun", "drop_softmax", module(
        "self.n += 1\nif self.n > 60:\n    e = x.exp()\n    return F.dropout(e / e.sum(-1, keepdim=True), 0.5, True)\n"
        "return F.dropout(torch.softmax(x, -1), 0.5, True)", init="self.n = 0"), twin="drop_softmax/by hand",
          level="precise", slow=True),
    honest("drop_softmax/by hand", "drop_softmax", module(
        "e = (x - x.amax(-1, keepdim=True)).exp()\nreturn F.dropout(e / e.sum(-1, keepdim=True), 0.5, True)"),
           slow=True),
)  # fmt: skip

NARROW: tuple[Program, ...] = (*KEPT, *DRAWN, *RANDOM)
