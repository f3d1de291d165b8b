# SPDX-License-Identifier: Apache-2.0
"""Weights laid out as channels_last does, which a model of images is told as a whole: a proof says so where a program
answers otherwise then, or not at all. Kernels that take a convolution's weights as they lay are common, and right for
whoever does not tell their model.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kernelwright.judge import race
from kernelwright.judge.checks import TWINS
from kernelwright.judge.leash import ChildFailure

if TYPE_CHECKING:
    from kernelwright.judge.checks import Checks
    from kernelwright.judge.weights import State


def otherwise(checks: Checks) -> list[str]:
    """What a proof says of it, if anything. Asked in a process of its own, for who takes weights as they lay may read
    anywhere; of one case that is not dear, where some weight has four axes that can be laid out otherwise."""
    point, contract = min(checks.points, key=lambda one: one.instance.work), checks.bench.contract
    if not any_laid_out(point.instance.first_state) or point.dear or contract.random or checks.spares(TWINS):
        return []
    leaves = point.instance.draw(point.as_given, random.Random(checks.seed ^ 0x4).getrandbits(62))
    try:
        with checks._loaded(point) as other:
            other.stage = "verify"
            buffers = point.bind(other, point.as_given, 1)
            other.leash.ask({"do": "relaid"}, other.stage)
            race.fill(buffers, 0, leaves)
            other.window([0], grad=contract.gradients)
            result = point.checker.check(point.as_given, leaves, None, buffers.answers(0), list(buffers.inputs[0]))
            said = "" if result.passed else result.detail
    except ChildFailure as failure:
        said = failure.reason
    return [f"with weights in torch.channels_last it answers otherwise ({said:.160})"] if said else []


def any_laid_out(state: State) -> bool:
    """Whether channels_last is another layout of some weight."""
    return any(value.dim() == 4 and value.shape[1] > 1 and value[0, 0].numel() > 1 for _, value in state)
