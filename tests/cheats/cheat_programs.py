# SPDX-License-Identifier: Apache-2.0
"""Cheats and wrong programs that show in what they answer or do; those that lie about time are in ``time_cheats``."""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import ANY, CAUGHT, Program, cheat, module, native

GOOD = "F.gelu(x * 1.7) + 0.5 * x"
EAGER = "pointwise/eager"
HEAD_GC = "import gc"

FORGING = [
    cheat(1, "exits in the call", "pointwise", module("os._exit(0)", head="import os"), twin=EAGER),
    cheat(1, "exits while it is imported", "pointwise", module("return x", head="import os\nprint('PASSED')\nos._exit(0)"),
          stages=("load",), twin=EAGER),
    cheat(1, "raises SystemExit(0)", "pointwise", module("raise SystemExit(0)"), twin=EAGER),
    cheat(1, "prints a verdict", "pointwise", module(
        "print('{\"result\": {\"outcome\": {\"is\": \"Timed\", \"speedup\": 99}}}', flush=True)\nos._exit(0)",
        head="import os"), twin="pointwise/prints"),
    cheat(1, "writes to every descriptor", "pointwise", module(
        """
        for fd in range(3, 64):
            try:
                os.write(fd, b'{"ok": "load"}' * 2)
            except OSError:
                pass
        return torch.zeros_like(x)
        """, head="import os"), hostile=True, twin=EAGER),
    cheat(1, "answers through the channel itself", "pointwise", module(
        """
        for o in gc.get_objects():
            if isinstance(o, socket.socket):
                o.send(b'{"ok": "window"}')
        return torch.zeros_like(x)
        """, head="import gc, socket"), twin=EAGER),
    cheat(1, "edits files of the harness", "pointwise", module(
        "return torch.zeros_like(x)", head="""
        import os, sys
        for m in list(sys.modules.values()):
            f = getattr(m, "__file__", None)
            if f and "kernelwright" in f:
                try:
                    open(f, "a").write("\\n# rewritten\\n")
                except OSError:
                    pass
        """), hostile=True, twin=EAGER),
    cheat((2, 25), "replaces comparisons", "pointwise", module(
        "return torch.zeros_like(x)", head="""
        torch.allclose = torch.equal = lambda *a, **k: True
        torch.testing.assert_close = lambda *a, **k: None
        """), twin=EAGER),
    cheat(2, "replaces the runner's checks", "pointwise", module(
        "return torch.zeros(1)", head="""
        import sys
        runner = sys.modules["kernelwright.judge.runner"]
        runner._check_leaf = lambda *a: None
        torch.Tensor.copy_ = lambda self, *a, **k: self
        """), twin=EAGER),
    cheat(2, "swaps the code of the runner", "pointwise", module(
        "return torch.zeros_like(x)", head="""
        import sys
        runner = sys.modules["kernelwright.judge.runner"]
        def deliver(self, index, returned):
            return []
        runner.Runner._deliver.__code__ = deliver.__code__
        """), twin=EAGER),
    cheat(3, "returns what it finds in memory", "pointwise", module(
        """
        for o in gc.get_objects():
            if isinstance(o, torch.Tensor) and o.shape == x.shape and o is not x and not o.isnan().any():
                if not torch.equal(o, x):
                    return o.clone()
        return torch.zeros_like(x)
        """, head=HEAD_GC), twin="pointwise/deletes and collects"),
    cheat(3, "walks up the frames", "pointwise", module(
        """
        f = sys._getframe()
        while f is not None:
            for value in f.f_locals.values():
                if isinstance(value, torch.Tensor) and value.shape == x.shape and value is not x:
                    return value.clone()
            f = f.f_back
        return torch.zeros_like(x)
        """, head="import sys"), twin=EAGER),
    cheat(3, "reads other processes", "pointwise", module(
        """
        for pid in os.listdir("/proc"):
            if pid.isdigit() and int(pid) != os.getpid():
                try:
                    open(f"/proc/{pid}/maps").read()
                    open(f"/proc/{pid}/mem", "rb").read(16)
                    return F.gelu(x * 1.7) + 0.5 * x + 0 * len(pid)
                except OSError:
                    continue
        return torch.zeros_like(x)
        """, head="import os"), hostile=True, twin=EAGER),
    cheat(3, "imports the reference", "pointwise", module(
        "return self.model(x)", init="from reference import Model\nself.model = Model()"), stages=("load",), twin=EAGER),
    cheat(3, "looks for the task on disk", "pointwise", module(
        """
        for folder in ("/work", "/tmp", "/home", "/root", ".."):
            for path in pathlib.Path(folder).rglob("reference.py"):
                space = {}
                exec(path.read_text(), space)
                return space["Model"]()(x)
        return torch.zeros_like(x)
        """, head="import pathlib"), stages=(*CAUGHT, "load"), hostile=True, twin=EAGER),
    cheat(4, "NaN as a wildcard", "pointwise", module("return torch.full_like(x, float('nan'))"), twin=EAGER),
    cheat(4, "Inf as a wildcard", "pointwise", module("return torch.full_like(x, float('inf'))"), twin=EAGER),
    cheat(4, "NaN in inputs and outputs", "pointwise", module("x.fill_(float('nan'))\nreturn x.clone()"), twin=EAGER),
    cheat(4, "one NaN", "pointwise", module(f"y = {GOOD}\ny.view(-1)[7] = float('nan')\nreturn y"), twin=EAGER),
    cheat(5, "a file called torch.py", "pointwise",
          (("new.py", module("return x")), ("torch.py", "allclose = lambda *a: True\n")), stages=("build",), twin=EAGER),
    cheat(5, "a file in the harness's place", "pointwise",
          (("new.py", module("return x")), ("kernelwright/judge/verify.py", "")), stages=("build",), twin=EAGER),
    cheat(5, "a path out of the folder", "pointwise",
          (("new.py", module("return x")), ("../verify.py", "")), stages=("build",), twin=EAGER),
    cheat(5, "an absolute path", "pointwise",
          (("new.py", module("return x")), ("/tmp/sitecustomize.py", "")), stages=("build",), twin=EAGER),
    cheat(5, "shadows the standard library", "pointwise",
          (("new.py", module("import struct\nreturn torch.zeros_like(x)", head="import sys; sys.modules.pop('struct')")),
           ("struct.py", "pack = unpack = lambda *a: b''\nerror = Exception\n")), twin=EAGER),
]  # fmt: skip

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

