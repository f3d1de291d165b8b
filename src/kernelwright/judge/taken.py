# SPDX-License-Identifier: Apache-2.0
"""Draws of a variant that the reference takes: a lot decides in each of them what is changed, and one that it takes
says little of the next. A row that is all zero, or negative, is none that torch.multinomial draws from."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kernelwright.judge import refusals
from kernelwright.judge.inputs import Variant
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.weights import State

if TYPE_CHECKING:
    import torch

    from kernelwright.judge.bench import Point

IN_A_WINDOW = 8
"""Calls of one variant that are made at once, at the most."""
ANSWERED = 2 * IN_A_WINDOW
"""Calls of which the reference's answer is kept until they are made: a window's, and those that wait for the next."""
MOST = 600
"""Characters of a reason that are kept, as everywhere."""
OTHERS = 32
"""Draws in turn whose answers have another shape than the first: by then it is what is usual here."""


def of_calls(
    point: Point,
    variant: Variant,
    seeds: Sequence[int],
    wanted: Iterable[int],
    first: list[torch.Tensor],
    state: State | None,
) -> dict[int, list[torch.Tensor]]:
    """Inputs of ``wanted`` calls, each drawn with its seed. Call 0 has the ``first``, which the reference takes; so has
    each whose own it does not. On a dear case that is not asked: its changes by lot come to one draw."""

    def of_one(call: int) -> list[torch.Tensor]:
        made = point.instance.draw(variant, seeds[call], state) if call else first
        return made if made is first or point.dear or point.checker.accepts(variant, made, state) else first

    return {call: of_one(call) for call in wanted}


@contextlib.contextmanager
def named(point: Point, asked: Sequence[Variant]) -> Iterator[None]:
    """A program that fails in a call of these variants is told which one that was, or one of which: of an error about
    steps in memory nobody sees by itself that inputs were laid out otherwise."""
    try:
        yield
    except ChildFailure as failure:
        names = list(dict.fromkeys(variant.name for variant in asked))
        place = f" (in {point.case.name}: {'one of ' * (len(names) > 1)}{', '.join(names)})"
        raise ChildFailure(failure.stage, failure.reason[: MOST - len(place)] + place, failure.detail) from failure


def or_as_given(
    point: Point, variant: Variant, made: list[torch.Tensor], given: list[torch.Tensor]
) -> list[torch.Tensor]:
    """A changed call of a race, or where the reference does not take that, the call as it was drawn. On a dear case
    that is not asked, where all changes come to one draw."""
    return made if (point.dear and variant.change == "strewn") or point.checker.accepts(variant, made, None) else given


def of_one_shape(point: Point, draws: Iterable[list[torch.Tensor]]) -> Iterator[list[torch.Tensor]]:
    """Draws of a race, but for those on which the reference's answer has another shape than on the first inputs: of 400
    numbers below 30 one is missing in a draw of 25,000, and each sixth honest program met such a draw and was refused.
    Asked where operators are there that make shapes out of values; not on a dear case. Raises TaskError where
    OTHERS draws in turn are such."""
    instance, others = point.instance, 0
    for leaves in draws:
        if point.dear or not instance.sized or instance.accepted(leaves) is not None:
            others = 0
            yield leaves
        elif (others := others + 1) > OTHERS:
            got = f"answers of another shape than the first, or none, in {others} draws in turn"
            raise refusals.of_values(instance.reference.task.name, got)


def in_windows(draws: int, dice: random.Random) -> Iterator[range]:
    """Calls of a variant by the windows they come in: the first alone, then up to IN_A_WINDOW at once.

    A window costs 15 ms on two cores whatever is in it, which was more than half of what a proof's smaller cases took
    (24 draws of one variant in each of seven cases); and a program cannot take a window of several calls for a timed
    one.
    """
    start, size = 0, 1
    while start < draws:
        yield range(start, min(start + size, draws))
        start, size = start + size, dice.randint(2, IN_A_WINDOW)


def layouts(point: Point) -> list[Variant]:
    """The task's own values in every other layout that the reference takes."""
    return [v for v in point.offered if v.layout != "contiguous" and not v.apart and point.usable(v)]
