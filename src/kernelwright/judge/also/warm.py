# SPDX-License-Identifier: Apache-2.0
"""Warm calls: one after another on one set of inputs, as a loop of one's own times them, with all that caches hold.

The race walks caches cold before each window, as they are between the layers of a model; who calls a program in a loop
sees another ratio. A call's time is what a window of twice as many takes longer, over the calls that it has more:
waking the program, its first call and the window's own cost are in both. Programs take turns in random order on fresh
inputs, in the processes of the last race, and the candidate's last answer is compared.
"""

from __future__ import annotations

import statistics

from kernelwright.judge import measure
from kernelwright.judge.also.scene import STAGE
from kernelwright.judge.checks import Wrong
from kernelwright.judge.race import Race, Racer, blamed

MOST_CALLS, HELD_BYTES, WINDOW_US = 32, 32 << 20, 15_000.0
"""Calls of the shorter window, at most; bytes of their results, which live until its end; and what they may take."""
LEAST, MOST, SECONDS = 5, 15, 0.2
"""Rounds: at least, at most, and what one program's may take together beyond the least."""


def taken(contest: Race) -> list[tuple[str, str]]:
    """``warm.PROGRAM.median_us`` of every racer, and ``warm.candidate.speedup`` over the fastest of the others.

    Where the device is the race's alone. Raises as a race does.
    """
    mine, calls = contest.racers[-1], _calls(contest)
    times: dict[str, list[float]] = {racer.name: [] for racer in contest.racers}

    def step(_: int) -> None:
        values = [contest.draw()]
        for racer in contest.dice.sample(contest.racers, len(contest.racers)):
            contest.load(racer)
            contest.fill(racer, values)
            with blamed(racer.name, last=racer is mine):
                times[racer.name].append(_each_us(racer, calls, grad=contest.grad))

    measure.rounds_until(step, lambda: MOST, least=LEAST, most=MOST, seconds=SECONDS * len(contest.racers))
    _last_answer(contest, mine)
    return figures(times)


def figures(times: dict[str, list[float]]) -> list[tuple[str, str]]:
    """Medians; the candidate's is the last. One that noise left nothing of gives no speedup."""
    medians = {name: statistics.median(values) for name, values in times.items()}
    *others, mine = medians.values()
    pairs = [(f"warm.{name}.median_us", f"{value:.6g}") for name, value in medians.items()]
    if min(*others, mine) > 0:
        pairs.append(("warm.candidate.speedup", f"{min(others) / mine:.3g}"))
    return pairs


def _calls(contest: Race) -> int:
    """Calls of the shorter window."""
    result_bytes = sum(spec.nbytes() for spec in contest.racers[-1].buffers.plan.outputs)
    eager = contest.racers[0].lane
    call_us = statistics.median(eager.calls_us) / contest.plan.sets
    return max(1, min(MOST_CALLS, HELD_BYTES // max(1, result_bytes), int(WINDOW_US / max(call_us, 1.0))))


def _each_us(racer: Racer, calls: int, *, grad: bool) -> float:
    """What a call takes after others, by two windows."""
    short, long = (racer.program.window([0] * (times * calls), grad=grad).call_us for times in (1, 2))
    return float(long - short) / calls


def _last_answer(contest: Race, mine: Racer) -> None:
    """One more call of the candidate, compared in full. Raises Wrong."""
    leaves = contest.draw()
    contest.load(mine)
    contest.fill(mine, [leaves])
    mine.program.window([0], grad=contest.grad)
    result = mine.suspect.check(leaves, contest.state, mine.buffers.answers(0), list(mine.buffers.inputs[0]))
    if not result.passed:
        raise Wrong(STAGE, f"{result.name}: {result.detail}", result.detail)
