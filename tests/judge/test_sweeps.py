# SPDX-License-Identifier: Apache-2.0
"""Operators of many steps: honest programs take them one after the other, and round each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import rounding
from kernelwright.judge.inputs import generator
from kernelwright.judge.verify import Checker

Program = Callable[[torch.Tensor], torch.Tensor]
LONG = "[torch.randn(64, 200)]"
SYMMETRIC = "[(lambda a: (a + a.mT) / 2)(torch.randn(4, {0}, {0}))]"
NAMES = ("as given", "negated", "sparser", "scale 0.001", "far below zero", "shifted", "far from zero", "rearranged")


def worst(forward: str, inputs: str, other: Program) -> float:
    """The largest error of a program over the honest one, in some variants."""
    made, found = instance(forward, inputs), [0.0]
    checker = Checker(made, seed=3)
    for variant in made.offered(1):
        for draw in range(3 if variant.name in NAMES and made.usable(variant, 1) else 0):
            leaves = made.draw(variant, draw + 20)
            found.append(checker.check(variant, leaves, None, [other(*leaves)]).error_ratio)
    return max(found)


def one_by_one(x: torch.Tensor) -> torch.Tensor:
    """A running sum of exponentials, in logarithms."""
    sums = [x[..., 0]]
    for place in range(1, x.shape[-1]):
        sums.append(torch.logaddexp(sums[-1], x[..., place]))
    return torch.stack(sums, -1)


def beside_the_largest(x: torch.Tensor) -> torch.Tensor:
    """The same, as the largest so far and a sum of what is left of it."""
    top, total = x[..., 0], torch.ones_like(x[..., 0])
    sums = [top]
    for place in range(1, x.shape[-1]):
        new = torch.maximum(top, x[..., place])
        total, top = total * (top - new).exp() + (x[..., place] - new).exp(), new
        sums.append(top + total.log())
    return torch.stack(sums, -1)


@pytest.mark.parametrize(
    ("forward", "inputs", "program"),
    [
        ("torch.logcumsumexp(x, -1)", LONG, one_by_one),
        ("torch.logcumsumexp(x, -1)", LONG, beside_the_largest),
        *(("torch.linalg.eigvalsh(x, UPLO='U')", SYMMETRIC.format(n), torch.linalg.eigvalsh) for n in (8, 24)),
    ],
)
def test_each_step_is_rounded(forward: str, inputs: str, program: Program) -> None:
    """Running sums of 200 elements were refused at 6 times, and eigenvalues of the other triangle at 3.6 times the
    honest error: of one rounding of each result."""
    assert worst(forward, inputs, program) <= 2.0


@pytest.mark.parametrize(
    ("forward", "inputs", "program"),
    [
        ("torch.logcumsumexp(x, -1)", LONG, lambda x: one_by_one(x.half().float())),
        ("torch.logcumsumexp(x, -1)", LONG, lambda x: one_by_one(x.bfloat16()).float()),
        ("torch.logcumsumexp(x, -1)", LONG, lambda x: x.exp().cumsum(-1).log()),
        ("torch.linalg.eigvalsh(x)", SYMMETRIC.format(64), lambda x: torch.linalg.eigvalsh(x.half().float())),
        ("torch.linalg.svdvals(x)", SYMMETRIC.format(64), lambda x: torch.linalg.eigvalsh(x.mT @ x).sqrt().flip(-1)),
    ],
)
def test_fewer_bits_and_worse_formulas_are_not(forward: str, inputs: str, program: Program) -> None:
    """Halves, sums without a maximum, and the square of a matrix."""
    assert not worst(forward, inputs, program) <= 2.0


def test_a_product_may_be_one_running_product() -> None:
    """Factors near one all round the same way: a cumulative product of 192 of them was refused in each judgement."""

    def running(x: torch.Tensor) -> torch.Tensor:
        factors = 1 + 0.01 * x
        made = [factors[..., 0]]
        for place in range(1, x.shape[-1]):
            made.append(made[-1] * factors[..., place])
        return torch.stack(made, -1)

    assert worst("(1 + 0.01 * x).cumprod(-1)", LONG, running) < 2.0
    halved = worst("(1 + 0.01 * x).cumprod(-1)", LONG, lambda x: (1 + 0.01 * x).half().float().cumprod(-1))
    assert halved > 100.0


@pytest.mark.parametrize("made", [lambda x: x.prod(), lambda x: x.prod(-1), lambda x: x.cumprod(-1)])
def test_factors_that_are_powers_of_two_round_nothing(made: Program) -> None:
    values = torch.full((3, 8), 0.5, dtype=torch.float64)
    with rounding.Rounded(2.0**-24, generator(3, "cpu")):
        drawn = made(values)
    assert float((drawn / made(values) - 1).abs().max()) <= 2.0**-22
