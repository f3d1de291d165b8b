# SPDX-License-Identifier: Apache-2.0
"""judge/taken.py: of a reference whose shapes follow from values, calls that answer in another shape are nobody's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from plain_tasks import instance

from kernelwright.errors import TaskError
from kernelwright.judge import gradients
from kernelwright.judge.bench import Point
from kernelwright.judge.inputs import Variant
from kernelwright.judge.taken import OTHERS, of_one_shape
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract

KEYS = 8
GROUPS = "(lambda found: (found[0], torch.bincount(found[1])))(torch.unique(x, return_inverse=True))"
FULL = torch.arange(64) % KEYS
"""All keys are there."""
SHORT = FULL.clamp(max=KEYS - 2)


def grouped() -> Point:
    """Counts of numbers below eight, all of which are there in the first draw."""
    made = instance(GROUPS, f"[torch.arange(64) % {KEYS}]")
    return Point(made.case, made, Checker(made, seed=1), 5, {})


def test_a_draw_whose_answer_has_another_shape_is_left_out_of_a_race() -> None:
    """One key of 400 numbers below 30 is missing in one draw of 25,000, and a proof has 3,000."""
    given = [[FULL.clone()], [SHORT.clone()], [FULL.clone()], [SHORT.clone()]]
    assert [id(leaves) for leaves in of_one_shape(grouped(), given)] == [id(given[0]), id(given[2])]


def test_draws_that_all_answer_in_another_shape_are_the_task_s_fault() -> None:
    """And end."""
    short = ([SHORT.clone()] for _ in itertools.count())
    with pytest.raises(TaskError, match="depends on the values"):
        next(of_one_shape(grouped(), itertools.islice(short, OTHERS + 5)))
    few = ([SHORT.clone() if number % (OTHERS + 1) else FULL.clone()] for number in range(3 * OTHERS))
    assert len(list(of_one_shape(grouped(), few))) == 3


def test_nobody_asks_a_reference_whose_shapes_are_those_of_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call for each draw is as dear as the race."""
    made = instance("torch.relu(x)", "[torch.rand(8, 16)]")
    point = Point(made.case, made, Checker(made, seed=1), 5, {})
    monkeypatch.setattr(type(made), "accepted", lambda *_: pytest.fail("the reference was asked"))
    given = [[torch.rand(8, 16)]]
    assert list(of_one_shape(point, given)) == given


def test_a_mode_is_looked_at_with_values_that_answer_in_the_usual_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under no_grad and in the other mode all changes of value come in one draw, of which few keys may be left."""
    point = grouped()
    mixed = Variant(name="mixed", required=True)
    monkeypatch.setattr(gradients.variants, "mixed_of", lambda _: [mixed])
    point.known["mixed"] = True
    monkeypatch.setattr(type(point.instance), "draw", lambda self, variant, seed: [SHORT if variant is mixed else FULL])
    bench: Any = type("Bench", (), {"contract": Contract()})
    checks: Any = type("Checks", (), {"bench": bench})
    program: Any = type("Program", (), {"set_state": lambda self, state: None})()
    variant, leaves, _ = gradients.Gradients._elsewhere(checks, program, point, 3)
    assert variant is point.as_given and leaves[0] is FULL
