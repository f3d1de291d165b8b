# SPDX-License-Identifier: Apache-2.0
"""What kind of program a candidate is, by compiled facts where they were read and by its source where not."""

from __future__ import annotations

import hashlib
import math
import re

from kernelwright.candidate import Candidate
from kernelwright.proposers.agent import Evidence
from kernelwright.search.population import normalise
from kernelwright.trial import Outcome, Rejected, Timed

MARKS = {
    "memory": (
        ("async", r"cp\.async|TMA|tensor_descriptor|memcpy_async"),
        ("shared", r"__shared__|\btl\.dot\b|tl\.trans\b"),
        ("vector", r"float4|int4\b|_mm512|_mm256|simd|tl\.max_contiguous|vector_size"),
    ),
    "tensor": (("yes", r"\btl\.dot\b|wmma|wgmma|mma\.sync|torch\.(?:mm|bmm|addmm|matmul)|F\.linear|conv"),),
    "parallel": (
        ("persistent", r"num_programs|gridDim\.x\s*\*|grid_stride|persistent"),
        ("tiles", r"program_id\(1\)|blockIdx\.y|collapse\("),
        ("rows", r"program_id\(0\)|blockIdx\.x|omp parallel"),
    ),
}


def traits(candidate: Candidate, outcome: Outcome) -> tuple[tuple[str, str], ...]:
    """``memory``, ``tensor``, ``fusion`` and ``parallel`` of a candidate, and ``proxy:`` numbers in [0, 1]."""
    text = "\n".join(source for _, source in candidate.sources)
    found = {axis: _first(marks, text) for axis, marks in MARKS.items()}
    kernels = len(re.findall(r"@triton\.jit|__global__\s+void|^#pragma omp parallel", text, flags=re.M))
    found["fusion"] = "library" if kernels == 0 else str(min(kernels, 4))
    if isinstance(outcome, Timed):
        found |= _compiled(dict(outcome.profile))
        if outcome.bound_fraction is not None:
            found["proxy:bound"] = f"{min(1.0, outcome.bound_fraction):.4f}"
    return tuple(sorted(found.items()))


def _first(marks: tuple[tuple[str, str], ...], text: str) -> str:
    return next((name for name, pattern in marks if re.search(pattern, text)), "plain")


def _compiled(facts: dict[str, str]) -> dict[str, str]:
    """Axes that the compiled program itself settles, by the names the profile uses."""
    found = {}
    if "tensor_instructions" in facts:
        found["tensor"] = "yes" if facts["tensor_instructions"] not in ("0", "") else "plain"
    if "kernels" in facts:
        found["fusion"] = facts["kernels"]
    if facts.get("shared_bytes", "0") not in ("0", ""):
        found["memory"] = "shared"
    elif facts.get("vector_loads", "0") not in ("0", ""):
        found["memory"] = "vector"
    return found


def fingerprint(candidate: Candidate) -> str:
    """Identity of the code without comments and white space: near-duplicates share it, other numbers do not."""
    names = [name for name, _ in candidate.sources]
    tokens = [
        " ".join(normalise(text, keep_numbers=True, python=name.endswith(".py"))) for name, text in candidate.sources
    ]
    return hashlib.sha256("\0".join([*names, *tokens]).encode()).hexdigest()


def number(text: str) -> float | None:
    """A number in words, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def log2(ratio: float) -> float:
    """For ratios down to 1e-9."""
    return math.log2(max(ratio, 1e-9))


def is_race(outcome: Outcome | None) -> bool:
    """True for a program that a race detector stopped."""
    return isinstance(outcome, Rejected) and "data race" in (outcome.reason + outcome.detail)


def summary(shown: Evidence) -> str:
    """What a program is and what came of it, in one line."""
    if isinstance(shown.outcome, Timed):
        return f"{shown.candidate.note}: {shown.outcome.speedup:.2f}x"
    if isinstance(shown.outcome, Rejected):
        return f"{shown.candidate.note}: rejected at {shown.outcome.stage}: {shown.outcome.reason}"
    return f"{shown.candidate.note}: not judged"
