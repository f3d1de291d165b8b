# SPDX-License-Identifier: Apache-2.0
"""Inputs each of which lies on one side of zero, not all on the same, and inputs above zero beside weights below.

A row that is filled up with zeros has a largest number of zero at the least, which shows where all of the row is below.
Products of inputs that are moved together are above zero, and where the signs of one are by lot a row has both: a
largest product of a row with a vector, or with weights, was right in all draws of sizes that no tile divides, and so
was a softmax of them. What is below zero is smaller than what is above, or the other way, so that sums of them do not
cancel: of equal sizes a Dice loss whose inputs were summed one by one was refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.judge import numerics, whole
from kernelwright.judge.dealing import below

SIDES, ABOVE = "inputs on either side of zero", "inputs above zero beside weights below"


SMALLER = 1 / 8
"""By so much all inputs of one of the sides, by lot."""


def sides(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Each input of finite floats has signs that are all one; which, a lot says, and two differ, in size too."""
    out = list(leaves)
    places = [index for index, leaf in enumerate(leaves) if _signed(leaf)]
    if len(places) < 2:
        return out
    negative = 1 + below(2 ** len(places) - 2, rng)  # neither none nor all
    factors = [1.0, SMALLER] if below(2, rng) else [SMALLER, 1.0]
    for number, index in enumerate(places):
        is_below = negative >> number & 1
        out[index] = out[index].abs() * (-factors[1] if is_below else factors[0])
    return out


def above(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """All inputs of finite floats above zero."""
    return [leaf.abs() if _signed(leaf) else leaf for leaf in leaves]


def _signed(leaf: torch.Tensor) -> bool:
    """Whether it holds numbers, and is no mask that is added."""
    return leaf.is_floating_point() and leaf.dim() > 0 and numerics.finite(leaf) and not whole.is_mask(leaf)


CHANGES = {SIDES: sides, ABOVE: above}
