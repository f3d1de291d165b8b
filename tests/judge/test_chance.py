# SPDX-License-Identifier: Apache-2.0
"""One number that decides all of a result is seen over many calls on equal inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from kernelwright.judge import chance

Law = Callable[[torch.Tensor], torch.Tensor]


def turned(share: float) -> Law:
    """Turned, or not, by lot."""
    return lambda x: x.flip(-1) if torch.rand(()) < share else x * 1.0000001


def cropped(places: int) -> Law:
    """A part of a row of 64, at one of so many places."""
    return lambda x: (lambda at: x[:, at : at + 32])(int(torch.randint(places, ())))


def sampled(temperature: float) -> Law:
    """Tokens of 8 rows, sixteen each."""
    return lambda x: torch.multinomial(torch.softmax(x / temperature, -1), 16, replacement=True)


def named(places: int) -> Law:
    """One whole number for all elements."""
    return lambda x: torch.randint(places, (1,)).expand(64)


def in_turn(count: int) -> Law:
    """So many results that were made ahead."""
    made, calls = [torch.rand(8, 64) for _ in range(count)], itertools.count()
    return lambda x: made[next(calls) % count]


@pytest.mark.parametrize(
    ("mine", "theirs", "right"),
    [
        (turned(0.5), turned(0.5), True),
        (turned(0.0), turned(0.5), False),
        (turned(0.02), turned(0.5), False),
        (turned(0.0), turned(0.02), True),
        (cropped(25), cropped(25), True),
        (cropped(4), cropped(4), True),
        (cropped(1), cropped(25), False),
        (cropped(1), cropped(4), False),
        (torch.rand_like, torch.rand_like, True),
        (torch.clone, torch.rand_like, False),
        (torch.clone, torch.clone, True),
        (sampled(0.7), sampled(0.7), True),
        (sampled(1.0), sampled(0.7), False),
        (sampled(0.5), sampled(0.7), False),
        (named(25), named(25), True),
        (lambda x: torch.randperm(64), lambda x: torch.randperm(64), True),
        (in_turn(12), torch.rand_like, False),
        (in_turn(15), torch.rand_like, False),
        (named(400), named(400), True),
        (named(81), named(81), True),
        (lambda x: torch.randint(1 << 30, (8, 64)), lambda x: torch.randint(1 << 30, (8, 64)), True),
        (lambda x: (torch.rand(8, 64) * 2**30).long(), lambda x: torch.randint(1 << 30, (8, 64)), False),
        (lambda x: torch.randint(1 << 24, (8, 64)) << 6, lambda x: torch.randint(1 << 30, (1,)).expand(8, 64), False),
    ],
)
def test_results_come_as_often_as_those_of_the_reference(mine: Law, theirs: Law, right: bool) -> None:
    """Five times each; what is rounded otherwise is the same."""
    torch.manual_seed(3)
    for _ in range(5):
        x = torch.randn(8, 64)
        runs = [theirs(x) for _ in range(chance.RUNS * chance.CALLS)]
        said = chance.otherwise([mine(x) for _ in range(chance.CALLS)], runs)
        assert bool(said) is not right, said


def test_calls_are_as_many_as_time_and_memory_allow() -> None:
    """One at the least."""
    assert (chance.calls(10.0, 99), chance.calls(10.0, 7), chance.calls(1e5, 99), chance.calls(1e9, 0)) == (
        48,
        7,
        5,
        1,
    )
