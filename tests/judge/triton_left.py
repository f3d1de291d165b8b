# SPDX-License-Identifier: Apache-2.0
"""Prints what compiling a Triton kernel leaves changed in a process; run by ``test_left``."""

from __future__ import annotations

import json

from kernelwright.judge import left

before = left.Before()
before.constructed()
own = left.settings()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402


@triton.jit
def twice(x, y, n, block: tl.constexpr):  # noqa: ANN001, ANN201
    """y = 2 x."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)


signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "block": "constexpr"}
made = triton.compile(ASTSource(twice, signature, {(3,): 64}), target=GPUTarget("cuda", 90, 32))
said = left.words(before.changed(), lambda: own, random_=False)
print(json.dumps({"compiled": "ptx" in made.asm, "ignored": left.settings()[left.IGNORED], "left": said}))
