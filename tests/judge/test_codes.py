# SPDX-License-Identifier: Apache-2.0
"""Whole numbers and flags of a module that its constructor fills with one number are others in new weights."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import codes

X = "[torch.randn(8, 32)]"


def new(formula: str, init: str) -> torch.Tensor:
    """What becomes of the buffer that ``init`` makes."""
    made = instance(formula, X, init=f"self.register_buffer('q', {init})")
    return dict(made.draw_state(7))["q"]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32"])
def test_codes_that_wait_for_a_checkpoint_are_of_all_sizes(kind: str) -> None:
    """Where there are rows of them."""
    filled = new("x @ self.q.float()", f"torch.zeros(32, 24, dtype=torch.{kind})")
    ends = torch.iinfo(filled.dtype)
    spread = (ends.max - ends.min) / 2
    assert filled.dtype is getattr(torch, kind) and int(filled.max()) - int(filled.min()) > spread


def test_zero_points_and_masks_are_others_here_and_there() -> None:
    """Few, and small: they are not the weights themselves. Larger ones than a constant may be places."""
    points = new("x - self.q", "torch.zeros(32, dtype=torch.int8)")
    assert {0, 1} == set(points.tolist())
    flags = new("x * self.q", "torch.ones(8, 32, dtype=torch.bool)")
    assert bool(flags.any(-1).all()) and not bool(flags.all())
    assert {1, 2, 3, 4} >= set(new("x * self.q", "torch.full((8, 32), 4)").flatten().tolist())


@pytest.mark.parametrize(
    ("formula", "init", "kept"),
    [
        ("x * self.q", "torch.full((), -1)", True),
        ("x * self.q", "torch.arange(32)", True),
        ("torch.stack(x.split(self.q.tolist(), -1))", "torch.full((4,), 8)", True),
        ("torch.eye(2)[self.q.long()].sum(-1) * x", "torch.zeros(8, 32, dtype=torch.int8)", False),
    ],
)
def test_a_single_number_and_structure_stay_and_so_does_what_the_reference_takes_no_other_of(
    formula: str, init: str, kept: bool
) -> None:
    """An index takes ones, where it has no row for other codes."""
    before = eval(init, {"torch": torch})
    filled = new(formula, init)
    assert torch.equal(filled, before) is kept and (kept or {0, 1} == set(filled.flatten().tolist()))


@pytest.mark.parametrize(
    ("formula", "init", "most"),
    [
        ("x + self.q % 32", "torch.zeros((), dtype=torch.int64)", 65_535),
        ("x + self.q", "torch.zeros(1, dtype=torch.int32)", 65_535),
        ("x + torch.zeros(100)[self.q]", "torch.zeros((), dtype=torch.int64)", 63),
        ("x + torch.zeros(3)[self.q]", "torch.zeros((), dtype=torch.int64)", 0),
        ("x + self.q", "torch.ones((), dtype=torch.int64)", 1),
    ],
)
def test_a_counter_that_begins_with_zero_is_further_on(formula: str, init: str, most: int) -> None:
    """As far as the reference takes; half of the time short of a power of two. A one is no count of what was."""
    made = instance(formula, X, init=f"self.register_buffer('q', {init})")
    found = {int(dict(made.draw_state(seed))["q"]) for seed in range(200)}
    assert min(found) >= 0 and most / 2 <= max(found) <= most
    assert most < 63 or sum((n + 1) & n == 0 or (n + 2) & (n + 1) == 0 for n in found) >= 5


def test_a_reference_is_asked_once() -> None:
    """For its own answer, and for others."""
    asked: list[object] = []
    numbers, zeros = codes.Numbers(), torch.zeros(4, 4, dtype=torch.int8)
    first = [("q", zeros)]
    made = [numbers.settled(first, dict(first), seed, lambda state: asked.append(state)) for seed in (1, 2)]
    assert 2 == len(asked) and not torch.equal(made[0]["q"], made[1]["q"]) and not bool(zeros.any())
    assert torch.equal(made[0]["q"], numbers.settled(first, made[0], 3, asked.append)["q"]), "drawn before"
