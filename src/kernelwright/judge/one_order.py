# SPDX-License-Identifier: Apache-2.0
"""Which of equal numbers comes first is nobody's promise, but one sort has one order: all that follows from it, outputs
and gradients, has to follow that one.

Each result is compared by itself, and right where it is as in some order. So who sorted a key once for its places and
once more, the other way round, for what stands there gave back pairs that nobody had given in, a router weights of
other experts than it named, and a backward pass the gradient to another row than the forward pass had taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import calls, health, ties
from kernelwright.judge.choices import BESIDE
from kernelwright.judge.numerics import Comparison
from kernelwright.judge.oracle import Float64Trace

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.verify import Truth

TORN = "follows another order of equal numbers than the other results do"


def held(
    instance: Instance, truth: Truth, answers: Sequence[torch.Tensor], found: list[Comparison], limit: float
) -> list[Comparison]:
    """What was ``found`` at each result of a call; wrong where each is as in an order of the only sort there is, and
    all of them in none. Of other orders than the usual ones nothing is said."""
    if len(answers) < 2 or not instance.sorts or instance.without_double:
        return found
    if any(one.bits_lost > limit for one in found):
        return found
    odd = [at for at, answer in enumerate(answers) if not _as_in(truth, at, answer, truth.exact[at], limit)]
    if not odd:
        return found
    try:
        runs = [truth.exact, *_orders(instance, truth, answers)]
    except calls.CAUGHT as error:
        health.pass_on(error)
        return found
    fits = [[_as_in(truth, at, answer, run[at], limit) for at, answer in enumerate(answers)] for run in runs]
    if len(runs) == 1 or any(map(all, fits)) or not all(any(row[at] for row in fits) for at in range(len(answers))):
        return found
    torn = replace(found[odd[0]], error_ratio=math.inf, bits_lost=math.inf, detail=TORN)
    return [torn if at == odd[0] else one for at, one in enumerate(found)]


def _orders(instance: Instance, truth: Truth, answers: Sequence[torch.Tensor]) -> Iterator[Sequence[torch.Tensor]]:
    """Results in orders of equal numbers: the first of them first, the last, by what they were before, and as an answer
    that says the places has them. None where a call sorts several times: each may have an order of its own."""
    told: dict[int, torch.Tensor] = {}
    last = ties.Ordered(True)
    for order in (ties.Ordered(False), last, ties.Ordered(False, before=True)):
        with order:
            run = instance.doubled(truth.leaves, truth.state, Float64Trace())
        if len(order.chosen) != 1:
            return
        yield run
        for at, answer in enumerate(answers) if order is last else ():
            if run[at].data_ptr() == order.chosen[0].data_ptr() and run[at].numel() == answer.numel():
                told[0] = answer.reshape(order.chosen[0].shape)
    if told:
        with ties.Ordered(True, told):
            yield instance.doubled(truth.leaves, truth.state, Float64Trace())


def _as_in(truth: Truth, at: int, answer: torch.Tensor, run: torch.Tensor, limit: float) -> bool:
    """Whether an answer is that of a run: whole numbers all of it, floats where it differs from the usual one."""
    exact, yardstick = truth.exact[at], truth.yardsticks[at]
    if answer.shape != run.shape:
        return False
    if yardstick is None or not answer.is_floating_point():
        return torch.equal(answer, run.to(answer.dtype))
    if run is exact:
        return yardstick.compare(answer, limit).bits_lost <= limit
    near = (answer.to(torch.float64) - run).abs() <= BESIDE * yardstick.peak
    put = torch.where(near & (run != exact), exact.to(answer.dtype), answer)
    other = bool(((run != exact) & ~near).any())
    return not other and yardstick.compare(put, limit).bits_lost <= limit