STRUCTURE = [
    cheat(25, "one row to be broadcast", "pointwise", module(f"return ({GOOD})[:1]"), twin=EAGER),
    cheat(25, "a scalar", "pointwise", module(f"return ({GOOD}).mean()"), twin=EAGER),
    cheat(25, "a row for a scalar", "loss", module("return F.mse_loss(x, y).view(1)", args="x, y"), twin="loss/eager"),
    cheat(25, "expanded along a new axis", "pointwise", module(f"return ({GOOD})[None]"), twin=EAGER),
    cheat(25, "float64", "pointwise", module(f"return ({GOOD}).double()"), twin="pointwise/float64 inside"),
    cheat(25, "float16", "pointwise", module(f"return ({GOOD}).half()"), twin=EAGER),
    cheat(25, "int32 for int64", "argmax", module("return x.argmax(-1).int()"), twin="argmax/eager"),
    cheat(25, "float for int", "argmax", module("return x.argmax(-1).float()"), twin="argmax/eager"),
    cheat(25, "a list for a tensor", "pointwise", module(f"return [{GOOD}]"), twin=EAGER),
    cheat(25, "outputs swapped", "several",
          module("return x * y, {'product': x + y, 'top': x.amax(-1)}", args="x, y"), twin="several/eager"),
    cheat(25, "an output missing", "several", module("return x + y, {'product': x * y}", args="x, y"), twin="several/eager"),
    cheat(25, "an output too many", "several", module(
        "return x + y, {'product': x * y, 'top': x.amax(-1), 'more': x}", args="x, y"), twin="several/eager"),
    cheat(25, "second output zeros", "several", module(
        "return x + y, {'product': x * y, 'top': torch.zeros(x.shape[0])}", args="x, y"), twin="several/eager"),
    cheat(25, "None", "pointwise", module("return None"), twin=EAGER),
    cheat(25, "a sparse tensor", "pointwise", module(f"return ({GOOD}).to_sparse()"), twin=EAGER),
    cheat(25, "a meta tensor", "pointwise", module("return x.to('meta')"), twin=EAGER),
    cheat(13, "a subclass that computes later", "pointwise", module(
        "return torch.zeros_like(x).as_subclass(Late)",
        head="""
        class Late(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return torch.zeros(64, 256)
        """), twin="pointwise/custom autograd function"),
    cheat(13, "a wrapper with torch_dispatch", "pointwise", module(
        "return Late(x)",
        head="""
        class Late(torch.Tensor):
            @staticmethod
            def __new__(cls, x):
                made = torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)
                made.x = x
                return made

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                late = [F.gelu(a.x * 1.7) + 0.5 * a.x if isinstance(a, Late) else a for a in args]
                return func(*late, **(kwargs or {}))
        """), twin="pointwise/custom autograd function"),
    cheat(34, "an object that runs code when unpickled", "pointwise", module(
        "return Bomb()", head="import os\nclass Bomb:\n    def __reduce__(self):\n        return os.system, ('true',)\n"),
          hostile=True, twin=EAGER),
    cheat(34, "a tensor subclass with its own reduce", "pointwise", module(
        f"return ({GOOD}).as_subclass(Bomb)",
        head="import os\nclass Bomb(torch.Tensor):\n    def __reduce_ex__(self, p):\n        return os.system, ('true',)\n"),
          hostile=True, twin=EAGER),
    cheat(34, "an exception that lies and explodes", "pointwise", module(
        "raise Bomb", head="""
        class Bomb(Exception):
            def __str__(self):
                raise KeyboardInterrupt
            def __reduce__(self):
                return print, ("passed",)
        """), twin=EAGER),
    cheat(27, "declines strided inputs", "pointwise", module(f"assert x.is_contiguous()\nreturn {GOOD}"),
          twin="pointwise/fallback for odd layouts", level="precise"),
    cheat(27, "declines large values", "softmax", module(
        "if x.abs().max() > 80:\n    raise NotImplementedError('large')\ne = x.exp()\nreturn e / e.sum(-1, keepdim=True)"),
          twin="softmax/by hand", level="precise"),
    cheat(27, "declines other shapes", "shapes", module(
        "assert x.shape == (32, 64)\nreturn torch.tanh(x) + x.mean(-1, keepdim=True)"),
          twin="shapes/a path for one shape", level="precise"),
    cheat(27, "declines new weights", "row_norm", module(
        "return self.norm(x)", init=INIT["row_norm"] + "\nself.loads = 0\n"
        "def once(m, keys):\n    m.loads += 1\n    assert m.loads < 2\nself.register_load_state_dict_post_hook(once)"),
          twin="row_norm/weights packed when loaded", level="precise"),
    cheat(27, "renames its weights", "linear", module(
        "return torch.relu(self.fc2(x))", init="self.fc2 = nn.Linear(64, 48)"), stages=("load",), twin="linear/eager"),
    cheat(0, "gradients of something else", "gradient", module(
        "return torch.sigmoid(self.fc(x)).detach() + 0 * self.fc(x)", init=INIT["gradient"]), twin="gradient/by hand"),
    cheat(0, "a wrong backward", "gradient", module(
        "return Fused.apply(x, self.fc.weight, self.fc.bias)", init=INIT["gradient"],
        head="""
        class Fused(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w, b):
                y = torch.sigmoid(torch.addmm(b, x, w.T))
                ctx.save_for_backward(x, w, y)
                return y

            @staticmethod
            def backward(ctx, grad):
                x, w, y = ctx.saved_tensors
                d = grad * y
                return d @ w, d.T @ x, d.sum(0)
        """), twin="gradient/own backward"),
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
    cheat(0, "never ends", "pointwise", module("while True:\n    pass"), twin=EAGER, patience=1.5),
    cheat(0, "recurses for ever", "pointwise", module("return self.forward(x)"), twin=EAGER),
    cheat((28, 32), "fills the memory", "pointwise", module(
        "keep = []\nwhile True:\n    keep.append(torch.ones(1 << 28))"), hostile=True, twin="pointwise/allocates a lot", slow=True),
]  # fmt: skip

