# SPDX-License-Identifier: Apache-2.0
"""Calls on a device one by one, for programs that are faster than eager many at a time: is the gain one of each call?

``singly`` asks so on a CPU. Here each call shows its inputs when the one before is answered (``handover``), and the
judge's clock says when that is. What it takes to hand a call over, some hundred microseconds of host and device, eager
and the candidate have in common. There are series of two kinds. In the first calls are launched as in any window and
handed over after a rest: the host is ahead, and the device's time shows alone, to a microsecond. In the second, where
the first has less than half of what is claimed, the program waits with each call until it is handed over, so that what
its host takes shows too, within some 5 us a series. A gain that is in neither is no gain of a call.

On an H200 a kernel for four operators that gained 10 to 20 us a call of 30 to 60, most of them launches, had 4.5 to 6.5
in the first kind and 4 to 16 in the second; programs that computed a window as one, for gains of 25 to 210, had 1.9 at
the most in the first and 10 in the second. Calls that were launched as in any window and handed over at once said
nothing of the host's work: handing one over takes as long as launching four operators, so that the device waited for
nobody, and that kernel was granted 1.04 of 1.5 in one of four proofs.
"""

from __future__ import annotations

import math
import secrets
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.judge import measure, placing, singly, wires
from kernelwright.judge.buffers import CpuArena
from kernelwright.judge.handover import ANSWERED, RELEASED, Layout, answers, bits, sums
from kernelwright.judge.program import Program
from kernelwright.judge.race import Leaves, Race, Racer, blamed
from kernelwright.judge.veil import Words

