# SPDX-License-Identifier: Apache-2.0
"""Calls on a device one by one, for programs that are faster than eager many at a time: is the gain one of each call?

``singly`` asks so on a CPU. Here calls are launched as in any window, but each shows its inputs when the one before is
answered (``handover``), and the judge's clock says when that is. What it takes to hand a call over, some tens of
microseconds of host and device, eager and the candidate have in common; but it hides what is gained on the side that
then waits for the other. So there are series of two kinds: calls handed over at once, in which the host's work shows
(or the device's, where that is more), and after a rest, in which the host is ahead and the device's shows. A call takes
as long as the one of the two that is longer, so a gain of it is there in one kind at least; what is in neither is no
gain of a call. On an H200 honest kernels that gained 9 to 6,000 us had 0.6 to 2.8 of it in one kind or the other;
programs that computed a window at once are refused, or gain 0.2 of what they claim at the most.

Of calls at once the whole series counts, from before the program wakes, where its first answer came late. Where the
judge is kept from handing over for some milliseconds, by whoever else has its CPU, the host gets ahead, and of calls
then answered one after another only the device's time shows, 105 us of 275: that happened to either program, so honest
gains went and others came.
"""

from __future__ import annotations

import math
import secrets
import statistics
from collections.abc import Callable, Sequence

import torch

from kernelwright.judge import measure, placing, singly, wires
from kernelwright.judge.buffers import CpuArena
from kernelwright.judge.handover import ANSWERED, RELEASED, Layout, answers, bits, sums
from kernelwright.judge.program import Program
from kernelwright.judge.race import Leaves, Race, Racer, blamed
from kernelwright.judge.veil import Words

CALLS, COLD = 24, 4
"""Calls of a series, and how many of them find nothing warm."""
SERIES, MOST = 4, 8
"""Series of a program in each kind at the least, and at the most where nobody disturbs them. Its two that took least
count, since what else runs on a machine only lengthens them: where all did and each program had a CPU of its own,
beside five other judges on a host of 16 CPUs, 6 of 30 programs that computed a window as one kept a gain of 1.3 to 8:
eager took up to 62 us longer for calls of 30, over all of its series."""
ALIKE = 1 / 4, 1 / 10
"""How near to their least series are that nobody disturbed, in shares of what is claimed or of the least. Beside 28
busy threads on those CPUs all of eager's were four times as long as two of the candidate's, and 3 of 18 windows
computed as one kept a gain of 4 to 8."""
SECONDS, UNSAID = 1.0, -math.inf
"""How long series of a kind are taken, and the least that is gained where they say nothing in that time."""
OWN, TELLING = 4, 4
"""Series on draws of the task's own at the most, and calls of one at the least besides the first ones."""
LATE = 2.0
"""By how many usual calls the first answer of a series may come later than the soonest of all. A host that is ahead by
that is caught up with in a few calls, of which the median knows nothing."""
RESTED = 1.5
"""What the judge lets pass before it hands a call over, in the second kind, in times that a call took in the first: the
host is ahead then, also where handing over takes it 150 to 300 us, as beside other judges."""
LOOK = 512
"""Looks at the memory between two at the process."""


class NotHanded(Exception):
    """Eager cannot be handed its calls one by one on this machine; why."""


def gains_us(contest: Race, known: Sequence[list[float]], say: Callable[[str], object]) -> list[float]:
    """Eager's time less the candidate's in calls one by one; none where there is no gain to look at, nor on a device
    where what is ``known`` of another process of this program has it, or that cannot do this, which is said. For who is
    alone on the device. Raises as a race does."""
    claim = singly.claim_us([racer.lane for racer in contest.racers], contest.plan)
    if claim == 0.0 or contest.device.type == "cpu":
        return singly.gains_us(contest, claim) if claim else []
    if any(_had(gains, claim) for gains in known):
        return []
    try:
        with placing.on_one_cpu([contest.racers[at].program.pid for at in (0, -1)]):
            return _gains(contest, claim)
    except NotHanded as error:
        say(f"whether calls one by one are faster too was not looked at: {error}")
        return []


def vanished_us(
    number: int,
    gains: Sequence[Sequence[float]],
    eager_us: Sequence[float],
    mine_us: Sequence[float],
    honest: measure.Lane,
) -> tuple[float, float]:
    """``singly.vanished_us`` of one process; ``gains`` are those of every one. On a device the process that gained most
    counts for each, with the least that its calls say where the most that they say is less than half of what is
    claimed. Where only the most has half, or calls say nothing (UNSAID), the rest of a claim is open: credited to the
    candidate, as it was, 2 of 14 windows computed as one kept 5 of 6.9 beside six judges on a slow host."""
    if not honest.on_device:
        return singly.vanished_us(gains[number], eager_us, mine_us, crowded=honest.crowded)
    asked = [each for each in gains if each]
    if not asked:
        return 0.0, 0.0
    least, most = (singly.vanished_us([max(each[at] for each in asked)], eager_us, mine_us)[0] for at in (0, -1))
    return (least, 0.0) if most else (0.0, least)