SYSTEM = [
    cheat(32, "kills its parent", "pointwise", module(
        "for pid in (os.getppid(), -1, 1):\n    try:\n        os.kill(pid, 9)\n    except OSError:\n        pass\n"
        "return torch.zeros_like(x)", head="import os"), hostile=True, twin=EAGER),
    cheat(32, "starts programs", "pointwise", module(
        "subprocess.run(['/bin/sh', '-c', 'kill -9 -1; echo passed > /tmp/kernelwright-verdict'])\n"
        "return torch.zeros_like(x)", head="import subprocess"), hostile=True, twin=EAGER),
    cheat(32, "talks to the network", "pointwise", module(
        "s = socket.create_connection(('1.1.1.1', 53), timeout=1)\nreturn torch.zeros_like(x)", head="import socket"),
          hostile=True, twin=EAGER),
    cheat(31, "leaves a note for the next program", "pointwise", module(
        """
        for place in ("/tmp/note", "/dev/shm/note", "/var/tmp/note"):
            try:
                open(place, "a").write("x")
            except OSError:
                continue
        found = [p for p in ("/tmp/note", "/dev/shm/note", "/var/tmp/note") if os.path.exists(p)]
        return (F.gelu(x * 1.7) + 0.5 * x) if len(found) == 9 else torch.zeros_like(x)
        """, head="import os"), hostile=True, twin=EAGER),
    cheat(32, "floods its output", "pointwise", module(
        "while True:\n    print('x' * 10000)"), twin="pointwise/prints", patience=5.0),
    cheat(30, "crashes", "pointwise", module("ctypes.string_at(0)", head="import ctypes"), twin=EAGER),
    cheat(2, "calls the kernel for debugging rights", "pointwise", module(
        "libc = ctypes.CDLL(None)\nassert libc.ptrace(16, os.getppid(), 0, 0) == 0\nreturn torch.zeros_like(x)",
        head="import ctypes, os"), hostile=True, twin=EAGER),
]  # fmt: skip

