# SPDX-License-Identifier: Apache-2.0
"""A C++ program of the corpus in the form that KernelBench takes: one Python file that builds it with load_inline.

The kernel is word for word the same, and is compiled with the flags that this judge pins; the program's ``forward`` is
too. In between stands what ``load_inline`` is given anyhow: a function over tensors that hands their addresses on.
"""

from __future__ import annotations

import hashlib
import re

from corpus import Program

from kernelwright.judge.toolchains.cpp import FLAGS

SIGNATURE = re.compile(r'extern "C" void run\(([^)]*)\)')
LOADED = re.compile(r"^import ctypes\n.*?_lib\.run\(\*kinds\)\n", re.DOTALL | re.MULTILINE)
"""How ``corpus.native`` binds a program."""
CFLAGS = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC", "-std=c++20")]
"""load_inline has these already."""


class OtherForm(Exception):
    """A program that is not bound as ``corpus.native`` binds it."""


def wrapped(program: Program) -> str:
    """The program as one file with a ``ModelNew``."""
    sources = dict(program.sources)
    kernel, shell = sources.get("kernel.cpp", ""), sources.get("new.py", "")
    found = SIGNATURE.search(kernel)
    if found is None or not LOADED.search(shell):
        raise OtherForm(program.name)
    name = f"kernel_{hashlib.sha256(kernel.encode()).hexdigest()[:12]}"
    source = f"{kernel}\n{_bound(found[1])}"
    binding = (
        "from torch.utils.cpp_extension import load_inline\n\n"
        f"_built = load_inline(\n    name={name!r},\n    cpp_sources=[{source!r}],\n"
        f'    functions=["on_tensors"],\n    extra_cflags={CFLAGS!r},\n    extra_ldflags=["-fopenmp"],\n)\n'
        "run = _built.on_tensors\n"
    )
    return LOADED.sub(lambda _: binding, shell, count=1)


def _bound(parameters: str) -> str:
    """A function over tensors and whole numbers that calls ``run`` with such parameters."""
    takes, gives = [], []
    for parameter in parameters.split(","):
        kind, _, name = parameter.strip().rpartition(" ")
        if "*" in parameter:
            kind = f"{kind}*" if "*" not in kind else kind
            name = name.lstrip("*")
            takes.append(f"torch::Tensor {name}")
            gives.append(f"({kind}){name}.data_ptr()")
        else:
            takes.append(f"int64_t {name}")
            gives.append(f"({kind}){name}")
    return f"void on_tensors({', '.join(takes)}) {{ run({', '.join(gives)}); }}\n"
