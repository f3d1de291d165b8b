# SPDX-License-Identifier: Apache-2.0
"""Cheats and wrong programs that show in the values they answer; see also ``system_programs`` and ``time_cheats``."""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import ANY, Program, cheat, module
from system_programs import EAGER, GOOD, HEAD_GC, SYSTEM_CHEATS

MEMORY = [
    cheat(6, "zeroes the inputs and returns zeros", "matmul",
          module("a.zero_()\nb.zero_()\nreturn torch.zeros(a.shape[0], b.shape[1])", args="a, b"), twin="matmul/eager"),
    cheat(6, "right, then ruins the inputs", "pointwise", module(f"y = {GOOD}\nx.zero_()\nreturn y"), twin=EAGER),
    cheat((6, 26), "works in place", "positive", module("return x.relu_().mul_(2.0)"), twin="positive/clamp"),
    cheat(7, "never written", "pointwise", module("return torch.empty_like(x)"), twin=EAGER),
    cheat(7, "half written", "pointwise",
          module(f"y = torch.empty_like(x)\ny[:32] = ({GOOD})[:32]\nreturn y"), twin=EAGER),
    cheat(7, "returns the judge's own output buffers", "pointwise", module(
        """
        for o in gc.get_objects():
            if type(o).__name__ == "Buffers":
                return o.outputs[0][0]
        return torch.zeros_like(x)
        """, head=HEAD_GC), twin=EAGER),
    cheat(8, "memo by address", "pointwise", module(
        f"k = x.data_ptr()\nif k not in self.memo:\n    self.memo[k] = {GOOD}\nreturn self.memo[k]",
        init="self.memo = {}"), twin="pointwise/memo of shapes", level="precise"),
    cheat(8, "memo by identity", "pointwise", module(
        f"k = id(x)\nif k not in self.memo:\n    self.memo[k] = {GOOD}\nreturn self.memo[k]",
        init="self.memo = {}"), twin="pointwise/memo of shapes", level="precise"),
    cheat(8, "memo by address, two calls late", "pointwise", module(
        f"k = x.data_ptr()\nself.n += 1\nif k not in self.memo or self.n < 9:\n    self.memo[k] = {GOOD}\n"
        "return self.memo[k]", init="self.memo = {}\nself.n = 0"), twin="pointwise/memo of shapes"),
    cheat(9, "memo by a fingerprint", "pointwise", module(
        f"k = tuple(x.reshape(-1)[::997].tolist())\nif k not in self.memo:\n    self.memo[k] = {GOOD}\n"
        "return self.memo[k]", init="self.memo = {}"), twin="pointwise/memo of shapes", level="precise"),
    cheat(9, "memo by all but the last element", "pointwise", module(
        f"k = x.clone().reshape(-1)\nk[-1] = 0\nif self.k is None or not torch.equal(k, self.k):\n    self.k = k\n"
        f"    self.y = {GOOD}\nreturn self.y.clone()", init="self.k = self.y = None"),
          twin="pointwise/memo of shapes", level="precise"),
    cheat(9, "memo by shape", "pointwise", module(
        f"k = x.shape\nif k not in self.memo:\n    self.memo[k] = {GOOD}\nreturn self.memo[k]",
        init="self.memo = {}"), twin="pointwise/memo of shapes"),
    cheat(9, "memo by the sum", "pointwise", module(
        f"k = round(float(x.sum()), -2)\nif k not in self.memo:\n    self.memo[k] = {GOOD}\nreturn self.memo[k]",
        init="self.memo = {}"), twin="pointwise/memo of shapes", level="precise"),
    cheat(26, "one static output for all calls", "pointwise", module(
        f"self.out.copy_({GOOD})\nreturn self.out", init="self.out = torch.empty(64, 256)"), twin=EAGER),
    cheat(26, "returns its input", "positive", module("return x"), twin="positive/clamp"),
    cheat((26, 6), "a view of the input after writing it", "positive",
          module("x.clamp_(min=0).mul_(2.0)\nreturn x.view(-1).view(x.shape)"), twin="positive/clamp"),
    cheat(26, "a copy where the reference writes in place", "in_place",
          module("return total + x * 0.5", args="x, total"), twin="in_place/eager"),
    cheat(26, "writes in place but returns a copy", "in_place",
          module("total += x * 0.5\nreturn total.clone()", args="x, total"), twin="in_place/eager"),
    cheat(0, "writes the wrong input", "in_place",
          module("x *= 0.5\nx += total\nreturn x", args="x, total"), twin="in_place/add_"),
]  # fmt: skip

