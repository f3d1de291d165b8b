# SPDX-License-Identifier: Apache-2.0
"""Floats that differ by classes which the reference makes of other floats."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import derived
from kernelwright.judge.derived import FAR_BY, SIZED_BY
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance
from kernelwright.task import Contract

EXPERTS = "x - x[l.argmax(1)]"
ROWS = "[torch.randn(64, 8), torch.randn(64, 4)]"
SPLIT = "((f[:, None] <= t[None]) * y[:, None]).sum(0)"
SIDES = "[torch.randn(64), torch.rand(64), torch.rand(16)]"


def of_its_own(made: Instance) -> set[str]:
    """The changes of this kind that a case has."""
    return {v.change for v in made.offered(1) if v.change in derived.CHANGES and made.usable(v, 5)}


def test_rows_of_an_expert_lie_apart_from_those_of_others_and_the_logits_stay() -> None:
    """All rows of one as far; some up, some down; or some of them smaller."""
    made = instance(EXPERTS, ROWS, args="x, l")
    assert of_its_own(made) == {FAR_BY, SIZED_BY}
    plain = Variant(name="", required=True)
    for seed in range(8):
        x, logits = made.draw(plain, seed)
        kinds = logits.argmax(1)
        far, same = made.draw(Variant(name="", required=True, change=FAR_BY), seed)
        assert torch.equal(logits, same)
        by = torch.stack([(far - x)[kinds == kind].mean() for kind in range(4)])
        assert bool((by.abs() > 10).all()) and by.min() < 0 < by.max()
        assert all(float((far - x)[kinds == kind].std()) < 1e-2 for kind in range(4))
        small, same = made.draw(Variant(name="", required=True, change=SIZED_BY), seed)
        assert torch.equal(logits, same) and not torch.equal(small, x)
        assert all(float((small / x)[kinds == kind].std()) < 1e-5 for kind in range(4))


def test_sides_of_a_split_lie_apart_and_thresholds_are_one_where_there_are_many() -> None:
    """What is small by one of 16 thresholds is large by all the others."""
    made = instance(SPLIT, SIDES, args="y, f, t")
    assert of_its_own(made) == {FAR_BY, SIZED_BY}
    alike = 0
    for seed in range(12):
        y, f, t = made.draw(Variant(name="", required=True, change=FAR_BY), seed)
        alike += int(len(t.unique()) == 1)
        apart = [
            bool((y[f <= one] > 10).all() and (y[f > one] < -10).all())
            or bool((y[f <= one] < -10).all() and (y[f > one] > 10).all())
            for one in t
        ]
        assert any(apart) and (all(apart) or len(t.unique()) > 1)
    assert 4 <= alike < 12


@pytest.mark.parametrize(
    ("formula", "inputs"),
    [
        ("x * (x > 0) + l", "[torch.randn(64, 8), torch.randn(64, 8)]"),
        ("x[torch.arange(64) % 4 > 1] @ l.T", ROWS.replace("64, 4", "64, 8")),
        ("(x @ l).argmax(1)", "[torch.randn(16, 8), torch.randn(8, 4)]"),
        ("x + l", "[torch.randn(64, 8), torch.randn(64, 8)]"),
    ],
)
def test_what_decides_itself_is_not_moved_nor_by_what_no_input_decides(formula: str, inputs: str) -> None:
    """A mask of its own sign may move another input alone; places decide nothing."""
    made = instance(formula, inputs, args="x, l")
    moved = {index for pair in derived.of(made) for index in pair.fit}
    assert moved <= {1}
    if "x > 0" not in formula:
        assert not of_its_own(made)


@pytest.mark.parametrize("formula", ["x - x[(l * 4).long()[:, 0] % 4]", "x * l.sign()[:, :1]", "x * (l[:, :1] > 0.2)"])
def test_classes_are_floors_signs_and_comparisons_too(formula: str) -> None:
    """Of floats: an operator that rounds them, or makes flags or places of them."""
    made = instance(formula, "[torch.randn(64, 8), torch.rand(64, 4) - 0.5]", args="x, l")
    assert {index for pair in derived.of(made) for index in pair.fit} == {0}


def test_random_references_and_dear_ones_are_not_asked() -> None:
    """A search costs a call for each input."""
    made = instance(EXPERTS, ROWS, args="x, l", contract=Contract(random=True))
    assert derived.of(made) == ()
    dear = instance(EXPERTS, ROWS, args="x, l")
    dear.work = 10**9
    assert derived.of(dear) == ()
