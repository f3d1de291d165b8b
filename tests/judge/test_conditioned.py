# SPDX-License-Identifier: Apache-2.0
"""Elements that honest rounding hardly moves are held to that, beside such as it moves by much."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import conditioned
from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker
from kernelwright.trial import CaseResult

GIVEN = Variant(name="as given", required=True)
ROWS = "[torch.randn(64, 48)]"
HALVES = "torch.cat([torch.sin(x + 1e5), torch.tanh(x)], -1)"
STEPPED = "torch.cat([torch.sin(x + 1e5), torch.round(x * 8) / 8], -1)"
SUMS = "torch.cat([(x + 1e4).var(-1, unbiased=False, keepdim=True).expand(-1, 48) - 1e-3, torch.tanh(x)], -1)"
Program = Callable[[torch.Tensor], torch.Tensor]


def checked(forward: str, program: Program, seed: int = 0) -> CaseResult:
    """What is said of a program's answer to one call."""
    checker = Checker(instance(forward, ROWS), seed=3)
    leaves = checker.instance.draw(GIVEN, seed)
    return checker.check(GIVEN, leaves, None, [program(*leaves)], leaves)


def halves(low: torch.Tensor, tanh: torch.Tensor) -> torch.Tensor:
    """The two kinds, side by side."""
    return torch.cat([torch.sin(low + 1e5), tanh], -1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_beside_a_sine_of_large_angles_is_refused(dtype: torch.dtype) -> None:
    """The whole is wrong by more than that."""
    found = checked(HALVES, lambda x: halves(x, torch.tanh(x.to(dtype)).float()))
    assert not found.passed
    assert "that honest rounding moves by at most" in found.detail


def test_it_is_refused_in_two_rows_of_five() -> None:
    """And passes in one of ten, for as many may lie on the other side of a border."""

    def in_rows(share: float) -> Program:
        rows = torch.arange(64)[:, None] < 64 * share
        return lambda x: halves(x, torch.where(rows, torch.tanh(x.bfloat16()).float(), torch.tanh(x)))

    assert not checked(HALVES, in_rows(0.4)).passed
    assert checked(HALVES, in_rows(0.1)).passed


def test_it_is_refused_in_every_second_element_and_by_value() -> None:
    """Where the exact elements lie does not matter."""
    forward = "torch.stack([torch.sin(x + 1e5), torch.tanh(x)], -1).flatten(-2)"
    found = checked(forward, lambda x: torch.stack([torch.sin(x + 1e5), torch.tanh(x.half()).float()], -1).flatten(-2))
    assert not found.passed
    forward = "torch.where(x > 0, torch.sin(x * 1e5), torch.tanh(x))"
    found = checked(forward, lambda x: torch.where(x > 0, torch.sin(x * 1e5), torch.tanh(x.half()).float()))
    assert not found.passed


@pytest.mark.parametrize("seed", range(20))
def test_honest_programs_pass(seed: int) -> None:
    """In double precision, in another formula, and where a few elements are on the other side of a border."""
    assert checked(HALVES, lambda x: halves(x, (1.0 - 2.0 / ((2.0 * x.double()).exp() + 1.0)).float()), seed).passed
    assert checked(HALVES, lambda x: halves(x.double(), torch.tanh(x)).float(), seed).passed
    below = 1.0 - 2.0**-20
    stepped = checked(STEPPED, lambda x: torch.cat([torch.sin(x + 1e5), torch.round(x * below * 8) / 8], -1), seed)
    assert stepped.passed, stepped.detail
    shifted = checked(SUMS, lambda x: torch.cat([_variance(x + 1e4).expand(-1, 48) - 1e-3, torch.tanh(x)], -1), seed)
    assert shifted.passed, shifted.detail


def _variance(x: torch.Tensor) -> torch.Tensor:
    """In two passes, by another order."""
    mean = x.unflatten(-1, (6, 8)).mean(-2).mean(-1, keepdim=True)
    return (x - mean).square().mean(-1, keepdim=True)


def test_nothing_is_drawn_where_an_answer_has_nowhere_to_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference without large errors, or an answer without."""
    monkeypatch.setattr(conditioned, "_moved", lambda *given: pytest.fail("honest rounding was drawn"))
    assert checked("torch.tanh(x)", torch.tanh).passed
    assert checked(HALVES, lambda x: halves(x.double(), torch.tanh(x)).float()).passed


def test_a_few_calls_of_a_case_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes draws of its own is not done at every call."""
    looks: list[int] = []
    real = conditioned._moved
    monkeypatch.setattr(conditioned, "_moved", lambda *given: looks.append(1) or real(*given))
    checker = Checker(instance(HALVES, ROWS), seed=3)
    for seed in range(5):
        leaves = checker.instance.draw(GIVEN, seed)
        answer = halves(leaves[0], torch.tanh(leaves[0]))
        assert checker.check(GIVEN, leaves, None, [answer], leaves).passed
    assert len(looks) == conditioned.LOOKS


def test_a_reference_that_chooses_is_looked_at_too() -> None:
    """What is largest of a row is chosen; where equal values are taken in another order the whole may be wrong."""
    forward = "torch.cat([torch.sin(x.sort(-1)[0] + 1e5), torch.tanh(x)], -1)"
    sines = lambda x: torch.sin(x.sort(-1)[0] + 1e5)  # noqa: E731
    assert checked(forward, lambda x: torch.cat([sines(x), torch.tanh(x)], -1)).passed
    assert not checked(forward, lambda x: torch.cat([sines(x), torch.tanh(x.half()).float()], -1)).passed


def test_nothing_is_drawn_where_a_reference_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of a solution lie along few directions: those of another algorithm lie elsewhere."""
    monkeypatch.setattr(conditioned, "_moved", lambda *given: pytest.fail("honest rounding was drawn"))
    forward = "torch.cat([torch.linalg.solve(x @ x.mT, x), torch.sin(x + 1e5)], -1)"
    assert checked(forward, lambda x: torch.cat([torch.linalg.solve(x @ x.mT, x), torch.sin(x + 1e5)], -1)).passed
