# SPDX-License-Identifier: Apache-2.0
"""Server mode: one call at a time, each after a random idle gap, caches as the gap and the new inputs leave them.

The latency of a call is its window less an empty window that also came after a gap, by the judge's clock; the
programs take turns in random order on the same fresh values, and every call is compared as in the race.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelwright.judge import measure, race, spot_checks
from kernelwright.judge.also.scene import Contender, Scene
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.program import Program
from kernelwright.trial import CaseResult

MEAN_GAP_S, LONGEST_GAP_S = 0.005, 0.05
"""Idle time before a call: exponential, so that no program can foresee it; threads that spun are asleep by then."""
MOST, LEAST = 200, 20
"""Calls of every program: p99 of 200 is their second largest."""
SECONDS = 4.0
"""What one program's calls may take together, gaps included, once there are LEAST of them."""
FULL_CHECKS = 4

Rest = Callable[[float], None]


def taken(scene: Scene) -> list[tuple[str, str]]:
    """``server.PROGRAM.median_us``, ``.p99_us`` and ``.calls`` of every contender."""
    pairs: list[tuple[str, str]] = []
    wanted = list(scene.contenders)
    while True:
        try:
            return pairs + figures(_served(scene, wanted))
        except race.Lost as lost:
            wanted = [contender for contender in wanted if contender.name != lost.name]
            pairs.append((f"server.{lost.name}", f"not measured: {lost.failure}"[:300]))


def _served(scene: Scene, wanted: Sequence[Contender]) -> list[measure.Lane]:
    """The lanes of these contenders after their calls. Raises Lost for a baseline that failed."""
    grad, last = scene.bench.contract.gradients, wanted[-1]
    with contextlib.ExitStack() as stack:
        racers = []
        for contender in wanted:
            with race.blamed(contender.name, last=contender is last):
                program = stack.enter_context(scene.started(contender))
                scene.first_call(program)
            racers.append(_racer(scene, contender.name, program, last=contender is last))
        scene.checked(racers[-1].program)
        tolerated = _honest(scene, racers[-1].buffers)
        dice = scene.dice(1)
        checks = spot_checks.SpotChecks(
            suspects=[racer.suspect for racer in racers],
            budget=FULL_CHECKS,
            thorough=True,
            random_outputs=scene.bench.contract.random,
            mutates=frozenset(scene.bench.contract.mutates),
            dice=dice,
            tolerated=tolerated,
            indices=scene.bench.contract.index_outputs,
        )
        draws = scene.bench.draws(dice.getrandbits(60), SECONDS / MOST / 4)
        with scene.alone():
            serve(racers, lambda: next(draws), checks, scene.point.instance.first_state, dice, grad=grad)
    return [racer.lane for racer in racers]


def serve(
    racers: Sequence[race.Racer],
    draw: Callable[[], spot_checks.Leaves],
    checks: spot_checks.SpotChecks,
    state: Any,
    dice: random.Random,
    *,
    grad: bool,
    rest: Rest = time.sleep,
) -> int:
    """Rounds of one call of every program until MOST, or LEAST and the time is spent; how many.

    Raises ChildFailure and Mismatch of the candidate, who is the last, and Lost for a baseline.
    """

    def step(number: int) -> None:
        leaves = draw()
        for racer in dice.sample(racers, len(racers)):
            with race.blamed(racer.name, last=racer is racers[-1]):
                rest(gap(dice))
                empty = racer.program.window([], grad=grad)  # before the values are there: nothing to work ahead on
                racer.lane.empties_us.append(float(empty.call_us))
                racer.lane.idles_us.append(float(empty.call_us + empty.deliver_us))
                race.fill(racer.buffers, 0, leaves)
                rest(gap(dice))
                measure.run_window(racer.lane, [0], grad=grad)
        checks.look([leaves], state)

    done = measure.rounds_until(step, lambda: MOST, least=LEAST, most=MOST, seconds=SECONDS * len(racers))
    checks.conclude()
    return done


def gap(dice: random.Random) -> float:
    """Seconds until the next request."""
    return min(dice.expovariate(1 / MEAN_GAP_S), LONGEST_GAP_S)


def figures(lanes: Sequence[measure.Lane]) -> list[tuple[str, str]]:
    """Median and 99th percentile of every program's latency; what was left for delivery is part of it."""
    pairs = []
    for lane in lanes:
        every = range(len(lane.calls_us))
        samples = measure.per_call_us(lane, lanes[0], 1, every)
        found = {"median_us": float(np.median(samples)), "p99_us": float(np.percentile(samples, 99))}
        pairs += [(f"server.{lane.name}.{name}", f"{value:.6g}") for name, value in found.items()]
        pairs.append((f"server.{lane.name}.calls", str(len(samples))))
    return pairs


def _racer(scene: Scene, name: str, program: Program, *, last: bool) -> race.Racer:
    point = scene.point

    def check(leaves: race.Leaves, state: Any, outputs: race.Leaves, inputs: race.Leaves) -> CaseResult:
        return point.checker.check(point.as_given, leaves, state, outputs, inputs)

    assert program.buffers is not None
    lane = measure.Lane(name, program, on_device=program.device != "cpu")
    return race.Racer(name, program, spot_checks.Suspect(program.buffers, check, last), lane)


def _honest(scene: Scene, buffers: Buffers) -> spot_checks.Distances:
    """How far the candidate's first answer, which was right, lies from eager's."""
    point, answers = scene.point, buffers.answers(0)
    if scene.bench.contract.random:
        return [float("inf")] * (2 * len(answers))
    truth = point.checker.truth(point.as_given, scene.leaves, point.instance.first_state)
    return spot_checks.learned(spot_checks.distances(answers, truth.eager[: len(answers)], None))