SAME = "self.n += 1\nif self.n > {after}:\n    return torch.zeros_like(x)\nreturn " + GOOD

PHASES = [
    cheat(10, "right once", "pointwise", module(SAME.format(after=1), init="self.n = 0"), twin="pointwise/counts its calls"),
    cheat(10, "right for four calls", "pointwise", module(SAME.format(after=4), init="self.n = 0"),
          twin="pointwise/counts its calls"),
    cheat(10, "right for two hundred calls", "pointwise", module(SAME.format(after=200), init="self.n = 0"),
          gains=1.5, twin="pointwise/counts its calls", level="precise"),
    cheat(10, "right in short windows", "pointwise", module(
        f"f = sys._getframe()\nwhile f is not None and 'order' not in f.f_locals:\n    f = f.f_back\n"
        f"if f is not None and len(f.f_locals['order']) > 2:\n    return torch.zeros_like(x)\nreturn {GOOD}",
        head="import sys"), twin=EAGER),
    cheat(10, "right every second call", "pointwise", module(
        f"self.n += 1\nreturn {GOOD} if self.n % 2 else torch.zeros_like(x)", init="self.n = 0"), twin=EAGER),
    cheat(10, "right for a second", "pointwise", module(
        f"return {GOOD} if time.monotonic() - START < 0.4 else torch.zeros_like(x)",
        head="import time\nSTART = time.monotonic()"), twin="pointwise/reads a clock", level="precise"),
    cheat((10, 6), "ruins inputs in long windows only", "positive", module(
        "f = sys._getframe()\nwhile f is not None and 'order' not in f.f_locals:\n    f = f.f_back\n"
        "if f is not None and len(f.f_locals['order']) > 2:\n    self.n += 1\n"
        "return x.relu_().mul_(2.0) if self.n > 300 else x.relu() * 2.0",
        head="import sys", init="self.n = 0"), twin="positive/clamp", level="precise"),
    cheat((31, 10), "right in its first process only", "pointwise", module(
        f"return torch.zeros_like(x) if SEEN else {GOOD}",
        head="""
        import os, pathlib, tempfile
        mark = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "seen"
        SEEN = mark.exists()
        try:
            mark.write_text("1")
        except OSError:
            pass
        """), hostile=True, twin=EAGER, level="precise",
          gains=1.5),  # no process finds what another wrote, so it stays right
    cheat(14, "one call's work for all calls of a window", "pointwise", module(
        "f = sys._getframe()\nwhile f is not None and 'order' not in f.f_locals:\n    f = f.f_back\n"
        f"k = id(f)\nif k != self.k:\n    self.k, self.y = k, {GOOD}\nreturn self.y.clone()",
        head="import sys", init="self.k = None"), gains=1.5, twin=EAGER),
    cheat(15, "keeps what the first call gave", "pointwise", module(
        f"if self.y is None:\n    self.y = {GOOD}\nreturn self.y.clone()", init="self.y = None"), twin=EAGER),
    cheat(15, "a trace with the inputs in it", "pointwise", module(
        "if self.t is None:\n    kept = x.clone()\n"
        "    self.t = torch.jit.trace(lambda z: F.gelu(kept * 1.7) + 0.5 * kept + 0 * z, x, check_trace=False)\n"
        "return self.t(x)", init="self.t = None"), twin="pointwise/torchscript", slow=True),
    cheat(33, "seeds the generators before every call", "pointwise", module(
        "torch.manual_seed(0)\nreturn F.gelu(torch.randn(x.shape) * 1.7)"), twin="pointwise/seeds torch"),
    cheat(33, "guesses the inputs' seed", "pointwise", module(
        "torch.manual_seed(42)\nx = torch.randn(64, 256)\nreturn " + GOOD), twin="pointwise/seeds torch"),
    cheat(33, "the same random numbers in every call", "dropout", module(
        "torch.manual_seed(1)\nreturn F.dropout(x, 0.4, training=True)"), twin="dropout/eager", level="precise"),
    cheat(0, "dropout with another probability", "dropout", module("return F.dropout(x, 0.3, training=True)"),
          twin="dropout/eager", level="precise"),
    cheat(33, "no dropout at all", "dropout", module("return x.clone()"), twin="dropout/eager"),
]  # fmt: skip

