# SPDX-License-Identifier: Apache-2.0
"""Calls on a task's own draws, where those are dear and timed ones are made of a few: is the gain one of these too?

Whatever timed inputs are made of comes again there (``recombined``): of a program that kept its answers by the lengths
of segments, the signs of rows, their order, or their proportions, most calls were known, and it was 3 to 14 times as
fast. Nothing of a draw that nobody put together was seen before. So some of these are given to eager and to the
candidate call by call, and where the candidate clearly gains less than half of what it gains on others, that counts.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernelwright.judge import measure, singly
from kernelwright.judge.race import Leaves, Race, blamed
from kernelwright.judge.timing_plan import TimingPlan

if TYPE_CHECKING:
    from kernelwright.judge.bench import Bench

SECONDS, FEWEST = 1.0, {"cpu": 6, "cuda": 16}
"""What drawing them may cost, and how many there are at the least, whatever that costs. A proof takes a hundred draws
and more; all of six are below a median one time in 64; a device has two series."""
MOST = {"cpu": 27, "cuda": 96}
"""How many there are at the most: on a device four series, of which one suffices where the gain is there."""


def draws(bench: Bench, plan: TimingPlan, seed: int) -> list[Callable[[], Leaves]]:
    """Draws of the timed case still to be made; none where all that is timed are such."""
    if bench.draw_seconds <= plan.draw_seconds:
        return []
    kind = bench.device.type
    count = max(FEWEST[kind], min(MOST[kind], int(SECONDS / bench.draw_seconds)))
    instance, as_given = bench.timed.instance, bench.timed.as_given
    return [functools.partial(instance.draw, as_given, (seed + number) % 2**62) for number in range(count)]


def gains_us(contest: Race, known: list[float]) -> list[float]:
    """``known`` gains of single calls, microseconds, none where nobody looked; or those on draws of the task's own,
    where they surely are less than half of that, and of what is claimed of timed windows. Of a device ``one_by_one``
    has asked so. Raises as a race does: these calls are compared as others are."""
    threshold = singly.VANISHED * _usual_us(contest, known)
    if threshold <= 0.0 or contest.device.type != "cpu":
        return known
    found: list[float] = []
    calls = min(singly.CALLS, contest.plan.sets)
    cold = min(singly.COLD, calls - 1)
    contest.checks.of_baselines = False
    for start in range(0, len(contest.unseen), calls - cold):
        own = [draw() for draw in contest.unseen[start : start + calls - cold]]
        found += _gained(contest, [contest.draw() for _ in range(cold)], own)
    contest.checks.conclude()
    return found if _below(found, threshold) else known


def _usual_us(contest: Race, known: Sequence[float]) -> float:
    """What the candidate gains on a timed call, as far as that is seen in single ones too; 0.0 where it gains nothing
    that is looked at."""
    if not contest.unseen:
        return 0.0
    lanes = [racer.lane for racer in contest.racers]
    counted = measure.chosen_rounds(lanes, contest.plan.least)
    eager, mine = (measure.per_call_us(one, lanes[0], contest.plan.sets, counted) for one in (lanes[0], lanes[-1]))
    if not singly.claimed(eager, mine):
        return 0.0
    claim = statistics.median(eager) - statistics.median(mine)
    return min(claim, statistics.median(known)) if known else claim


def _gained(contest: Race, first: Sequence[Leaves], own: Sequence[Leaves]) -> list[float]:
    """By how much the candidate answers each of its ``own`` sooner than eager, after the ``first`` of a series."""
    values, taken = [*first, *own], dict[str, list[float]]()
    eager, mine = contest.racers[0], contest.racers[-1]
    for racer in contest.dice.sample([eager, mine], 2):
        with blamed(racer.name, last=racer is mine):
            taken[racer.name] = singly.series(racer, values, grad=contest.grad)[len(first) :]
    if not contest.checks.random_outputs:
        contest.checks.look(values, contest.state)
    return [one - other for one, other in zip(taken[eager.name], taken[mine.name], strict=True)]


def _below(gains: Sequence[float], threshold: float) -> bool:
    """Whether the median of what these were drawn from surely is less (95 %, by ranks)."""
    ordered, rank = sorted(gains), singly.low_rank(len(gains))
    return rank >= 0 and ordered[-1 - rank] < threshold
