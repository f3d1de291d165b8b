# SPDX-License-Identifier: Apache-2.0
"""A call under another stream than the default one: a proof says so where a program answers otherwise there.

Kernels that are launched on the default stream whatever stream is current are common in raw CUDA, and right for whoever
uses no other. Under ``torch.cuda.stream`` and in the capture of a CUDA graph they read what is not written yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.judge import race
from kernelwright.judge.leash import ChildFailure

if TYPE_CHECKING:
    from kernelwright.judge.checks import Checks
    from kernelwright.judge.program import Program

WORDS = "under another CUDA stream than the default one it answers otherwise"


def answers_otherwise(checks: Checks, program: Program) -> list[str]:
    """What a proof says of it, if anything. Asked once a program has nothing left to do, for one call whose truth is
    known, with its inputs shown by that stream alone; not of random results."""
    point, contract = checks.points[0], checks.bench.contract
    if checks.bench.device.type == "cpu" or contract.random or checks.first is None or program.buffers is None:
        return []
    leaves, truth = checks.first
    state = point.instance.first_state
    try:
        if state:
            program.set_state(state)
        program.leash.ask({"do": "stream"}, program.stage)
        race.fill(program.buffers, 0, leaves)
        program.checked([0], grad=contract.gradients, hidden=True)
        point.checker.recall(truth)
        answer = program.buffers.answers(0), list(program.buffers.inputs[0])
        result = point.checker.check(point.as_given, leaves, state, *answer)
        said = "" if result.passed else result.detail
    except ChildFailure as failure:
        said = failure.reason
    return [f"{WORDS} ({said:.160})"] if said else []
