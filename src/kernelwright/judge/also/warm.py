# SPDX-License-Identifier: Apache-2.0
"""Warm calls: one after another on one set of inputs, as a loop of one's own times them, with all that caches hold.

The race walks caches cold before each window, as they are between the layers of a model; who calls a program in a loop
sees another ratio. A window follows one like it, which pays for what comes first, and what a window takes that is not
its calls' is eager's, as in the race. Programs take turns in random order on fresh inputs, in the processes of the last
race, and the candidate's last answer is compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from kernelwright.judge import intervals, measure
from kernelwright.judge.also.scene import STAGE
from kernelwright.judge.checks import Wrong
from kernelwright.judge.race import Race, Racer, blamed

MOST_CALLS, HELD_BYTES, WINDOW_US = 64, 64 << 20, 30_000.0
"""Calls of a window, at most; bytes of their results, which live until its end; and what they may take."""
LEAST, MOST, SECONDS = 7, 25, 0.3
"""Rounds: at least, at most, and what one program's may take together beyond the least."""
FLOOR = 0.1
"""Part of a window that is its calls' whatever is subtracted."""


def taken(contest: Race) -> list[tuple[str, str]]:
    """``warm.PROGRAM.median_us`` of every racer, and ``warm.candidate.speedup`` with its interval over the one that it
    is least of, the rounds being pairs. Nothing where a call of eager takes longer than a window may: what caches hold
    is no part of that, and the rounds would take as long as the race did (27 s for calls of 0.9 s).

    Where the device is the race's alone. Raises as a race does.
    """
    if _call_us(contest) > WINDOW_US:
        return []
    mine, calls = contest.racers[-1], _calls(contest)
    times: dict[str, list[float]] = {racer.name: [] for racer in contest.racers}
    beside = contest.racers[0].lane.overhead_us(calls)

    def step(number: int) -> None:
        values = [contest.draw()]
        for racer in contest.dice.sample(contest.racers, len(contest.racers)):
            contest.load(racer)
            contest.fill(racer, values)
            with blamed(racer.name, last=racer is mine):
                _, second = (racer.program.window([0] * calls, grad=contest.grad).call_us for _ in range(2))
            times[racer.name].append(max(second - beside, FLOOR * second) / calls)

    measure.rounds_until(step, lambda: MOST, least=LEAST, most=MOST, seconds=SECONDS * len(contest.racers))
    _last_answer(contest, mine)
    return figures(times)


def figures(times: Mapping[str, Sequence[float]]) -> list[tuple[str, str]]:
    """Medians, and the candidate's ratio, who is the last."""
    *others, mine = times
    pairs = [(f"warm.{name}.median_us", f"{statistics.median(values):.6g}") for name, values in times.items()]
    found = min(intervals.ratio_interval(times[name], times[mine]) for name in others)
    names = ("speedup", "speedup_low", "speedup_high")
    return pairs + [(f"warm.candidate.{name}", f"{value:.3g}") for name, value in zip(names, found, strict=True)]


def _calls(contest: Race) -> int:
    """Calls of a window. On a device it holds no more results than those of the race did."""
    if contest.device.type != "cpu":
        return min(MOST_CALLS, contest.plan.sets)
    result_bytes = sum(spec.nbytes() for spec in contest.racers[-1].buffers.plan.outputs)
    return max(1, min(MOST_CALLS, HELD_BYTES // max(1, result_bytes), int(WINDOW_US / max(_call_us(contest), 1.0))))


def _call_us(contest: Race) -> float:
    """What eager takes for a call, about."""
    return statistics.median(contest.racers[0].lane.calls_us) / contest.plan.sets


def _last_answer(contest: Race, mine: Racer) -> None:
    """One more call of the candidate, compared in full. Raises Wrong."""
    leaves = contest.draw()
    contest.load(mine)
    contest.fill(mine, [leaves])
    mine.program.window([0], grad=contest.grad)
    result = mine.suspect.check(leaves, contest.state, mine.buffers.answers(0), list(mine.buffers.inputs[0]))
    if not result.passed:
        raise Wrong(STAGE, f"{result.name}: {result.detail}", result.detail)
