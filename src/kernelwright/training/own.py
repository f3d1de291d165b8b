# SPDX-License-Identifier: Apache-2.0
"""Whether a candidate's own code does the work, read from its syntax tree: calling a library teaches nothing.

It is a rule of the environment and no verdict: the judge calls a fast library call fast, which it is. What may be
done outside own kernels is listed here; anything else that can touch a tensor counts as borrowed, by whatever name
it was imported, and so does what cannot be followed (``exec``, ``getattr`` with a computed name).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernelwright.candidate import Candidate
from kernelwright.training.following import Reader

LIBRARIES = re.compile(
    r"#\s*include\s*[<\"](?:torch|ATen|c10|mkl|cblas|oneapi|dnnl|cublas|cudnn|cufft|cusparse|cusolver|thrust|cub|Eigen)"
    r"|\b(?:cblas_|LAPACKE_|mkl_|dnnl_|cublas|cudnn|cufft|cusparse|at::|torch::)\w*|\b(?:[sd]gemm|[sd]gemv)_\b"
    r"|\b(?:dlopen|dlmopen|dlsym|dlvsym|LoadLibrary|execv\w*|popen|system)\s*\("
)
"""Names of other people's kernels in native code, and ways to reach them at run time."""
NATIVE = (".cpp", ".cu", ".cuh", ".h", ".hpp")


def borrowed(candidate: Candidate) -> str:
    """What does the work in place of own code, as ``torch.softmax``; empty where own code does it."""
    if candidate.language == "torch":
        return "no code of its own"
    return next(_found(candidate), "")


def _found(candidate: Candidate) -> Iterator[str]:
    sources = dict(candidate.sources)
    for name, text in sources.items():
        if name.endswith(NATIVE):
            match = LIBRARIES.search(_uncommented(text))
            if match:
                yield match[0].strip()
    own = {name.rpartition("/")[2].rpartition(".")[0] for name in sources if name.endswith((".cpp", ".cu"))}
    modules = {name.rpartition("/")[2].removesuffix(".py") for name in sources if name.endswith(".py")}
    launched = False
    for name, text in sources.items():
        if not name.endswith(".py"):
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # it will not load either
        reader = Reader(tree, own=frozenset(own), modules=frozenset(modules))
        yield from reader.read()
        launched = launched or reader.launches
    if not launched:
        yield "no kernel of its own is launched"


def _uncommented(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
