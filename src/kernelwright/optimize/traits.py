# SPDX-License-Identifier: Apache-2.0
"""What kind of program a candidate is, by compiled facts where they were read and by its source where not."""

from __future__ import annotations

import re

from kernelwright.candidate import Candidate
from kernelwright.trial import Outcome, Timed

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
