# SPDX-License-Identifier: Apache-2.0
"""One program asked for several sizes in turn, as a model is that meets sentences of any length.

Every case has a process of its own, in which all calls have one size: who made a mask, a divisor or a buffer for the
first call, and kept it for all others, was right in each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import agreement, calls, health, inputs, skeletons
from kernelwright.judge.variants import LIGHT

if TYPE_CHECKING:
    from kernelwright.judge.bench import Point
    from kernelwright.judge.instance import Instance
    from kernelwright.task import Case


def in_turn(own: Point, others: Sequence[Point], seed: int) -> Iterator[tuple[Point, list[torch.Tensor]]]:
    """Calls of other cases, and one of its own after them, that a program made for ``own`` must answer, since the
    reference made for that does: until each axis had another size, the furthest in work first."""
    covered = set[str]()
    for point in sorted(others, key=lambda one: -abs(one.instance.work - own.instance.work)):
        new = _differing(own.case, point.case) - covered
        if not new or point.instance.work > LIGHT or point.dear or not one_module(own.instance, point.instance):
            continue
        leaves = point.instance.draw(point.as_given, seed + len(covered))
        if answers(own.instance, point.instance, leaves, seed):
            yield point, leaves
            covered |= new
    if covered and not own.dear:
        yield own, own.instance.draw(own.as_given, seed + len(covered))


def _differing(own: Case, other: Case) -> set[str]:
    """The axes of another size; of cases that are told apart by their names alone, one without a name."""
    mine, theirs = dict(own.axes), dict(other.axes)
    return {axis for axis in mine | theirs if mine.get(axis) != theirs.get(axis)} or {""}


def one_module(own: Instance, other: Instance) -> bool:
    """Whether one construction serves both: equal arguments, weights of equal shapes, and the same mode."""
    first, second = (skeletons.of_constructor([one.init_args, one.init_kwargs]) for one in (own, other))
    return (
        (first[0], own.training, own.autocast) == (second[0], other.training, other.autocast)
        and all(map(agreement.same, first[1], second[1]))
        and own.specs != other.specs
        and all(0 not in spec.shape for spec in other.specs)
        and agreement.alike(own.first_state, other.first_state)
    )


def answers(own: Instance, other: Instance, leaves: list[torch.Tensor], seed: int) -> bool:
    """Whether the reference made for ``own`` answers a call of ``other`` as that one does, under one seed."""
    with inputs.seeded(seed):
        theirs = other.eager(leaves, None)
    try:
        own.giver.give(own.model, other.first_state)
        with inputs.seeded(seed):
            return not agreement.differ(theirs, other.run(own.model, leaves))
    except calls.CAUGHT as error:
        health.pass_on(error)
        return False
