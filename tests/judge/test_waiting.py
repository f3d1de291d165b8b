# SPDX-License-Identifier: Apache-2.0
"""A hang is told from a compilation by whether the program can compile anything."""

from __future__ import annotations

import collections
from types import SimpleNamespace

import pytest

from kernelwright.candidate import Candidate
from kernelwright.judge import waiting
from kernelwright.judge.checks import DEAR_TO_COMPILE, Checks


@pytest.mark.parametrize(
    ("language", "source", "expected"),
    [
        ("torch", "class ModelNew:\n    def forward(self, x):\n        while True: pass\n", False),
        ("torch", "self.run = torch.compile(self.plain)", True),
        ("torch", "from torch.utils.cpp_extension import load_inline", True),
        ("triton", "import triton\n@triton.jit\ndef k(): pass", True),
        ("cpp", "// compiled by the judge before it is run", False),
    ],
)
def test_only_programs_that_can_compile_get_time_to(language: str, source: str, expected: bool) -> None:
    """An endless loop in plain Python is given up after seconds, not after the minutes of a first compilation."""
    made = Candidate(
        task="t", language=language, entry="optimized.py::ModelNew", sources=(("optimized.py", source),),
        proposer="start", note="",
    )  # fmt: skip
    assert expected == waiting.mentions_a_compiler(made)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("self.run = torch.compile(self.plain)", True),
        ("from torch.utils import cpp_extension", False),
        ("import re\nJITTER = re.compile('x')\njitter = 1\n@torch.jit.script\ndef f(x): return x\n", False),
        ("from torch._dynamo import optimize\n", True),
        ("compile = False\ncompiled = 1\n", False),
        ("from torch import compile\nrun = compile(f)\n", True),
        ("x = 1  # as torch.compile has it\n", False),
        ('"""No jit here."""\nx = 1\n', False),
        ("import triton\n@triton.jit\ndef k(): pass\n", False),
        ("import triton\nimport triton.language as tl\n@triton.autotune([], [])\n@triton.jit\ndef k(): pass\n", False),
        ("import triton\nrun = torch.compile(k)\n", True),
        ("def broken(:\n    torch.compile(k)\n", True),
    ],
)
def test_a_word_in_a_comment_spares_no_program_a_check(source: str, expected: bool) -> None:
    """One that compiles once more for each mode is called in few; a comment about it let anything through."""
    made = Candidate(task="t", language="torch", entry="a.py::ModelNew", sources=(("a.py", source),), proposer="start")
    assert expected == waiting.compiles_again(made)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os\nN = os.cpu_count()\n", True),
        ("len(os.sched_getaffinity(0))", True),
        ("torch.get_num_threads()", True),
        ("x.sum(-1)", False),
    ],
)
def test_who_counts_cores_is_seen_by_its_words(source: str, expected: bool) -> None:
    """In any of its files: what it divides by them is tried with another number."""
    sources = (("optimized.py", "import parts"), ("parts.py", source))
    made = Candidate(task="t", language="torch", entry="optimized.py::ModelNew", sources=sources, proposer="start")
    assert expected == waiting.counts_cores(made)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import math\nfrom torch import nn\nimport torch.nn.functional as F\nimport layers\n", False),
        ("from . import layers\n", False),
        ("def broken(:\n", False),
        ("import helion\n", True),
        ("def f():\n    from tilelang.language import T\n", True),
        ("import torch\nf = torch.compile(g)\n", True),
        ("import os\nos.system('cc kernel.c')\n", True),
        ("m = __import__('tri' + 'ton')\n", True),
    ],
)
def test_a_plain_torch_program_waits_for_no_compiler(source: str, expected: bool) -> None:
    """It is started like a compiled one; whoever imports what may compile gets a folder and the compiler."""
    sources = (("optimized.py", source), ("layers.py", "import torch\n"))
    made = Candidate(task="t", language="torch", entry="optimized.py::M", sources=sources, proposer="start", note="")
    assert expected == waiting.may_compile(made)
    triton = Candidate(task="t", language="triton", entry="optimized.py::M", sources=sources, proposer="start", note="")
    assert waiting.may_compile(triton)


COMPILED, PLAIN = (
    Candidate(
        task="t", language="torch", entry="optimized.py::ModelNew", sources=(("optimized.py", text),),
        proposer="start", note="",
    )
    for text in ("torch.compile(f)", "f")
)  # fmt: skip


def test_patience_shortens_compiling_and_nothing_else() -> None:
    """Calls of a large task keep the time that the reference itself would need, four times over."""
    assert [320.0, 90.0] == [waiting.limit(0.0, COMPILED, patience) for patience in (None, 90.0)]
    assert [20.0, 20.0] == [waiting.limit(0.0, PLAIN, patience) for patience in (None, 90.0)]
    assert [220, 90] == [round(waiting.limit(1e6, made, 90.0)) for made in (PLAIN, COMPILED)]
    assert [520, 28] == [round(waiting.limit(1e6, COMPILED, patience)) for patience in (None, 5.0)]


def test_a_program_that_hangs_takes_no_more_than_its_share_of_a_small_budget() -> None:
    """No less than 8 s and four times the reference's own window, no more than without a budget; a program that may be
    compiling has another patience."""
    assert [8.0, 8.0, 15.0, 20.0] == [waiting.limit(0.0, PLAIN, 90.0, hanging) for hanging in (0.0, 5.0, 15.0, 60.0)]
    assert [16, 220] == [round(waiting.limit(1e6, PLAIN, None, hanging)) for hanging in (5.0, None)]
    assert [90.0, 320.0] == [waiting.limit(0.0, COMPILED, patience, 5.0) for patience in (90.0, None)]


def test_the_limit_grows_with_the_task() -> None:
    """Twenty seconds, a hundred windows of eager, and five minutes for compilers. Windows of long calls have few: at 64
    a hanging program of a reference of 3 s was waited for six hours."""
    assert [20.0, 26.4, 320.0] == [
        waiting.seconds(0.0, False), waiting.seconds(1000.0, False), waiting.seconds(0.0, True)
    ]  # fmt: skip
    assert [28.0, 620.0] == [waiting.seconds(1e4, False), waiting.seconds(3e6, False)]


def test_of_the_checks_that_compile_again_one_is_asked_by_lot() -> None:
    """Four of five are spared, none always; a program that compiles nothing is spared none."""
    asked = collections.Counter(
        check
        for seed in range(500)
        for check in DEAR_TO_COMPILE
        if not Checks.spares(SimpleNamespace(compiles=True, seed=seed), check)
    )
    assert asked.total() == 500 and set(asked) == set(DEAR_TO_COMPILE) and min(asked.values()) > 60
    assert not any(Checks.spares(SimpleNamespace(compiles=False, seed=1), check) for check in DEAR_TO_COMPILE)
