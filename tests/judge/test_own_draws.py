# SPDX-License-Identifier: Apache-2.0
"""What a task's own draws have in common is said beside a refusal by other values."""

from __future__ import annotations

import pytest
from plain_tasks import instance

from kernelwright.judge import own_draws
from kernelwright.trial import Rejected

REASON = "main: scale 0.001: output 0 at (0,): RMS error is 9 times the honest error (3.2 bits lost, 1 allowed)"


def reason(inputs: str, *, stage: str = "verify", words: str = REASON) -> str:
    """What a refusal says of a task with such inputs."""
    made = instance("x * y.sum()", inputs, args="x, y")
    return own_draws.said(made, Rejected(stage=stage, reason=words, detail="")).reason


@pytest.mark.parametrize(
    ("first", "word"),
    [
        ("F.normalize(torch.randn(8, 4), dim=-1)", "have rows of norm one"),
        ("torch.randn(8, 4).softmax(-1)", "have rows that add up to one"),
        ("torch.rand(8, 4) + 0.1", "are never negative"),
        ("torch.randn(8, 4)", ""),
        ("torch.randint(0, 9, (8, 4))", ""),
        ("torch.rand(())", ""),
    ],
)
def test_what_all_draws_have_is_named_with_its_input(first: str, word: str) -> None:
    """Of floats, by rows."""
    found = reason(f"[{first}, torch.randn(8, 4)]").removeprefix(REASON)
    assert (f" input 0 (x) {word}," in found or f" input 0 {word}," in found) if word else not found


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("verify", REASON.replace("scale 0.001", "as given")),
        ("smoke", REASON),
        ("verify", "raised RuntimeError: no"),
    ],
)
def test_nothing_is_said_where_the_values_are_the_tasks_own(stage: str, words: str) -> None:
    """Nor beside errors that are raised."""
    assert reason("[torch.rand(8, 4), torch.rand(8, 4)]", stage=stage, words=words) == words
