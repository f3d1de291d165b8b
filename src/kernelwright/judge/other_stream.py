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
CALLS = 4
"""Each shows its inputs a little after the host has usually launched the call; of one alone, beside eight other judges
on a host of 16 CPUs, the host was later once, and nothing was seen."""


def answers_otherwise(checks: Checks, program: Program) -> list[str]:
    """What a proof says of it, if anything. Asked once a program has nothing left to do, of CALLS whose truth is
    known, with their inputs shown by that stream alone; not of random results."""
    point, contract = checks.points[0], checks.bench.contract
    if checks.bench.device.type == "cpu" or contract.random or checks.first is None or program.buffers is None:
        return []
    leaves, truth = checks.first
    state = point.instance.first_state
    try:
        if state:
            program.set_state(state)
        program.leash.ask({"do": "stream"}, program.stage)
        calls = list(range(min(CALLS, program.buffers.plan.sets)))
        for call in calls:
            race.fill(program.buffers, call, leaves)
        program.checked(calls, grad=contract.gradients, hidden=True)
        point.checker.recall(truth)
        answers = [(program.buffers.answers(call), list(program.buffers.inputs[call])) for call in calls]
        found = [point.checker.check(point.as_given, leaves, state, *answer) for answer in answers]
        said = next((result.detail for result in found if not result.passed), "")
    except ChildFailure as failure:
        said = failure.reason
    return [f"{WORDS} ({said:.160})"] if said else []
