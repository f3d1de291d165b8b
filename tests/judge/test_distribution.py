# SPDX-License-Identifier: Apache-2.0
"""Random outputs compared as distributions."""

from __future__ import annotations

import torch
from plain_tasks import instance

from kernelwright.judge.inputs import Variant, seeded
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract

RANDOM = Contract(random=True, training=True)
GIVEN = Variant(name="as given", required=True)


def dropout() -> Checker:
    """A checker of dropout with rate 0.3."""
    return Checker(instance("F.dropout(x, 0.3)", "[torch.randn(32, 64)]", contract=RANDOM), seed=1)


def test_an_atom_rounded_another_way_passes() -> None:
    """Dropout as x * mask / 0.7 differs from x * (1 / 0.7) by one ulp where an element is kept."""
    checker = dropout()
    leaves = checker.instance.draw(GIVEN, 1)
    for number in range(10):
        with seeded(2000 + number):
            got = [leaves[0] * torch.empty_like(leaves[0]).bernoulli_(0.7) / 0.7]
        assert "" == checker.check(GIVEN, leaves, None, got, leaves).detail


def test_other_random_numbers_of_the_same_law_pass() -> None:
    """Twenty calls, each with its own seed."""
    checker = dropout()
    for number in range(20):
        leaves = checker.instance.draw(GIVEN, number)
        with seeded(1000 + number):
            got = checker.instance.eager(leaves, None)
        assert "" == checker.check(GIVEN, leaves, None, got, leaves).detail


def test_another_rate_or_no_dropout_at_all_is_refused() -> None:
    """The law is compared, not only the range."""
    checker = dropout()
    leaves = checker.instance.draw(GIVEN, 0)
    for got in (leaves[0].clone(), torch.nn.functional.dropout(leaves[0], 0.5), torch.zeros(32, 64)):
        assert not checker.check(GIVEN, leaves, None, [got], leaves).passed


def test_the_same_mask_in_every_call_is_refused() -> None:
    """A program that draws once and keeps the mask is not random."""
    checker = dropout()
    details = []
    for number in range(2):
        leaves = checker.instance.draw(GIVEN, number)
        with seeded(5):
            got = checker.instance.eager(leaves, None)
        details.append(checker.check(GIVEN, leaves, None, got, leaves).detail)
    assert ["", "output 0: the same random numbers as in an earlier call"] == details
