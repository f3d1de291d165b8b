# SPDX-License-Identifier: Apache-2.0
"""What kind of program a candidate is, by compiled facts where they were read and by its source where not."""

from __future__ import annotations

import hashlib
import io
import math
import re
import tokenize

from kernelwright.candidate import Candidate
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
LONGEST_LINE = 1000
"""Characters of a line that is read token by token: of open quotes by the thousand each is sought to the line's end."""


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
    """Axes that the compiled program itself settles, by the names of the compiled facts; no axis without its fact."""
    value = {name: number(text) or 0.0 for name, text in facts.items()}
    found = {}
    if "floating_instructions" in value:  # a processor's object
        found["memory"] = _vectors(value)
        found["tensor"] = "calls" if value.get("math_calls", 0.0) > 0 else "plain"
    if "tensor_instructions" in value:  # a GPU's
        found["tensor"] = "yes" if value["tensor_instructions"] > 0 else "plain"
        found["memory"] = _path(value)
    if "parallel_regions" in value:
        found["parallel"] = "serial" if value["parallel_regions"] == 0 else "regions"
        found["fusion"] = f"{min(4.0, value['parallel_regions']):.0f}"
    if "kernels" in value:
        found["fusion"] = f"{min(4.0, value['kernels']):.0f}"
    return found


def _vectors(value: dict[str, float]) -> str:
    """How a processor's inner loops read: element by element, by gathers, or in vectors of so many bits."""
    if value.get("gather_instructions", 0.0) > 0.05 * value["floating_instructions"]:
        return "gather"
    if value.get("packed_instructions", 0.0) < 0.2 * value["floating_instructions"]:
        return "scalar"
    return f"vector{value.get('widest_bits', 0.0):.0f}"


def _path(value: dict[str, float]) -> str:
    """The way into a GPU's kernels: through shared memory, by wide loads, or plain."""
    shared = value.get("static_shared_bytes", 0.0) + value.get("shared_instructions", 0.0)
    if value.get("spill_bytes", 0.0) > 0:
        return "spilled"
    if shared > 0:
        return "shared"
    return "vector" if value.get("wide_loads", 0.0) > 0 else "plain"


def fingerprint(candidate: Candidate, *, compiled: bool = True) -> str:
    """Identity of the code without comments, white space and the name of its class.

    Other numbers are other code, and so are other strings and another nesting of Python's lines.

    ``compiled`` False: of the Python files alone."""
    sources = [(name, text) for name, text in candidate.sources if compiled or name.endswith(".py")]
    names = [name for name, _ in sources]
    entry = candidate.entry.partition("::")[2]
    tokens = []
    for name, text in sources:
        words = _python(text) if name.endswith(".py") else normalise(text, keep_numbers=True, python=False)
        tokens.append(" ".join("ENTRY" if word == entry else word for word in words))
    return hashlib.sha256("\0".join([*names, *tokens]).encode()).hexdigest()


def _python(text: str) -> list[str]:
    """Tokens of Python without comments; where it is none, its lines with their indents."""
    unseen = (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER)
    marks = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    lines = text.splitlines()
    try:
        if max(map(len, lines), default=0) > LONGEST_LINE:
            raise ValueError("not a line that anyone wrote")
        found = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in unseen]
    except (tokenize.TokenError, SyntaxError, ValueError):
        return [line.rstrip() + "\n" for line in lines if line.strip()]
    return [tokenize.tok_name[token.type] if token.type in marks else token.string for token in found]


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
