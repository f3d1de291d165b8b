# SPDX-License-Identifier: Apache-2.0
"""judge/entrant.py: what a reference that does not run as a program hears."""

from __future__ import annotations

import re

import pytest

from kernelwright.errors import JudgeFailed, KernelwrightError, ReferenceFails
from kernelwright.judge.entrant import Entrant


def words_of(structure: str, kind: type[KernelwrightError]) -> str:
    """What is said where eager answers with another structure than the judge has seen."""
    failure = f"smoke: wrong structure: {structure}"
    with pytest.raises(kind) as raised:
        Entrant(name="eager", program=None, failure=failure, warming=None).required("selected")
    return str(raised.value)


@pytest.mark.parametrize(
    ("got", "expected", "kind", "said"),
    [
        ("[2089] float32", "[2057] float32", ReferenceFails, "depends on values: .*next: .*torch.where"),
        ("[40, 3] int64", "[41, 3] int64", ReferenceFails, "depends on values"),
        ("[40, 3] int64", "[40, 3] int32", JudgeFailed, "does not run"),
    ],
)
def test_a_reference_whose_shapes_hang_on_values_hears_what_to_return(
    got: str, expected: str, kind: type[KernelwrightError], said: str
) -> None:
    """It was told that it does not run, by which the judge seemed at fault, and no next step."""
    failure = f"output 0 is {got} on cpu, strided, expected {expected} on cpu, strided"
    assert re.search(said, words_of(failure, kind), re.DOTALL)


TAKEN = "(tensor, %s)"


@pytest.mark.parametrize(
    ("got", "expected", "kind", "said"),
    [
        (TAKEN % 1.838, TAKEN % 14.158, ReferenceFails, r"depends on values: .*next: .*\.item\(\)"),
        (TAKEN % 57, (TAKEN % 1234567)[:-5], ReferenceFails, "depends on values"),
        (TAKEN % "-1e-07", TAKEN % "inf", ReferenceFails, "depends on values"),
        (TAKEN % "(1+2j)", TAKEN % "(0.5-3e-05j)", ReferenceFails, "depends on values"),
        (TAKEN % 57, "[tensor, 57]", JudgeFailed, "does not run"),
        ("tensor", "(tensor,)", JudgeFailed, "does not run"),
    ],
)
def test_a_reference_whose_numbers_hang_on_values_hears_what_to_return(
    got: str, expected: str, kind: type[KernelwrightError], said: str
) -> None:
    """One that returned loss.item() was told that it does not run, by which the judge seemed at fault."""
    assert re.search(said, words_of(f"returned {got}, expected {expected}", kind), re.DOTALL)
