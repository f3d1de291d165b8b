# SPDX-License-Identifier: Apache-2.0
"""Calls one at a time, for programs that are faster than eager many at a time: is the gain one of each call?

All inputs of a window lie open while it runs, so its calls can be computed as one: the weights read once for all, the
operators called once for all. Here the inputs of a call are written when the one before is delivered, so there is
nothing to put it together with. A call then takes two messages there and two back, which eager's and the candidate's
have in common: only gains are compared, in microseconds a call, never times. The program is not stopped between calls
(that would cost ten times as much and be as much less exact); what it might do ahead is shown by the windows. One that
waits for the next call without sleeping is spared a wake-up that eager pays, which is most of a call of microseconds;
so nothing happens for GAP_US before each call, and whoever runs through more than half of that has gained nothing. What
the thread that answers runs outside of its calls, beyond what eager's does, is no gain either: it may know the next
inputs, which are written there.
"""

from __future__ import annotations

import math
import secrets
import statistics
import time
from collections.abc import Mapping, Sequence

import torch

from kernelwright.judge import load, measure, wires
from kernelwright.judge.race import Leaves, Race, Racer, blamed, fill
from kernelwright.judge.timing_plan import TimingPlan

CLAIM = 1.05
"""Speedup over eager from which a gain is looked at."""
SERIES = (8, 200)
"""Series of calls at the least, and at the most, each of eager's and of the candidate's."""
CALLS = 12
"""Calls of a series; the first few find nothing warm after a sleep."""
COLD = 3
SECONDS = 0.5, 2.5
"""How long series are taken where they say clearly which it is, and where they do not. Half a second was too short: in
one of a dozen coarse races the scatter of single calls (tens of microseconds) passed for the gain of a batch."""
GAP_US = 400.0
"""Rest before each call. OpenMP's threads spin for some 100 us of it before they sleep (``load.waiting_policy``)."""
AWAKE = 0.5
"""Share of all rests in a series that a thread may run through."""
CROWD_US = 50.0
"""What single calls of two processes may differ by where strangers use the CPUs: a batch of calls of 4 us, no faster
one by one, passed for 1.5 times as fast, once."""
VANISHED = 0.5
"""A gain counts where this share of it is left of single calls. What a first call pays after a sleep (its code is in
no cache) is more for longer programs, so a part of an honest gain is missing there too. Of less than half this share
only what is left counts, and in between what counts falls from one to the other: a kernel that saves 10 us of launches
has four to six of them alone, by how its host does, and was granted 1.5 or 1.1 by that."""


class OwnGains(list[float]):
    """Gains on draws of a task's own (``unseen``), which count as they are: a speedup that is half of what is claimed
    may have two thirds of the microseconds."""


def gains_us(contest: Race, claim_us: float) -> list[float]:
    """Eager's time less the candidate's in single calls, one number a series. Raises as a race does:
    these calls too are compared in full by lot, and the others with eager's.

    ``claim_us``: the gain in windows of many calls, of which these series are to say whether it is there."""
    eager, mine = contest.racers[0], contest.racers[-1]
    calls = range(min(CALLS, contest.plan.sets))
    found: list[float] = []
    contest.checks.of_baselines = False  # the others do not run: what their buffers hold answers another round
    began = measure.clock()
    for number in range(SERIES[1]):
        enough = SECONDS[0] if clear(found, VANISHED * claim_us) else SECONDS[1]
        if number >= SERIES[0] and (measure.clock() - began) * 1e-9 > enough:
            break
        values = [contest.draw() for _ in calls]
        taken: dict[str, list[float]] = {}
        awake: dict[str, bool] = {}
        outside: dict[str, float] = {}
        for racer in contest.dice.sample([eager, mine], 2):
            with blamed(racer.name, last=racer is mine):
                before = load.ran_us(racer.program.pid)
                every = series(racer, values, grad=contest.grad)
                after = load.ran_us(racer.program.pid)
                awake[racer.name] = restless(before, after, every)
                outside[racer.name] = between_us(str(racer.program.pid), before, after, every)
                taken[racer.name] = every[min(COLD, len(calls) - 1) :]
        gain = statistics.median(taken[eager.name]) - statistics.median(taken[mine.name])
        gain -= max(0.0, outside[mine.name] - outside[eager.name])
        found.append(0.0 if awake[mine.name] else gain)
        if not contest.checks.random_outputs or number == 0:
            contest.checks.look(values, contest.state)
    contest.checks.conclude()
    return found


