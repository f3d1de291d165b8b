# SPDX-License-Identifier: Apache-2.0
"""Comments that declare tunables, as models write them: what is read, what is passed over, and that none ends a run."""

from __future__ import annotations

import pytest

from kernelwright.candidate import Candidate
from kernelwright.proposers.agent import declared_space
from kernelwright.tuning import Feasible, Parameter, Tuner

HEAD = "# tunable A: 8, 16\n# tunable B: 2, 4\nA = 8\nB = 2\n"


def declares(*texts: str) -> Candidate:
    """A candidate of these files, kernel.py first."""
    names = ("kernel.py", "kernel.cpp")
    sources = tuple(zip(names, texts, strict=False))
    return Candidate(task="t", language="cpp", entry="kernel.py::ModelNew", sources=sources, proposer="p")


@pytest.mark.parametrize(
    ("line", "read"),
    [("A <= 64 && B <= 8", ("A <= 64  and  B <= 8",)), ("A >= 4 * B.", ("A >= 4 * B",)),
     ("A <= 8 || !(B > 2);", ("A <= 8  or   not (B > 2)",)), ("A <= 64,", ("A <= 64",)),
     ("A <= 64, B <= 8", ("A <= 64", "B <= 8")), ("A \u2265 B", ("A >= B",)), ("A != B", ("A != B",)),
     ("min(A, B) >= 2", ("min(A, B) >= 2",))],
)  # fmt: skip
def test_a_constraint_is_read_as_people_mean_it(line: str, read: tuple[str, ...]) -> None:
    """C's words, a full stop, commas; the space can be walked."""
    space = declared_space(declares(f"{HEAD}# where {line}\n"))
    assert (read, {"A": 8, "B": 2}) == (space.constraints, Tuner(space).ask())


@pytest.mark.parametrize(
    "line",
    ["A = 4", "A > B (rows", "the rows are contiguous", "A is the block", "A > 9 ** 9 ** 9 ** 9", "B << 2 ** 40 > A",
     "A * 'x' == B", "A < 3\0", "-" * 9999 + "A < 99", "(" * 9999, "A < 1" + " + 1" * 9999,
     "A / (B - 2) > 1", "min(A) > 1", "A.real > 1", "A < C", "A == 16", "\ud800", "A if"],
)  # fmt: skip
def test_a_constraint_that_cannot_be_kept_is_passed_over(line: str) -> None:
    """Prose, gigantic numbers, names of nothing, or a rule that the program itself breaks: the tunables stay."""
    space = declared_space(declares(f"{HEAD}# where {line}\n"))
    assert ((), ["A", "B"]) == (space.constraints, [parameter.name for parameter in space.parameters])
    assert 4 == len(list(Feasible(space).points()))


def test_a_tunable_declared_in_two_files_is_one() -> None:
    """The first declaration counts; two of one name would end the walk before it began."""
    space = declared_space(declares(HEAD, "// tunable A: 32\n#define A 8\n// where A <= 8\n"))
    assert (Parameter(name="A", values=(8, 16)), 2) == (space.parameters[0], len(space.parameters))
    assert (("A <= 8",), {"A": 8, "B": 2}) == (space.constraints, Tuner(space).ask())


def test_a_space_has_an_end() -> None:
    """Thousands of tunables, numbers without end, thousands of empty lines: read at once, and walked."""
    many = "".join(f"# tunable N{n}: 1, 2\nN{n} = 1\n# where N{n} > 0\n" for n in range(2000))
    space = declared_space(declares(many + "\n" * 200_000 + "# tunable X: 1e999, nan\nX = 1\n"))
    assert (32, 32) == (len(space.parameters), len(space.constraints))
    assert {1} == set((Tuner(space).ask() or {}).values())