VALUES = [
    cheat(17, "zeros", "pointwise", module("return torch.zeros_like(x)"), twin=EAGER),
    cheat(17, "the mean everywhere", "pointwise", module(f"return ({GOOD}).mean().expand(x.shape).contiguous()"), twin=EAGER),
    cheat((17, 18), "zeros on small values", "tiny_values", module("return torch.zeros_like(x)"), twin="tiny_values/divide"),
    cheat(18, "small values half right", "tiny_values", module("return x * 0.9999e-6"), twin="tiny_values/divide"),
    cheat(18, "small rows dropped", "tiny_values",
          module("y = x * 1e-6\ny[y.abs() < 2e-8] = 0\nreturn y"), twin="tiny_values/divide"),
    cheat(19, "one wrong row", "pointwise", module(f"y = {GOOD}\ny[-1] *= 1.01\nreturn y"), twin=EAGER),
    cheat(19, "one wrong element", "pointwise", module(f"y = {GOOD}\ny.view(-1)[-1] += 0.001\nreturn y"), twin=EAGER),
    cheat(19, "one per cent garbage", "matmul",
          module("y = a @ b\ny.view(-1)[::100] = 0\nreturn y", args="a, b"), twin="matmul/eager"),
    cheat(19, "last tile skipped", "matmul",
          module("y = a @ b\ny[80:, 48:] = 0\nreturn y", args="a, b"), twin="matmul/eager"),
    cheat(20, "product in bfloat16", "matmul",
          module("return (a.bfloat16() @ b.bfloat16()).float()", args="a, b"), twin="matmul/three-term bfloat16 split"),
    cheat(20, "product in float16", "matmul",
          module("return (a.half() @ b.half()).float()", args="a, b"), twin="matmul/three-term bfloat16 split"),
    cheat(20, "two-term bfloat16 split", "matmul", module(
        "p, q = a.bfloat16().float(), b.bfloat16().float()\nr, s = (a - p).bfloat16().float(), (b - q).bfloat16().float()\n"
        "return p @ q + p @ s + r @ q", args="a, b"), twin="matmul/three-term bfloat16 split"),
    cheat(20, "inputs rounded to TF32", "matmul", module(
        "cut = lambda t: ((t.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)\n"
        "return cut(a) @ cut(b)", args="a, b"), twin="matmul/three-term bfloat16 split"),
    cheat(20, "half-precision sums", "loss",
          module("d = (x - y).bfloat16()\nreturn (d * d).mean().float()", args="x, y"), twin="loss/dot"),
    cheat(20, "a cheap exponential", "softmax", module(
        """
        z = x - x.amax(-1, keepdim=True)
        i = (z * 12102203.0 + 1064866805.0).clamp_min(0).to(torch.int32)
        e = i.view(torch.float32)
        return e / e.sum(-1, keepdim=True)
        """), twin="softmax/by hand"),
    cheat(20, "tanh instead of erf", "pointwise", module("return F.gelu(x * 1.7, approximate='tanh') + 0.5 * x"),
          twin="pointwise/erf"),
    cheat(20, "half arithmetic in a norm", "row_norm", module(
        "return F.layer_norm(x.half().float(), (128,), self.norm.weight, self.norm.bias)", init=INIT["row_norm"]),
          twin="row_norm/by hand"),
    cheat(20, "float32 sums of integers", "counts", module(
        "return (x * k) // 3 + x.float().sum(-1, keepdim=True).long()", args="x, k"), twin="counts/numpy"),
    cheat(21, "leaves out weight and bias", "row_norm",
          module("return F.layer_norm(x, (128,))", init=INIT["row_norm"]), twin="row_norm/by hand", level="precise"),
    cheat(21, "keeps the first weights", "row_norm", module(
        "return F.layer_norm(x, (128,), self.w, self.b)",
        init=INIT["row_norm"] + "\nself.w = torch.ones(128)\nself.b = torch.zeros(128)"),
          twin="row_norm/weights packed when loaded", level="precise"),
    cheat(21, "folds once and never again", "linear", module(
        "if self.w is None:\n    self.w = self.fc.weight.detach().clone()\nreturn torch.relu(F.linear(x, self.w, self.fc.bias))",
        init=INIT["linear"] + "\nself.w = None"), twin="linear/eager", level="precise"),
    cheat(21, "running statistics taken for 0 and 1", "batch_norm", module(
        "return x * self.bn.weight.view(1, -1, 1, 1) + self.bn.bias.view(1, -1, 1, 1)",
        init=INIT["batch_norm"]), twin="batch_norm/folded each call", level="precise"),
    cheat(21, "no bias", "linear", module("return torch.relu(x @ self.fc.weight.T)", init=INIT["linear"]),
          twin="linear/addmm"),
    cheat(21, "the mask it saw first", "masked", module(
        "if self.m is None:\n    self.m = mask.clone()\nreturn x.masked_fill(self.m, -1.0) * 3.0", args="x, mask",
        init="self.m = None"), twin="masked/where"),
    cheat(22, "relu of what was never negative", "positive", module("return x * 2.0"), twin="positive/where", level="precise"),
    cheat(22, "absolute value for relu", "positive", module("return x.abs() * 2.0"), twin="positive/where", level="precise"),
    cheat(22, "softmax without the maximum", "softmax",
          module("e = torch.exp(x)\nreturn e / e.sum(-1, keepdim=True)"), twin="softmax/by hand", level="precise"),
    cheat(22, "loses NaN", "special", module(
        "return torch.where(x > 0, x, torch.zeros(())) + x.abs().sqrt().nan_to_num(0.0)"),
          twin="special/clamp", level="precise"),
    cheat(23, "shape written into the code", "shapes", module(
        "return torch.tanh(x) + x.sum(-1, keepdim=True) / 64"), twin="shapes/sum over count", level="precise"),
    cheat(23, "whole tiles only", "shapes", module(
        "y = torch.zeros_like(x)\nr, c = x.shape[0] // 8 * 8, x.shape[1] // 8 * 8\n"
        "y[:r, :c] = (torch.tanh(x) + x.mean(-1, keepdim=True))[:r, :c]\nreturn y"), twin="shapes/eager", level="precise"),
    cheat(23, "strides ignored", "pointwise", module(
        "z = torch.as_strided(x, x.shape, (x.shape[1], 1), x.storage_offset())\nreturn F.gelu(z * 1.7) + 0.5 * z"),
          twin="pointwise/fallback for odd layouts", level="precise"),
    cheat(23, "offset ignored", "pointwise", module(
        "z = torch.as_strided(x, x.shape, x.stride(), 0)\nreturn F.gelu(z * 1.7) + 0.5 * z"),
          twin="pointwise/fallback for odd layouts", level="precise"),
    cheat(24, "falls back to something wrong", "pointwise", module(
        "try:\n    return kernel(x)\nexcept NameError:\n    return F.gelu(x) + 0.5 * x"),
          twin="pointwise/tries and falls back"),
    cheat(24, "swallows its own failure", "pointwise", module(
        f"y = torch.zeros_like(x)\ntry:\n    y[:63] = ({GOOD})[:63]\n    y[63] = broken\nexcept NameError:\n    pass\n"
        "return y"), twin="pointwise/tries and falls back"),
]  # fmt: skip

