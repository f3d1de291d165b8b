# SPDX-License-Identifier: Apache-2.0
"""Inputs that a contract names come only as the task draws them, and the proof says so."""

from __future__ import annotations

import plain_tasks
import pytest
import torch
from plain_tasks import instance

from kernelwright.errors import TaskError
from kernelwright.judge import as_drawn, constants, own_draws
from kernelwright.judge.recombined import Recombiner
from kernelwright.judge.reference import Reference
from kernelwright.judge.stock import Stock
from kernelwright.task import Contract
from kernelwright.trial import Rejected

PAIR = "[torch.randn(64, 4), F.normalize(torch.randn(64, 4), dim=-1)]"
OWN = Contract(as_drawn=(1,))


def of_norm_one(leaf: torch.Tensor) -> bool:
    """Whether all rows are."""
    return bool(((leaf.norm(dim=-1) - 1).abs() < 1e-4).all())


@pytest.mark.parametrize("contract", [OWN, Contract()])
def test_no_draw_changes_them(contract: Contract) -> None:
    """Whatever the variant; the other input is changed, and without a word in the contract this one is."""
    made = instance("x * y.square().sum(-1, keepdim=True)", PAIR, args="x, y", contract=contract)
    drawn = [made.draw(variant, seed) for seed, variant in enumerate(made.variants(3))]
    assert all(of_norm_one(y) for _, y in drawn) is (contract is OWN)
    assert {float(x.abs().max()) > 100 for x, _ in drawn} == {False, True}
    said = [note for note in made.notes if as_drawn.WORDS in note]
    assert said == (["input 1 comes only as " + as_drawn.WORDS.partition(" as ")[2]] if contract is OWN else [])


def test_draws_made_of_others_and_constants_keep_them() -> None:
    """Where a real draw is dear, and where it is the same in every one, infinities too."""
    made = instance("x * y.square().sum(-1, keepdim=True)", PAIR, args="x, y", contract=OWN)
    stock = Stock(made, made.variants(3)[0], 5, Recombiner(made.device))
    mixed = [stock.made(torch.Generator().manual_seed(seed)) for seed in range(4)]
    assert all(of_norm_one(y) for _, y in mixed)
    assert not any(torch.equal(x, own) for x, _ in mixed for own, _ in stock.drawn)
    same = "[torch.randn(64, 4), torch.full((64, 4), 0.5)]"
    made = instance("x * y.sum(-1, keepdim=True)", same, args="x, y", contract=OWN)
    assert all(bool((made.draw(v, 5)[1] == 0.5).all()) for v in made.variants(3))
    assert bool((constants.renewed(made, made._raw(2)[0], 3)[1] == 0.5).all())
    other = instance("x * y.sum(-1, keepdim=True)", same, args="x, y")
    assert not all(bool((other.draw(v, 5)[1] == 0.5).all()) for v in other.variants(3))


def test_a_place_where_there_is_no_input_is_named() -> None:
    """As for what is written to."""
    made = plain_tasks.task("x * 2", "[torch.randn(4)]", contract=OWN)
    with pytest.raises(TaskError, match="as_drawn"):
        Reference(made, "cpu").instance(made.timed_case())


def test_a_refusal_says_what_would_promise_it() -> None:
    """Where a task's own draws have something in common."""
    made = instance("x * y.sum()", PAIR, args="x, y")
    words = "main: scale 0.001: output 0 at (0,): RMS error is 9 times the honest error (3.2 bits lost, 1 allowed)"
    assert "contract.as_drawn" in own_draws.said(made, Rejected(stage="verify", reason=words, detail="")).reason