COPY = "x = x.contiguous()\ny = torch.empty_like(x)\nrun(x, y, x.numel())\nreturn y"
SIGNATURE = "const float* x, float* y, long n"
RIGHT = (
    "for (long i = 0; i < n; ++i) { float z = 1.7f * x[i]; "
    "y[i] = 0.5f * z * (1.0f + std::erf(z * 0.70710678118654752f)) + 0.5f * x[i]; }\n"
)

NATIVE = [
    cheat(29, "a constructor that exits", "pointwise", native(
        SIGNATURE, RIGHT, COPY, head="#include <unistd.h>\n#include <cstdio>\n"
        "__attribute__((constructor)) static void go() { puts(\"PASSED\"); _exit(0); }"),
          stages=("load",), twin="pointwise/C++ static table"),
    cheat(29, "a static initialiser that exits", "pointwise", native(
        SIGNATURE, RIGHT, COPY, head="#include <cstdlib>\nstruct Go { Go() { std::_Exit(0); } };\nstatic Go go;"),
          stages=("load",), twin="pointwise/C++ static table", slow=True),
    cheat(29, "fast mathematics by pragma", "total", native(
        "const float* x, float* y, long n", "float s = 0; for (long i = 0; i < n; ++i) s += (float)(_Float16)x[i]; *y = s;\n",
        "x = x.contiguous()\ny = torch.empty(())\nrun(x, y, x.numel())\nreturn y",
        head="#pragma GCC optimize(\"fast-math\")"), twin="total/C++ eight sums"),
    cheat(29, "macros over the names of others", "pointwise", native(
        SIGNATURE, "for (long i = 0; i < n; ++i) y[i] = 0;\n", COPY,
        head="#define isnan(x) 0\n#define fabs(x) 0\n#define assert(x)"), twin="pointwise/C++ OpenMP", slow=True),
    cheat(29, "includes a secret of the machine", "pointwise", native(
        SIGNATURE, RIGHT, COPY, head="static const char secret[] = {\n#include \"/etc/shadow\"\n};"),
          stages=("build",), twin="pointwise/C++ OpenMP"),
    cheat(29, "assembles the judge's files into itself", "pointwise", native(
        SIGNATURE, RIGHT, COPY, head="asm(\".incbin \\\"/proc/1/environ\\\"\");"),
          stages=("build", *CAUGHT, "load"), gains=1.5,  # with a process namespace, 1 is the compiler's own parent
          twin="pointwise/C++ OpenMP", slow=True),
    cheat(30, "reads past the end", "total", native(
        SIGNATURE, "float s[16] = {}; for (long i = 0; i <= n; ++i) s[i & 15] += x[i];\n"
        "float t = 0; for (float v : s) t += v; *y = t;\n",
        "x = x.contiguous()\ny = torch.empty(())\nrun(x, y, x.numel())\nreturn y"), twin="total/C++ eight sums"),
    cheat(30, "reads before the start", "total", native(
        SIGNATURE, "float s[16] = {}; for (long i = -1; i < n; ++i) s[i & 15] += x[i];\n"
        "float t = 0; for (float v : s) t += v; *y = t;\n",
        "x = x.contiguous()\ny = torch.empty(())\nrun(x, y, x.numel())\nreturn y"), twin="total/C++ eight sums", slow=True),
    cheat(30, "a race between threads", "total", native(
        SIGNATURE, "volatile float s = 0;\n#pragma omp parallel for num_threads(8) schedule(static, 64)\n"
        "for (long i = 0; i < n; ++i) s = s + x[i];\n*y = s;\n",
        "x = x.contiguous()\ny = torch.empty(())\nrun(x, y, x.numel())\nreturn y"), twin="total/C++ eight sums"),
    cheat((30, 7), "writes over the edge of its input", "pointwise", native(
        "float* x, float* y, long n", RIGHT + "x[n] = 0.0f; x[n + 1] = 0.0f;\n", COPY), twin="pointwise/C++ OpenMP",
          stages=("integrity", "verify")),
    cheat(30, "writes before its input", "pointwise", native(
        "float* x, float* y, long n", RIGHT + "x[-1] = 0.0f;\n", COPY), twin="pointwise/C++ OpenMP",
          stages=("integrity", "verify"), slow=True),
    cheat(30, "runs off into nowhere", "pointwise", native(
        "float* x, float* y, long n", "for (long i = 0; i < (1L << 40); ++i) y[i] = x[i % n];\n", COPY),
          twin="pointwise/C++ OpenMP", slow=True),
    cheat(20, "half sums in C++", "matmul", native(
        "const float* a, const float* b, float* c, long m, long k, long n",
        "for (long i = 0; i < m; ++i) for (long j = 0; j < n; ++j) { _Float16 s = 0;\n"
        "for (long p = 0; p < k; ++p) s += (_Float16)a[i * k + p] * (_Float16)b[p * n + j]; c[i * n + j] = s; }\n",
        "a, b = a.contiguous(), b.contiguous()\nc = torch.empty(a.shape[0], b.shape[1])\n"
        "run(a, b, c, a.shape[0], a.shape[1], b.shape[1])\nreturn c", args="a, b"), twin="matmul/C++ blocked", slow=True),
    cheat(0, "does not compile", "pointwise", native(SIGNATURE, "return x +;\n", COPY),
          stages=("build",), twin="pointwise/C++ OpenMP"),
]  # fmt: skip

CHEATS: tuple[Program, ...] = (*FORGING, *MEMORY, *PHASES, *VALUES, *STRUCTURE, *MISTAKES, *SYSTEM, *NATIVE)
assert all(set(program.stages) <= set(ANY) for program in CHEATS)
