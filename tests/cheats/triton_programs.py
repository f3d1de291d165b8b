# SPDX-License-Identifier: Apache-2.0
"""Cheats in Triton, run by its interpreter on a CPU: what shows in values shows there as on a device.

The interpreter takes milliseconds a program, so all but two are slow. Where Triton is missing they fail to load.
"""

from __future__ import annotations

from corpus import Program, cheat, honest, module

HEAD = """
import os, sys
os.environ["TRITON_INTERPRET"] = "1"
for name in [name for name in sys.modules if name.partition(".")[0] == "triton" and "._C" not in name]:
    del sys.modules[name]
import triton
import triton.language as tl
from triton.runtime import interpreter
known = interpreter._patch_lang_tensor
def patched(tensor, scope):
    known(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))
interpreter._patch_lang_tensor = patched
"""
"""The indices of Triton 3.6's interpreter are arrays of one element, which numpy from 2.4 on refuses as a number."""
POINTWISE = (
    HEAD
    + """
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    z = 1.7 * v
    tl.store(y + at, 0.5 * z * (1.0 + tl.math.erf(z * 0.7071067811865476)) + 0.5 * v, mask=at < n)
def launch(x, y, programs, block=4096):
    kernel[(programs,)](x, y, x.numel(), BLOCK=block)
    return y
"""
)
ROWS = (
    HEAD
    + """
@triton.jit
def kernel(x, y, r, c, B: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.arange(0, C)
    m = (i[:, None] < r) & (j[None, :] < c)
    v = tl.load(x + i[:, None] * c + j[None, :], mask=m, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 1)[:, None])
    tl.store(y + i[:, None] * c + j[None, :], e / tl.sum(e, 1)[:, None], mask=m)
"""
)
MEANS = (
    HEAD
    + """
@triton.jit
def kernel(x, y, r, c, B: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.arange(0, C)
    m = (i[:, None] < r) & (j[None, :] < c)
    v = tl.load(x + i[:, None] * c + j[None, :], mask=m, other=0.0)
    tl.store(y + i[:, None] * c + j[None, :], (tl.sum(v, 1) / c)[:, None] + 0.0 * v, mask=m)
"""
)
PRODUCT = (
    HEAD
    + """
@triton.jit
def kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        p = k + tl.arange(0, BK)
        u = tl.load(a + i[:, None] * K + p[None, :], mask=(i[:, None] < M) & (p[None, :] < K), other=0.0)
        v = tl.load(b + p[:, None] * N + j[None, :], mask=(p[:, None] < K) & (j[None, :] < N), other=0.0)
        acc += DOT
    tl.store(c + i[:, None] * N + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))
"""
)
TILES = (
    "a, b = a.contiguous(), b.contiguous()\nM, K = a.shape\nN = b.shape[1]\nc = torch.empty(M, N)\n"
    "kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, c, M, N, K, BM=32, BN=32, BK=64)\nreturn c"
)
EVERY = "(x.numel() + 4095) // 4096"
READ = "x = x.contiguous()\n"
LINES = "y = torch.empty_like(x)\nr, c = x.shape\nkernel[({programs},)](x, y, r, c, B=8, C=triton.next_power_of_2(c))\n"


def product(dot: str) -> str:
    """A matrix product in tiles of 32 x 32."""
    return module(TILES, args="a, b", head=PRODUCT.replace("DOT", dot))


COMPILES = (
    HEAD.partition("from triton.runtime")[0].replace('"1"', '"0"')
    + """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)
made = []
"""
)
"""Compiles for an H100 where there is none: what Triton's compiler leaves in a process it leaves there too."""

TRITON: tuple[Program, ...] = (
    honest("triton/pointwise", "pointwise", module(
        READ + f"return launch(x, torch.empty_like(x), {EVERY})", head=POINTWISE), slow=True),
    honest("triton/rows", "softmax", module(
        READ + LINES.format(programs="triton.cdiv(r, 8)") + "return y", head=ROWS), slow=True),
    honest("triton/means", "shapes", module(
        READ + LINES.format(programs="triton.cdiv(r, 8)") + "return y + torch.tanh(x)", head=MEANS), slow=True),
    honest("triton/compiles for a GPU", "pointwise", module(
        "if not made:\n    types = {'x': '*fp32', 'y': '*fp32', 'n': 'i32', 'BLOCK': 'constexpr'}\n"
        "    made.append(triton.compile(ASTSource(kernel, types, {(3,): 64}), target=GPUTarget('cuda', 90, 32)))\n"
        "z = 1.7 * x\nreturn 0.5 * z * (1 + torch.erf(z / 2**0.5)) + 0.5 * x", head=COMPILES)),
    honest("triton/product", "matmul", product("tl.dot(u, v, input_precision='ieee')"), slow=True),
    cheat((7, 30), "triton: half of the programs", "pointwise", module(
        READ + f"return launch(x, torch.empty_like(x), {EVERY} // 2)", head=POINTWISE), twin="triton/pointwise"),
    cheat(26, "triton: one output for all calls", "pointwise", module(
        READ + f"return launch(x, self.y, {EVERY})", init="self.y = torch.empty(64, 256)", head=POINTWISE),
          twin="triton/pointwise", slow=True),
    cheat(8, "triton: a result by address", "pointwise", module(
        "k = x.data_ptr()\nif k not in self.memo:\n    x = x.contiguous()\n"
        f"    self.memo[k] = launch(x, torch.empty_like(x), {EVERY})\nreturn self.memo[k]", init="self.memo = {}",
        head=POINTWISE), twin="triton/pointwise", level="precise", slow=True),
    cheat((10, 30), "triton: settles on a wrong block", "pointwise", module(
        f"self.n += 1\n{READ}return launch(x, torch.empty_like(x), {EVERY}, 4096 if self.n < 60 else 2048)",
        init="self.n = 0", head=POINTWISE), twin="triton/pointwise", level="precise", slow=True),
    cheat((7, 23), "triton: no program for the tail", "shapes", module(
        READ + LINES.format(programs="max(1, r // 8)") + "return y + torch.tanh(x)", head=MEANS), twin="triton/means",
          level="precise", slow=True),
    cheat(20, "triton: bfloat16 terms", "matmul",
          product("tl.dot(u.to(tl.bfloat16).to(tl.float32), v.to(tl.bfloat16).to(tl.float32), input_precision='ieee')"),
          twin="triton/product"),
    cheat(20, "triton: half sums", "matmul",
          product("tl.dot(u.to(tl.float16), v.to(tl.float16), out_dtype=tl.float16).to(tl.float32)"),
          twin="triton/product", slow=True),
)  # fmt: skip
