# SPDX-License-Identifier: Apache-2.0
"""judge/constants.py: inputs that a task never changes are others in every draw, where the reference takes them."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge.constants import SAME
from kernelwright.judge.inputs import Variant

GIVEN = Variant(name="as given", required=True)
ARC = "torch.linspace(0.02, 0.98, 96).view(8, 12)"


def test_numbers_that_may_not_grow_come_in_another_order() -> None:
    """A program that kept its last answer as long as nothing changed was 20 times as fast as an arccosine."""
    made = instance("torch.acos(x)", f"[{ARC}]")
    first, second = (made.draw(GIVEN, seed)[0] for seed in (1, 2))
    assert not torch.equal(first, second)
    assert torch.equal(first.flatten().sort().values, second.flatten().sort().values)
    assert made.kept == set() and made.notes == []


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_whole_numbers_are_moved_along_where_nothing_else_changes(dtype: str) -> None:
    numbers = f"torch.arange(40, dtype=torch.{dtype})"
    alone = instance("torch.sin(x.float())", f"[{numbers}]")
    first, second = (alone.draw(GIVEN, seed)[0] for seed in (1, 2))
    assert not torch.equal(first, second) and first.dtype is second.dtype
    assert torch.equal(first.sort().values, second.sort().values)
    beside = instance("y[x]", f"[{numbers}, torch.randn(40)]", args="x, y")
    assert torch.equal(beside.draw(GIVEN, 1)[0], torch.arange(40, dtype=getattr(torch, dtype)))


@pytest.mark.parametrize(
    ("bound", "finite"), [("x.clamp(max=y)", True), ("x * torch.where(y.isfinite(), 1e999, 1.0)", False)]
)
def test_a_bound_that_there_is_not_is_one_in_half_of_the_calls(bound: str, finite: bool) -> None:
    """Where the reference stays finite with it; nothing is said of it then."""
    made = instance(bound, "[torch.randn(8, 64), torch.full((64,), float('inf'))]", args="x, y")
    drawn = [made.draw(GIVEN, seed)[1] for seed in range(8)]
    assert {bool(one.isfinite().all()) for one in drawn} == ({True, False} if finite else {False})
    assert all(bool((one > 0).all()) for one in drawn) and bool(made.notes) is not finite


def test_where_nothing_may_be_otherwise_it_is_said() -> None:
    made = instance("torch.sin(x.float()) + 1", "[torch.tensor([0, 3, 5, 9])]")
    assert [SAME] == made.notes
    assert torch.equal(made.draw(GIVEN, 1)[0], made.draw(GIVEN, 2)[0])
