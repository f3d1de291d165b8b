# SPDX-License-Identifier: Apache-2.0
"""What an entry of the corpus is: a program, the small task it answers, and what a judge must say about it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from kernelwright.candidate import Candidate
from kernelwright.task import Task

ANY = ("build", "load", "smoke", "verify", "time", "integrity", "sandbox")
MAY_COMPILE = "# __import__\n"
"""A word for which a judge lets a program start others (``waiting.may_compile``)."""
CAUGHT = ("smoke", "verify", "time", "integrity")
"""Stages at which running a wrong program may end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program. A cheat or wrong program names its class of the exploit catalogue and the stages that may end it."""

    name: str
    task: str
    """Key of ``cheat_tasks.TASKS``."""
    sources: tuple[tuple[str, str], ...]
    language: str = "torch"
    classes: tuple[int, ...] = ()
    """Rows of the exploit catalogue (1 to 34); 0 is a plain mistake. Empty: an honest program."""
    stages: tuple[str, ...] = ()
    """Where a refusal is right; empty for an honest program."""
    level: str = "coarse"
    """The level it takes to tell: smoke, coarse, or precise (all cases and variants)."""
    gains: float | None = None
    """Not None: its answers are right, only its time is a lie; a verdict is right that grants at most this speedup."""
    twin: str = ""
    """Name of the honest program that does the same job and must pass."""
    device: str = "cpu"
    slow: bool = False
    """Left out of the quick run."""
    hostile: bool = False
    """It would harm a machine it is not confined on (kills, rewrites files): never run it outside the sandbox."""
    open: bool = False
    """Not caught reliably yet: the test expects it to fail, and the report of the corpus shows it."""
    patience: float | None = None
    """Seconds after which a call counts as hanging, where the usual would waste minutes."""

    @property
    def honest(self) -> bool:
        """Whether a judge must let it pass."""
        return not self.classes

    def candidate(self, task: Task) -> Candidate:
        """The same as a judge reads it."""
        entry = next(name for name, _ in self.sources if name.endswith(".py")) + "::ModelNew"
        sources = tuple(sorted(self.sources))
        return Candidate(
            task=task.digest(), language=self.language, entry=entry, sources=sources, proposer="corpus", note=self.name
        )


def module(forward: str, *, args: str = "x", init: str = "", head: str = "", takes: str = "") -> str:
    """Source of a ``ModelNew``: the body of ``forward(self, args)`` and of ``__init__``."""

    def block(text: str) -> str:
        return textwrap.indent(textwrap.dedent(text).strip() or "pass", " " * 8)

    takes = f", {takes}" if takes else ""
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        f"{textwrap.dedent(head).strip()}\n\n\nclass ModelNew(nn.Module):\n"
        f"    def __init__(self{takes}):\n        super().__init__()\n{block(init)}\n\n"
        f"    def forward(self, {args}):\n{block(forward)}\n"
    )


def native(signature: str, body: str, call: str, *, args: str = "x", head: str = "", init: str = "") -> tuple:
    """Sources of a C++ program ``void run(signature)`` and of the module whose forward is ``call``; ``run`` is bound.

    In ``call``, ``run(...)`` takes tensors (their addresses are handed over) and whole numbers.
    """
    text = (
        "#include <cmath>\n#include <cstdint>\n#include <cstring>\n#include <vector>\n"
        f'{textwrap.dedent(head).strip()}\nextern "C" void run({signature}) {{\n{textwrap.dedent(body)}}}\n'
    )
    shell = module(
        call,
        args=args,
        init=init,
        head="""
        import ctypes
        from pathlib import Path

        _lib = ctypes.CDLL(str(Path(__file__).with_name("kernel.so")))

        def run(*args):
            kinds = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_long(a) for a in args]
            _lib.run(*kinds)
        """,
    )
    return (("kernel.cpp", text), ("new.py", shell))


def honest(name: str, task: str, source: str | tuple, **more: object) -> Program:
    """An honest program; ``source`` is Python text, or the sources of a compiled one."""
    return Program(name=name, task=task, **_given(source), **more)


def cheat(number: int | tuple[int, ...], name: str, task: str, source: str | tuple, **more: object) -> Program:
    """A program that must not pass. Without ``stages`` any stage in which it runs may end it.

    It has the rights of a program that may compile itself, which are more than a plain one has.
    """
    numbers = (number,) if isinstance(number, int) else number
    more.setdefault("stages", CAUGHT)
    if isinstance(source, str):
        source += MAY_COMPILE
    return Program(name=name, task=task, classes=numbers, **_given(source), **more)


def _given(source: str | tuple) -> dict[str, object]:
    if isinstance(source, str):
        language = "triton" if "triton.jit" in source else "torch"
        return {"sources": (("new.py", source),), "language": language}
    endings = {name.rpartition(".")[2] for name, _ in source}
    return {"sources": source, "language": "cpp" if "cpp" in endings else "cuda" if "cu" in endings else "torch"}