def series(racer: Racer, values: Sequence[Leaves], *, grad: bool) -> list[float]:
    """Microseconds from each call's start to its delivery, its inputs written just before. The answers that count are
    those that were there when it said so: the rest before the next call would be time enough to work in."""
    program, found, given = racer.program, [], list[list[torch.Tensor]]()
    leash, stage = program.leash, program.stage
    leash.expect_silence()
    leash.wake()
    for call, leaves in enumerate(values):
        number = secrets.randbits(63)
        done, deliver = (wires.mark(kind, number) for kind in (wires.DONE, wires.DELIVER))
        fill(racer.buffers, call, leaves)
        time.sleep(GAP_US * 1e-6)
        began = program.clock(0)
        leash.send(wires.go(number, [call], grad=grad), stage)
        body = leash.wait(stage, program.limits.seconds)
        if body[: len(done)] != done:
            leash.stop()
            leash.refuse(body, stage)
        leash.send(deliver, stage)
        body = leash.wait(stage, program.limits.seconds)
        found.append((program.clock(0) - began) / 1e3)
        program.delivered(body, number)
        given.append([answer.clone() for answer in racer.buffers.answers(call)])
    leash.stop()
    for call, answers in enumerate(given):
        for place, answer in zip(racer.buffers.answers(call), answers, strict=True):
            place.copy_(answer)
    return found


def clear(gains: Sequence[float], threshold: float) -> bool:
    """Whether the median of what these were drawn from lies above or below, at 95 % (by ranks)."""
    ordered, rank = sorted(gains), low_rank(len(gains))
    return bool(gains) and rank >= 0 and (threshold < ordered[rank] or threshold > ordered[-1 - rank])


def restless(before: Mapping[str, float], after: Mapping[str, float], calls_us: Sequence[float]) -> bool:
    """Whether a thread ran through the rests between these calls: longer than all calls took and AWAKE of the rests."""
    allowed = sum(calls_us) + AWAKE * GAP_US * len(calls_us)
    return any(ran - before.get(thread, 0.0) > allowed for thread, ran in after.items())


def between_us(first: str, before: Mapping[str, float], after: Mapping[str, float], calls_us: Sequence[float]) -> float:
    """What the ``first`` thread of a program, which answers, surely ran outside these calls, microseconds for each: it
    was at work for longer than they took."""
    ran = after.get(first, 0.0) - before.get(first, 0.0)
    return max(0.0, ran - sum(calls_us)) / len(calls_us)


def claim_us(lanes: Sequence[measure.Lane], plan: TimingPlan) -> float:
    """What the last program gains over eager in windows of many calls, microseconds a call; 0 where there is nothing to
    look at, or they hold one call anyway."""
    if plan.sets == 1:
        return 0.0
    counted = measure.chosen_rounds(lanes, plan.least)
    eager, mine = (measure.per_call_us(one, lanes[0], plan.sets, counted) for one in (lanes[0], lanes[-1]))
    return statistics.median(eager) - statistics.median(mine) if claimed(eager, mine) else 0.0


def claimed(eager_us: Sequence[float], mine_us: Sequence[float]) -> bool:
    """Whether there is a gain to look at: both in microseconds a call, many at a time."""
    return statistics.median(eager_us) > CLAIM * statistics.median(mine_us)


def vanished_us(
    gains: Sequence[float], eager_us: Sequence[float], mine_us: Sequence[float], *, crowded: bool = False
) -> tuple[float, float]:
    """How much of the gain per call is a window's own, 0 where single calls may have most of it: as these say, and as
    the lower end of what they say would have it (95 %, by ranks). On a loaded machine 200 may not tell, and where it is
    ``crowded`` one process is woken later than another in all of them."""
    gain = statistics.median(eager_us) - statistics.median(mine_us)
    if not gains or gain <= 0:
        return 0.0, 0.0
    ordered, rank = sorted(gains), low_rank(len(gains))
    share = 1.0 if isinstance(gains, OwnGains) else VANISHED
    least = ordered[rank] - CROWD_US * crowded if rank >= 0 else 0.0
    return _missing(gain, statistics.median(gains), share), _missing(gain, least, share)


def words(vanished: float, doubted: float) -> list[str]:
    """What the record says of such a gain."""
    if vanished > 0:
        return [
            f"{vanished:.3g} us a call, gained in windows of many calls only, or on inputs put together, do not count"
        ]
    if doubted > 0:
        return [f"{doubted:.3g} us a call are open: single calls scatter too much to show that gain"]
    return []


def _missing(gain: float, single: float, share: float) -> float:
    """What does not count of a ``gain`` of which single calls have so much."""
    left, low = max(0.0, single) / gain, share / 2
    if left >= share:
        return 0.0
    counts = left if left <= low else low + (left - low) * (1.0 - low) / (share - low)
    return gain * (1.0 - counts)


def low_rank(count: int) -> int:
    """Of how many numbers in order the one below the median's 95 % interval; negative where there are too few."""
    return math.floor(count / 2 - math.sqrt(count))
