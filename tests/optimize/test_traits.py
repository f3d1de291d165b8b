# SPDX-License-Identifier: Apache-2.0
"""What tells programs apart before any is built, and what does not."""

from __future__ import annotations

import pytest

from kernelwright.candidate import Candidate
from kernelwright.optimize.traits import fingerprint


def test_numbers_and_divisors_tell_programs_apart() -> None:
    """Another constant is another program, also behind Python's integer division and in a C directive."""

    def candidate(name: str, text: str) -> Candidate:
        return Candidate(task="t", language="cpp", entry="k.py::M", sources=((name, text),), proposer="p")

    assert fingerprint(candidate("k.py", "n = a // 2")) != fingerprint(candidate("k.py", "n = a // 4"))
    assert fingerprint(candidate("k.cpp", "#define N 2")) != fingerprint(candidate("k.cpp", "#define N 4"))
    assert fingerprint(candidate("k.cpp", "x; // a")) == fingerprint(candidate("k.cpp", "x;   // b"))


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [("if a:\n    b()\nc()\n", "if a:\n    b()\n    c()\n", False),
     ("s = '#define N 2\\n'\n", "s = '#define N 4\\n'\n", False),
     ('s = """\n#pragma omp simd\nf();"""\n', 's = """\n#pragma omp for\nf();"""\n', False),
     ("a = 1\n-b\n", "a = 1 - b\n", False), ("def f(:\n  a\n b", "def f(:\n  a\n  b", False),
     ("if a:\n    b()  # c\n", "# d\nif a:\n\n  b( )", True), ("class M: pass\n", "class ModelNew: pass\n", True),
     ("def f(:\n  a\n\n", "def f(:\n  a  ", True)],
)  # fmt: skip
def test_nesting_and_strings_tell_python_programs_apart(one: str, two: str, same: bool) -> None:
    """A repair that moves a line in or changes C++ in a string is no duplicate; comments and blanks still are one."""

    def found(text: str, name: str) -> str:
        return fingerprint(
            Candidate(task="t", language="torch", entry=f"k.py::{name}", sources=(("k.py", text),), proposer="p")
        )

    assert same == (found(one, "M") == found(two, "ModelNew" if "ModelNew" in two else "M"))


def test_a_line_that_nobody_wrote_is_not_read_token_by_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 kB of open quotes, which a model that repeats itself may send, would take a minute of the search."""

    def found(text: str) -> str:
        return fingerprint(
            Candidate(task="t", language="torch", entry="k.py::M", sources=(("k.py", text),), proposer="p")
        )

    monkeypatch.setattr("tokenize.generate_tokens", lambda _: pytest.fail("read token by token"))
    assert found("x = " + "'\\" * 25_000) == found("x = " + "'\\" * 25_000 + "  \n\n") != found("x = " + "'\\" * 25_001)