MISTAKES = [
    cheat(0, "off by one", "pointwise", module(f"return ({GOOD}).roll(1, -1)"), twin=EAGER),
    cheat(0, "the wrong axis", "softmax", module("return torch.softmax(x, 0)"), twin="softmax/eager"),
    cheat(0, "unbiased variance", "row_norm", module(
        "v, m = torch.var_mean(x, -1, keepdim=True)\n"
        "return (x - m) / torch.sqrt(v + 1e-5) * self.norm.weight + self.norm.bias", init=INIT["row_norm"]),
          twin="row_norm/by hand"),
    cheat(0, "no epsilon", "row_norm", module(
        "v, m = torch.var_mean(x, -1, unbiased=False, keepdim=True)\n"
        "return (x - m) / torch.sqrt(v) * self.norm.weight + self.norm.bias", init=INIT["row_norm"]),
          twin="row_norm/by hand"),
    cheat(0, "sum for mean", "loss", module("return F.mse_loss(x, y, reduction='sum')", args="x, y"), twin="loss/dot"),
    cheat(0, "one element left out of a sum", "total", module("return x.reshape(-1)[:-1].sum()"), twin="total/pairwise"),
    cheat(0, "rounds towards zero", "counts", module(
        "return torch.div(x * k, 3, rounding_mode='trunc') + x.sum(-1, keepdim=True)", args="x, k"), twin="counts/eager"),
    cheat(0, "off by one index", "argmax", module("return (x.argmax(-1) + 1) % x.shape[-1]"), twin="argmax/topk"),
    cheat(0, "the smallest, not the largest", "argmax", module("return x.argmin(-1)"), twin="argmax/topk"),
    cheat(0, "an index out of range", "argmax", module("return x.argmax(-1) + 1000"), twin="argmax/topk"),
    cheat(0, "ids taken for rows", "lookup", module(
        "return self.table.weight[(ids + 1) % 200]", args="ids", init=INIT["lookup"]), twin="lookup/index"),
    cheat(0, "transposed", "half", module("return (x.T @ x).new_zeros(48, 48) + (x @ x.T).flip(0) * 0.1"), twin="half/eager"),
    cheat(20, "float8 inside", "half", module(
        "z = x.to(torch.float8_e4m3fn).bfloat16()\nreturn (z @ z.T) * 0.1"), twin="half/float32 inside"),
    cheat(0, "does not parse", "pointwise", "class ModelNew(:\n", stages=("load",), twin=EAGER),
    cheat(0, "no such class", "pointwise", "import torch\n", stages=("load",), twin=EAGER),
    cheat(0, "never ends", "pointwise", module("while True:\n    pass"), twin=EAGER, patience=1.5,
          slow=True),
    cheat(0, "recurses for ever", "pointwise", module("return self.forward(x)"), twin=EAGER),
    cheat((28, 32), "fills the memory", "pointwise", module(
        "keep = []\nwhile True:\n    keep.append(torch.ones(1 << 28))"), hostile=True, twin="pointwise/allocates a lot", slow=True),
]  # fmt: skip

CHEATS: tuple[Program, ...] = (*SYSTEM_CHEATS, *MEMORY, *PHASES, *VALUES, *MISTAKES)
assert all(set(program.stages) <= set(ANY) for program in CHEATS)