def _had(gains: Sequence[float], claim_us: float) -> bool:
    """Whether half of a claim is clearly there."""
    return bool(gains) and gains[0] > singly.VANISHED * claim_us


def _gains(contest: Race, claim_us: float) -> list[float]:
    """Call by call, of the first kind of series in which ``claim_us`` is, or the one in which the candidate gains more.
    The calls are compared as timed ones are."""
    eager, mine = contest.racers[0], contest.racers[-1]
    calls = min(CALLS, contest.plan.sets)
    cold = max(1, min(COLD, calls // 3))
    contest.checks.of_baselines = False  # the others do not run: what their buffers hold answers another round
    found: list[list[float]] = []
    rest_us, longest, order = 0.0, 0.0, [eager, mine]
    while len(found) < 2:
        began, gains, warm = measure.clock(), list[float](), bool(found)
        taken: list[list[list[float]]] = [[], []]
        while not gains and (not all(taken) or (measure.clock() - began) * 1e-9 <= SECONDS):
            values = [contest.draw() for _ in range(calls)]
            for racer in order:
                with blamed(racer.name, last=racer is mine):
                    taken[racer is mine].append(_series(contest, racer, values, rest_us))
            order.reverse()
            if not contest.checks.random_outputs or not warm:
                contest.checks.look(values, contest.state)
            if not warm:
                taken, warm = [[], []], True
                continue
            series = _read(taken, cold, rested=rest_us > 0)
            gains = _said(series[0], series[1], claim_us)
        longest = max(longest, *(statistics.median(one[cold:]) for each in taken for one in each))
        if not gains:  # a few long series say what their own calls do
            apart = _apart(series[0], series[1])
            gains = [UNSAID, claim_us] if len(apart) >= SERIES else [apart[0], apart[-1]]
        if _had(gains, claim_us):
            gains = _on_own(contest, gains, min(series[0]), rest_us, calls, cold)
            contest.checks.conclude()
            return gains
        found.append(gains)
        rest_us = RESTED * longest
    contest.checks.conclude()
    return max(found, key=max)


def _on_own(contest: Race, gains: list[float], eager_us: float, rest_us: float, calls: int, cold: int) -> list[float]:
    """These ``gains``, of calls that took eager ``eager_us``, or what is gained on draws of the task's own (``unseen``)
    in proportion to what those take eager, where that is less than half as much in all series for which there are such.
    Of each program its least counts, for others only lengthen them."""
    calls = min(calls, max(cold + TELLING, len(contest.unseen) // OWN))
    least, found = [math.inf, math.inf], gains
    for start in range(0, len(contest.unseen) - calls + 1, calls):
        values = [draw() for draw in contest.unseen[start : start + calls]]
        for racer in contest.dice.sample([contest.racers[0], contest.racers[-1]], 2):
            mine = racer is contest.racers[-1]
            with blamed(racer.name, last=mine):
                usual = statistics.median(_series(contest, racer, values, rest_us)[cold:])
            least[mine] = min(least[mine], usual)
        if not contest.checks.random_outputs:
            contest.checks.look(values, contest.state)
        found = [(least[0] - least[1]) * eager_us / least[0]] * 2
        if found[0] > singly.VANISHED * gains[0]:
            return gains
    return found


def _read(taken: Sequence[Sequence[list[float]]], cold: int, *, rested: bool) -> list[list[float]]:
    """Microseconds a call in each series of either program. ``taken``: the periods of its calls, the first of them from
    before the program woke."""
    soonest = min(periods[0] for each in taken for periods in each)
    read: list[list[float]] = [[], []]
    for number, each in enumerate(taken):
        for periods in each:
            usual = statistics.median(periods[cold:])
            late = not rested and periods[0] - soonest > LATE * usual
            read[number].append(statistics.mean(periods) if late else usual)
    return read


def _said(eager: Sequence[float], mine: Sequence[float], claim_us: float) -> list[float]:
    """The least and the most that series say the candidate gains; empty where they do not say it yet.

    A gain is gone where the two series of each that took least say so; what of it is left is no more than the
    differences of those of one time say (95 %, by ranks). That it is there the others have to say as well: four as
    calm as these, or those differences, whatever somebody does to both. Without them rows in 29 us that claimed 25
    were left 3 to 7 of these, twice in 22 as much as 1.2 of eager, beside six other judges."""
    asked, count = singly.VANISHED * claim_us, len(eager)
    first, second = sorted(eager)[:2], sorted(mine)[:2]
    least, most = first[0] - second[-1], first[-1] - second[0]
    if count < SERIES:
        return []
    apart, rank = _apart(eager, mine), singly.low_rank(count)
    if most < asked:
        return [min(least, apart[rank]), most]
    calm = _calm(eager, claim_us) and _calm(mine, claim_us)
    if calm and least > asked and statistics.median(apart) > asked:
        return [least, most]
    if count >= MOST and apart[rank] > asked:
        return [apart[rank], apart[-1 - rank]]
    return [min(least, apart[rank]), most] if calm and count >= MOST else []


def _apart(eager: Sequence[float], mine: Sequence[float]) -> list[float]:
    """By how much those of one time differ, in order."""
    return sorted(one - other for one, other in zip(eager, mine, strict=True))


def _calm(series: Sequence[float], claim_us: float) -> bool:
    """Whether SERIES of these are ALIKE."""
    near = min(series) + max(ALIKE[0] * claim_us, ALIKE[1] * min(series))
    return sum(one <= near for one in series) >= SERIES


def _series(contest: Race, racer: Racer, values: Sequence[Leaves], rest_us: float) -> list[float]:
    """Microseconds from each call's answer to the next one's. Raises NotHanded where this is the measure of honest
    programs and cannot do it."""
    program, buffers, calls = racer.program, racer.buffers, len(values)
    contest.load(racer)
    contest.fill(racer, values)
    words = Words(buffers, (), first := secrets.randbits(20))
    layout = Layout(words, calls, len(answers(buffers)))
    keys = bits(list(words), calls, torch.Generator(buffers.inputs[0][0].device).manual_seed(secrets.randbits(62)))
    for view, key in zip(words, keys, strict=True):
        view[:calls].bitwise_xor_(key)
    contest.walk()
    new = program.handover is None or program.handover.size < layout.size
    if new:
        program.hand(CpuArena.create(2 * layout.size))  # which words are hidden makes a few more or less of them
    assert program.handover is not None and program.handover.tensor is not None
    arena, memory = program.handover, program.handover.tensor
    request = {"do": "handover", "first": first, "calls": calls, "size": arena.size}
    memory[: layout.size] = 0
    said = program.leash.ask(request, program.stage, [arena.fd] if new else [])
    arena.close_fd()
    if not said.get("ready"):
        if racer is contest.racers[0]:
            raise NotHanded(said.get("why", ""))
        program.leash.end("integrity", "eager can be handed its calls one by one, and it cannot")
    own = [key.cpu() for key in keys]
    stamps, told = _handed(program, memory, layout, own, rest_us, grad=contest.grad)
    if not torch.equal(told, sums(buffers, calls).cpu()):
        program.leash.end("integrity", "a call was said to be answered before its answer was there")
    return [(after - before) / 1e3 for before, after in zip(stamps, stamps[1:], strict=False)]


def _handed(
    program: Program, memory: torch.Tensor, layout: Layout, own: Sequence[torch.Tensor], rest_us: float, *, grad: bool
) -> tuple[list[int], torch.Tensor]:
    """Run the window and hand its calls over; when it began and when each was answered, in nanoseconds, and the sums
    that were there when it was."""
    leash, number, added = program.leash, secrets.randbits(63), layout.sums(memory)
    told, calls = torch.zeros_like(added), len(added)
    flags, places = memory[:128].view(torch.int32).numpy(), [place.numpy() for place in layout.keys(memory)]
    given = [key.numpy() for key in own]
    leash.expect_silence()
    stamps = [program.clock(0)]
    leash.wake()
    leash.send(wires.go(number, range(calls), grad=grad, at_once=True), program.stage)
    until = stamps[0] + int(program.limits.seconds * 1e9)
    try:
        for call in range(calls):
            for place, key in zip(places, given, strict=True):
                place[call] = key[call]
            rested = stamps[-1] + int(1e3 * rest_us)
            while program.clock(0) < rested:
                pass
            flags[RELEASED // 4] = call + 1
            looks = 0
            while flags[ANSWERED // 4] <= call:
                looks += 1
                if looks % LOOK == 0 and (leash.speaks() or program.clock(0) > until):
                    break
            stamps.append(program.clock(0))
            told[call] = added[call]
            if flags[ANSWERED // 4] <= call:
                break
    finally:
        flags[RELEASED // 4] = calls  # no stream waits for a judge that has given up
    body, done = leash.wait(program.stage, program.limits.seconds), wires.mark(wires.DONE, number)
    if body[: len(done)] != done:
        leash.stop()
        leash.refuse(body, program.stage)
    leash.send(wires.asking(number, taken=False, keep=False), program.stage)
    program.delivered(leash.wait(program.stage, program.limits.seconds), number)
    leash.stop()
    return stamps, told