CALLS, COLD = 24, 4
"""Calls of a series, half as many where they rest, and how many of them find nothing warm."""
SERIES, MOST, MOST_WAITING = 4, 8, 12
"""Series of a program in each kind at the least, and at the most where calls rest or nobody disturbs them, and where
they wait: on an H200 a kernel whose gain is near half of its claim had all twelve in each of nine proofs. What their
medians differ by, at one time, is what is gained, but no more than by the two of each that took least, since what else
runs on a machine only lengthens them: where each program had a CPU of its own, beside five other judges on a host of 16
CPUs, 6 of 30 programs that computed a window as one kept a gain of 1.3 to 8, for eager took up to 62 us longer for
calls of 30, over all of its series."""
ALIKE = 1 / 4, 1 / 10
"""How near to their least series are that nobody disturbed, in shares of what is claimed or of the least. Beside 28
busy threads on those CPUs all of eager's were four times as long as two of the candidate's, and 3 of 18 windows
computed as one kept a gain of 4 to 8."""
SECONDS = 1.0
"""How long series of a kind are taken."""
OWN, TELLING = 4, 4
"""Series on draws of the task's own at the most, and calls of one at the least besides the first ones."""
RESTED = 1.5
"""What the judge lets pass before it hands a call over where calls rest, in times that one took which waits: the host
is ahead then."""
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
    counts for each."""
    if not honest.on_device:
        return singly.vanished_us(gains[number], eager_us, mine_us, crowded=honest.crowded)
    asked = [each for each in gains if each]
    if not asked:
        return 0.0, 0.0
    least, usual = (singly.vanished_us([max(each[at] for each in asked)], eager_us, mine_us)[0] for at in (0, -1))
    return usual, least


def _had(gains: Sequence[float], claim_us: float) -> bool:
    """Whether half of a claim is there."""
    return bool(gains) and gains[-1] > singly.VANISHED * claim_us


def _gains(contest: Race, claim_us: float) -> list[float]:
    """Call by call, the least and the usual: of calls that rest, and where these have less than half of ``claim_us`` of
    those that wait, what is more. The calls are compared as timed ones are."""
    calls = min(CALLS, contest.plan.sets)
    cold = max(1, min(COLD, calls // 3))
    contest.checks.of_baselines = False  # the others do not run: what their buffers hold answers another round
    first: list[list[float]] = [[], []]
    contest.checks.look(*_pair(contest, calls, cold, None, first))  # nothing is warm
    found: list[tuple[list[float], float, float | None]] = []
    for rest_us in (RESTED * max(first[0] + first[1]), None):
        some = calls if rest_us is None else min(calls, max(cold + TELLING, calls // 2))
        taken = _taken(contest, some, cold, rest_us, claim_us)
        gains = _said(*taken)
        found.append((gains, min(taken[0]), rest_us))
        if gains[0] > singly.VANISHED * claim_us:
            break
    gains, eager_us, rest_us = max(found, key=lambda one: one[0][-1])
    gains = [max(one[0] for one, *_ in found), gains[-1]]
    if _had(gains, claim_us):
        gains = _on_own(contest, gains, eager_us, rest_us, calls, cold)
    contest.checks.conclude()
    return gains


def _taken(contest: Race, calls: int, cold: int, rest_us: float | None, claim_us: float) -> list[list[float]]:
    """Microseconds of a call in each series of eager's, and of the candidate's at the same time, until they say
    whether half of ``claim_us`` is there: for long enough in calls that rest; where they wait, how much of it too."""
    began, most = measure.clock(), MOST_WAITING if rest_us is None else MOST
    asked = singly.VANISHED * claim_us
    enough = asked / 2 if rest_us is None else asked
    taken: list[list[float]] = [[], []]
    while len(taken[0]) < most and (not taken[0] or (measure.clock() - began) * 1e-9 <= SECONDS):
        given = _pair(contest, calls, cold, rest_us, taken)
        if not contest.checks.random_outputs:
            contest.checks.look(*given)
        if len(taken[0]) < SERIES:
            continue
        calm = all(_calm(each, claim_us) for each in taken)
        told = _said(*taken)[0] > asked or len(taken[0]) >= MOST
        if _least_two(*taken)[1] < enough or (calm and told):
            break
    return taken


def _pair(
    contest: Race, calls: int, cold: int, rest_us: float | None, taken: list[list[float]]
) -> tuple[list[Leaves], Any]:
    """A series of eager's and one of the candidate's on the same values, in an order by lot, added to ``taken``; the
    values, and the weights."""
    values = [contest.draw() for _ in range(calls)]
    for racer in contest.dice.sample([contest.racers[0], contest.racers[-1]], 2):
        mine = racer is contest.racers[-1]
        with blamed(racer.name, last=mine):
            taken[mine].append(statistics.median(_series(contest, racer, values, rest_us)[cold:]))
    return values, contest.state


def _on_own(
    contest: Race, gains: list[float], eager_us: float, rest_us: float | None, calls: int, cold: int
) -> list[float]:
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


def _said(eager: Sequence[float], mine: Sequence[float]) -> list[float]:
    """The least and the usual that series say the candidate gains: what those of one time differ by (the least at 95 %,
    by ranks; of few, by those that took least too), and no more than the two of each do that took least."""
    apart, (least, most) = _apart(eager, mine), _least_two(eager, mine)
    rank, usual = singly.low_rank(len(apart)), min(most, statistics.median(apart))
    return [min(apart[rank], usual) if rank > 0 else min(apart[0], least), usual]


def _least_two(eager: Sequence[float], mine: Sequence[float]) -> tuple[float, float]:
    """The least and the most that the two series of each say that took least."""
    first, second = sorted(eager)[:2], sorted(mine)[:2]
    return first[0] - second[-1], first[-1] - second[0]


def _apart(eager: Sequence[float], mine: Sequence[float]) -> list[float]:
    """By how much those of one time differ, in order."""
    return sorted(one - other for one, other in zip(eager, mine, strict=True))


def _calm(series: Sequence[float], claim_us: float) -> bool:
    """Whether SERIES of these are ALIKE."""
    near = min(series) + max(ALIKE[0] * claim_us, ALIKE[1] * min(series))
    return sum(one <= near for one in series) >= SERIES


def _series(contest: Race, racer: Racer, values: Sequence[Leaves], rest_us: float | None) -> list[float]:
    """Microseconds from each call's answer to the next one's. ``rest_us``: what passes before a call is handed over;
    None: nothing does, and the program waits until it is. Raises NotHanded where this is the measure of honest programs
    and cannot do it."""
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
    request = {"do": "handover", "first": first, "calls": calls, "size": arena.size, "waits": rest_us is None}
    memory[: layout.size] = 0
    said = program.leash.ask(request, program.stage, [arena.fd] if new else [])
    arena.close_fd()
    if not said.get("ready"):
        if racer is contest.racers[0]:
            raise NotHanded(said.get("why", ""))
        program.leash.end("integrity", "eager can be handed its calls one by one, and it cannot")
    own = [key.cpu() for key in keys]
    stamps, told = _handed(program, memory, layout, own, rest_us or 0.0, grad=contest.grad)
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
            rested = stamps[-1] + int(1e3 * rest_us)
            while program.clock(0) < rested:
                pass
            for place, key in zip(places, given, strict=True):  # no sooner: who reads it has the inputs
                place[call] = key[call]
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
