# SPDX-License-Identifier: Apache-2.0
"""How long a program may take before it counts as hanging, and whether it may be compiling."""

from __future__ import annotations

import ast
import io
import math
import re
import sys
import tokenize
from pathlib import PurePath

from kernelwright.candidate import Candidate
from kernelwright.judge.timing_plan import ALONE_US, SLOW_CALL_US

SECONDS = 20.0
"""A call of a small task that takes longer hangs; large tasks get a hundred windows of eager on top."""
LEAST_SECONDS = 8.0
"""Where a run has no time, one that compiles nothing hangs after these: of 20 s, one that never answered took 28."""
CALLS = ((ALONE_US, 64), (SLOW_CALL_US, 8), (math.inf, 2))
"""Calls of a window at the most, of calls that take eager so many microseconds (``timing_plan``; a smoke test lets up
to 8 results live, of slow calls 2)."""
SLOWER, COMPILED_SLOWER = 100.0, 4.0
"""Times eager's that a window may take; and where a run has no time, of programs that compile themselves: of a loop of
256 steps one compiled for over 200 s, because a hundred windows of 3 s were its due whatever the patience."""
COMPILE_SECONDS = 300.0
"""First calls of programs that compile themselves (torch.compile, Triton)."""
JIT = frozenset({"torch", "triton"})
"""Languages whose candidates may start a compiler while they run."""
_COMPILERS = re.compile(r"compile|triton|jit|inductor|load_inline|cpp_extension|subprocess", re.IGNORECASE)
_AGAIN = re.compile(r"(?<!\bre)(?<!\bre )\. ?compile\b|(?<![\w.])(?<!\. )compile ?\(|\b_?(dynamo|inductor)\b")
"""Names in code of what compiles a module once more for each mode, or for one tensor in the place of two."""
_COUNTS = re.compile(r"cpu_count|sched_getaffinity|get_num_threads")
_EXTENSIONS = re.compile(r"load_inline|cpp_extension")
_OTHERS = re.compile(r"importlib|__import__|\b(exec|eval|system|popen|spawn|posix_spawn|exec[lv]p?e?)\b", re.IGNORECASE)
"""Ways to start a compiler, or anything else, that name none."""
_PLAIN = sys.stdlib_module_names | {"torch"}
"""Packages that compile nothing unless one of the words above says so."""


def seconds(eager_us: float, compiles: bool) -> float:
    """How long one window may take whose calls take eager ``eager_us`` microseconds."""
    return SECONDS + SLOWER * _window_s(eager_us) + (COMPILE_SECONDS if compiles else 0.0)


def _window_s(eager_us: float) -> float:
    """Seconds of eager in the longest window that such calls come in."""
    return 1e-6 * eager_us * next(calls for most, calls in CALLS if eager_us < most)


def limit(eager_us: float, candidate: Candidate, patience: float | None, hanging: float | None = None) -> float:
    """How long a window of a candidate may take. ``patience`` shortens the waiting for those that may be compiling,
    ``hanging`` that for all others."""
    compiles = mentions_a_compiler(candidate)
    whole, given = seconds(eager_us, compiles), patience if compiles else hanging
    if given is None:
        return whole
    return min(whole, max((SECONDS if compiles else LEAST_SECONDS) + COMPILED_SLOWER * _window_s(eager_us), given))


def mentions_a_compiler(candidate: Candidate) -> bool:
    """Whether a program that hangs may be compiling: no word of it in the source, no five minutes of waiting."""
    return candidate.language in JIT and any(_COMPILERS.search(text) for _, text in candidate.sources)


def compiles_again(candidate: Candidate) -> bool:
    """Whether a program may compile once more for each mode it is called in, as ``torch.compile`` does, by names in its
    code, without comments and texts. Kernels, extensions and scripts are compiled once for all of them."""
    code = (_code(text) for name, text in candidate.sources if name.endswith(".py"))
    return candidate.language in JIT and any(map(_AGAIN.search, code))


def _code(text: str) -> str:
    """A Python source without comments and texts; as it is where it does not parse."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text
    return " ".join(token.string for token in tokens if token.type not in (tokenize.COMMENT, tokenize.STRING))


def counts_cores(candidate: Candidate) -> bool:
    """Whether a program may share out its work by how many cores or threads there are, as Python and torch say it."""
    return any(_COUNTS.search(text) for _, text in candidate.sources)


def builds_extensions(candidate: Candidate) -> bool:
    """Whether a program seems to build C++ or CUDA against torch's headers: 20 to 40 s of a core each time."""
    return candidate.language in JIT and any(_EXTENSIONS.search(text) for _, text in candidate.sources)


def may_compile(candidate: Candidate) -> bool:
    """Whether a program is given what programs that compile themselves need: a folder to write to, the right to start
    others, torch's compiler loaded (10 s on 2 cores, once a judge). In torch not where all it imports is torch, the
    standard library and files of its own, and no word in it is about compiling or starting programs."""
    if candidate.language not in JIT:
        return False
    if candidate.language != "torch" or mentions_a_compiler(candidate):
        return True
    texts = [text for name, text in candidate.sources if name.endswith(".py")]
    own = {PurePath(name).stem for name, _ in candidate.sources}
    return any(_OTHERS.search(text) or not _imported(text) <= _PLAIN | own for text in texts)


def _imported(text: str) -> set[str]:
    """Roots of the packages that a Python source imports by name; none of a source that does not parse."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}
