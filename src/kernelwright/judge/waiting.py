# SPDX-License-Identifier: Apache-2.0
"""How long a program may take before it counts as hanging."""

from __future__ import annotations

import re

from kernelwright.candidate import Candidate

SECONDS = 20.0
"""A call of a small task that takes longer hangs; large tasks get a hundred times eager on top."""
COMPILE_SECONDS = 300.0
"""First calls of programs that compile themselves (torch.compile, Triton)."""
JIT = frozenset({"torch", "triton"})
"""Languages whose candidates may start a compiler while they run."""
_COMPILERS = re.compile(r"compile|triton|jit|inductor|load_inline|cpp_extension|subprocess", re.IGNORECASE)


def seconds(eager_us: float, compiles: bool) -> float:
    """How long one window may take whose calls take eager ``eager_us`` microseconds."""
    return SECONDS + 100 * 64e-6 * eager_us + (COMPILE_SECONDS if compiles else 0.0)


def limit(eager_us: float, candidate: Candidate, patience: float | None) -> float:
    """How long a window of a candidate may take. ``patience`` shortens the waiting for compilers only."""
    plain, whole = seconds(eager_us, False), seconds(eager_us, mentions_a_compiler(candidate))
    return whole if patience is None else min(whole, max(plain, patience))


def mentions_a_compiler(candidate: Candidate) -> bool:
    """Whether a program that hangs may be compiling: no word of it in the source, no five minutes of waiting."""
    return candidate.language in JIT and any(_COMPILERS.search(text) for _, text in candidate.sources)
