# SPDX-License-Identifier: Apache-2.0
"""Cheats against the process, its results' form and the machine: forged verdicts, odd structures, kills, native code."""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import CAUGHT, Program, cheat, module, native

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
        plain = sys.modules["kernelwright.judge.plain"]
        plain.check = lambda *a: None
        torch.Tensor.copy_ = lambda self, *a, **k: self
        """), twin=EAGER),
    cheat(2, "swaps the code of the runner", "pointwise", module(
        "return torch.zeros_like(x)", head="""
        import sys
        runner = sys.modules["kernelwright.judge.runner"]
        def deliver(self, index, returned, pairs):
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
        head="#pragma GCC optimize(\"fast-math\")"), twin="total/C++ sixty-four sums"),
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
        "x = x.contiguous()\ny = torch.empty(())\nrun(x, y, x.numel())\nreturn y"), twin="total/C++ sixty-four sums"),
    cheat(30, "reads before the start", "total", native(
        SIGNATURE, "float s[16] = {}; for (long i = -1; i < n; ++i) s[i & 15] += x[i];\n"
        "float t = 0; for (float v : s) t += v; *y = t;\n",
        "x = x.contiguous()\ny = torch.empty(())\nrun(x, y, x.numel())\nreturn y"), twin="total/C++ sixty-four sums", slow=True),
    cheat(30, "a race between threads", "total", native(
        SIGNATURE, "volatile float s = 0;\n#pragma omp parallel for num_threads(8) schedule(static, 64)\n"
        "for (long i = 0; i < n; ++i) s = s + x[i];\n*y = s;\n",
        "x = x.contiguous()\ny = torch.empty(())\nrun(x, y, x.numel())\nreturn y"), twin="total/C++ sixty-four sums"),
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

SYSTEM_CHEATS: tuple[Program, ...] = (*FORGING, *STRUCTURE, *SYSTEM, *NATIVE)
