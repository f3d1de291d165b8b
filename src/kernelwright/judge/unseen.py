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

AS_FAST = 0.7
"""Part of a speedup that is there on a task's own draws, at the least. While it had to be half, a program that is twice
as fast by right might have known enough again to claim four times."""
BESIDE, LEAST = 3, 1 / 10
"""Of so many calls of a series one is put together, for what that takes eager; and the least part of a single call on
a draw of the task's own that is taken for work, not for handing it over."""


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
    has asked so. Raises as a race does: these calls are compared as others are.

    Eager may take longer for what is put together (labels in long runs come one by one there), or less: what is gained
    on the task's own draws counts in proportion to that, and where the speedup there is less than AS_FAST of what it is
    on others, that counts. Of a loop over such runs 18 times as fast was claimed, and 2.6 is what its user would see.
    """
    eager_us, claim = _claim_us(contest)
    threshold = singly.VANISHED * (min(claim, statistics.median(known)) if known else claim)
    if threshold <= 0.0 or contest.device.type != "cpu":
        return known
    own, made = list[tuple[float, float]](), list[tuple[float, float]]()
    calls = min(singly.CALLS, contest.plan.sets)
    cold = min(singly.COLD, calls - 1)
    beside = (calls - cold) // BESIDE
    contest.checks.of_baselines = False
    for start in range(0, len(contest.unseen), calls - cold - beside):
        some = [draw() for draw in contest.unseen[start : start + calls - cold - beside]]
        taken = _taken(contest, [*(contest.draw() for _ in range(cold + beside)), *some])
        made, own = made + taken[cold : cold + beside], own + taken[cold + beside :]
        if not beside:  # calls timed one to a window
            made += _taken(contest, [contest.draw()])
    contest.checks.conclude()
    handing = max(0.0, statistics.median(eager for eager, _ in made) - eager_us)
    others, found = (_in_proportion(each, eager_us, handing) for each in (made, own))
    usual = min(claim, max(0.0, statistics.median(others)))
    part = eager_us - (eager_us - usual) / AS_FAST  # what a speedup of that part gains
    return singly.OwnGains(found) if _below(found, max(threshold, part)) else known


def _in_proportion(taken: Sequence[tuple[float, float]], eager_us: float, handing_us: float) -> list[float]:
    """Gains of calls that took eager and the candidate so long, as of calls that take eager ``eager_us``."""
    usual = statistics.median(eager for eager, _ in taken)
    times = eager_us / max(usual - handing_us, LEAST * usual)
    return [times * (eager - mine) for eager, mine in taken]


def _claim_us(contest: Race) -> tuple[float, float]:
    """What eager takes for a timed call, and what the candidate gains; 0.0 where it gains nothing that is looked at."""
    if not contest.unseen:
        return 0.0, 0.0
    lanes = [racer.lane for racer in contest.racers]
    counted = measure.chosen_rounds(lanes, contest.plan.least)
    eager, mine = (measure.per_call_us(one, lanes[0], contest.plan.sets, counted) for one in (lanes[0], lanes[-1]))
    usual = statistics.median(eager)
    return usual, usual - statistics.median(mine) if singly.claimed(eager, mine) else 0.0


def _taken(contest: Race, values: Sequence[Leaves]) -> list[tuple[float, float]]:
    """What each call of a series takes eager, and the candidate."""
    taken = dict[str, list[float]]()
    eager, mine = contest.racers[0], contest.racers[-1]
    for racer in contest.dice.sample([eager, mine], 2):
        with blamed(racer.name, last=racer is mine):
            taken[racer.name] = singly.series(racer, values, grad=contest.grad)
    if not contest.checks.random_outputs:
        contest.checks.look(values, contest.state)
    return list(zip(taken[eager.name], taken[mine.name], strict=True))


def _below(gains: Sequence[float], threshold: float) -> bool:
    """Whether the median of what these were drawn from surely is less (95 %, by ranks)."""
    ordered, rank = sorted(gains), singly.low_rank(len(gains))
    return rank >= 0 and ordered[-1 - rank] < threshold
