# SPDX-License-Identifier: Apache-2.0
"""The only clock, and what is made of its readings: interleaved rounds, which of them count, time per call.

Times are microseconds per call.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from kernelwright.judge.intervals import Sampled, median_interval
from kernelwright.judge.load import Strain

T = TypeVar("T")
DELIVERY_SLACK = 0.25
"""Share of an honest program's delivery by which another's may exceed it before the excess is charged."""
DELIVERY_FLOOR_US = 20.0
"""Delivery excess per window below this is scheduling noise on every machine seen (2-core VM: 8-15 us)."""

DISTURBED = 0.02
"""Share of a window lost to other load above which its round is not clean."""
WAKING_US = 50.0
"""Waiting that belongs to waking a stopped program and its threads, on a quiet machine too."""
OWN = 25
"""Percentile of a program's waiting, and of its page faults, that counts as its own doing."""
FAULT_US = 1.0
"""Least cost of a fresh page (1.8 us on one thread of a 2-core VM, two threads share them)."""
LONG_US = 2000.0
"""Single calls of an honest program above this say nothing of what a first launch costs: 0.5 % of 21 ms is as much. On
an H200 a program of 118 us at the least read as 56 us beside such a one, and was refused as impossible. Unless no
program's window is shorter than such a call: then it is 0.5 % of each at the most."""
NARROW = 0.005
"""Rounds end before their budget does where every ratio is known to this share of itself, either way."""
NARROW_ROUNDS = 8
"""Rounds that say enough about their own scatter for that."""
PATIENCE = 2.0
"""Rounds go on for this many times their budget where too few were clean."""


def clock(pid: int = 0) -> int:
    """Nanoseconds of a clock that never goes back (CLOCK_MONOTONIC); the only reading of time that counts.

    With the id of a process: CPU time that all its threads have used so far, 0 once it is gone.
    """
    if pid:
        try:
            return time.clock_gettime_ns((~pid << 3) | 2)  # linux: the id of another process's CPU clock
        except OSError:
            return 0
    return time.perf_counter_ns()


class Windowed(Protocol):
    """What can be timed: a confined program whose buffers are bound."""

    @property
    def pid(self) -> int:
        """Its process."""
        ...

    def window(self, order: list[int], *, grad: bool, keep: bool = False) -> Any:
        """Run the calls of ``order`` back to back; the result is a ``window.Window``."""
        ...


@dataclass(slots=True)
class Lane:
    """One program in the race and what the clock said about it."""

    name: str
    program: Windowed
    calls_us: list[float] = field(default_factory=list)
    """Wall time of each window, empty-window overhead not yet subtracted."""
    on_device: bool = False
    """The work happens on a GPU, so delivery is measured in wall time."""
    deliveries_us: list[float] = field(default_factory=list)
    empties_us: list[float] = field(default_factory=list)
    singles_us: list[float] = field(default_factory=list)
    """Windows of one call, where the honest program ran them; see ``overhead_us``."""
    idles_us: list[float] = field(default_factory=list)
    """Everything between filling the inputs and the timed window: whoever works ahead there pays for it."""
    selves_us: list[float] = field(default_factory=list)
    """Sum of what the program itself claims, per window: for the cross-check only."""

    strains: list[Strain] = field(default_factory=list)
    """Per window: threads kept waiting, fresh pages."""
    crowded: bool = False
    """Others use the CPUs too: then no waiting is taken for the program's own."""
    shortest_us: float = 0.0
    """The usual window of the fastest program in the race, where that is known."""
    _known: tuple[int, float, float] = (0, 0.0, 0.0)
    """What ``_usual`` found, and of how many windows."""

    def disturbance(self, index: int) -> float:
        """Share of a window that other load, or an allocator on its way to a steady state, took from it.

        A program whose own threads share a CPU waits for itself in every window, and would never be clean: what a
        quarter of its windows stay below is its own (a fused LayerNorm with two thread pools: 1.7 of 2.1 ms). The
        same goes for fresh pages: a program that returns memory after every call faults in every window, but one
        that usually does not takes 8.9 ms instead of 2.9 where the heap was trimmed before (two outputs of 16 MB).

        Where a stranger used one of two CPUs all the time, eager waited 1.8 ms in each of its windows of 4.1 ms by how
        its threads had come to lie, and its twin 0.2 of 3.1 ms: taken for its own, that was a gain of 1.3 (1.27 at the
        least) in one of ten races. In a crowd nothing tells a program's own waiting.
        """
        own, usual = self._usual()
        own = 0.0 if self.crowded else own
        mine = self.strains[index]
        lost = max(0.0, mine.waited_us - own - WAKING_US) + FAULT_US * max(0.0, mine.faults - usual)
        return lost / max(self.calls_us[index], 1e-9)

    def _usual(self) -> tuple[float, float]:
        """(microseconds its threads wait, pages it faults) that a quarter of its windows stay below."""
        if self._known[0] != len(self.strains):
            waited = np.percentile([strain.waited_us for strain in self.strains], OWN)
            faults = np.percentile([strain.faults for strain in self.strains], OWN)
            self._known = len(self.strains), float(waited), float(faults)
        return self._known[1:]

    def overhead_us(self, calls: int = 1) -> float:
        """Cost of a window of ``calls`` calls that is not theirs: waking, two messages, stopping.

        That of the shortest window which ran nothing: under other load the median of five was 5 ms, for 0.13 at rest,
        and what is subtracted too much makes every program look faster. Where windows of one call were run too, what
        these take beyond the time that each further call adds: on an H200 a first launch after sleep took 70 to 130
        us in which the device had nothing to do, and an empty window has no launch. Not of calls over LONG_US and
        longer than the shortest window, which scatter by more than that.
        """
        empty = min(self.empties_us, default=0.0)
        single = statistics.median(self.singles_us) if self.singles_us else math.inf
        if calls < 2 or single > max(LONG_US, self.shortest_us):
            return empty
        each = (statistics.median(self.calls_us) - single) / (calls - 1)
        return max(empty, min(single - each, single))


def acquaint(lanes: Sequence[Lane]) -> None:
    """Tell each program of a race how long the shortest of all their windows usually is."""
    shortest = min(statistics.median(lane.calls_us) for lane in lanes)
    for lane in lanes:
        lane.shortest_us = shortest


def run_empty(lane: Lane, *, grad: bool) -> None:
    """Time one window without calls, after one that wakes the program's own code into the cache."""
    windows = [lane.program.window([], grad=grad) for _ in range(2)]
    lane.empties_us.append(float(windows[1].call_us))
    lane.idles_us.append(float(sum(window.call_us + window.deliver_us for window in windows)))


def run_single(lane: Lane, *, grad: bool) -> None:
    """Time one window with one call, on the first set."""
    lane.singles_us.append(float(lane.program.window([0], grad=grad).call_us))


def run_window(lane: Lane, order: list[int], *, grad: bool, keep: bool = False) -> Any:
    """Time one window with the calls of ``order`` and file the readings; the ``window.Window``. ``keep``: see there."""
    window = lane.program.window(order, grad=grad, keep=keep)
    lane.strains.append(window.strain)
    lane.calls_us.append(float(window.call_us))
    lane.deliveries_us.append(float(window.deliver_us if lane.on_device else window.deliver_cpu_us))
    lane.selves_us.append(float(sum(window.self_us)))
    return window


def clean_rounds(lanes: Sequence[Lane]) -> list[int]:
    """Rounds in which no program lost more than DISTURBED of its window."""
    return [r for r in range(len(lanes[0].calls_us)) if all(lane.disturbance(r) <= DISTURBED for lane in lanes)]


def chosen_rounds(lanes: Sequence[Lane], least: int) -> list[int]:
    """The rounds that count: the clean ones, or where these are too few the ``least`` least disturbed.

    The choice looks at waiting and page faults only, never at a time, and takes or leaves a round for all programs
    together.
    """
    clean = clean_rounds(lanes)
    if len(clean) >= least:
        return clean
    everything = range(len(lanes[0].calls_us))
    calmest = sorted(everything, key=lambda r: max(lane.disturbance(r) for lane in lanes))
    return sorted(calmest[:least])


def charged_us(lane: Lane, honest: Lane, rounds: Sequence[int]) -> float:
    """Cost per window that this program has beyond the honest one outside the clock: in its delivery (work it left
    undone when it said done) and in the empty windows before (work it did ahead).

    On a CPU the cost is CPU time of the whole process, which other load hardly disturbs; on a device, wall time.
    Compared round by round; charged only where the whole interval of the excess lies above the slack: an honest
    program must not pay for noise, and a lazy one is late in every round.
    """
    late = _excess_us([lane.deliveries_us[r] for r in rounds], [honest.deliveries_us[r] for r in rounds])
    idles, usual = lane.idles_us, honest.idles_us
    if len(idles) != len(lane.calls_us) or len(usual) != len(idles):
        return late  # a lane of windows alone
    return late + _excess_us([idles[r] for r in rounds], [usual[r] for r in rounds])


def _excess_us(mine: Sequence[float], honest: Sequence[float]) -> float:
    excess = [a - b for a, b in zip(mine, honest, strict=True)]
    low, _ = median_interval(excess)
    allowed = max(DELIVERY_FLOOR_US, DELIVERY_SLACK * statistics.median(honest))
    return statistics.median(excess) if low > allowed else 0.0


def per_call_us(lane: Lane, honest: Lane, calls: int, rounds: Sequence[int]) -> list[float]:
    """Samples in microseconds per call: window less overhead plus charged delivery, over the calls in it.

    The overhead is the honest program's, so that nobody gains by dawdling in his own empty windows. A window never
    counts as less than a tenth of itself: subtracting the overhead cannot make time vanish.
    """
    extra = charged_us(lane, honest, rounds)
    base = honest.overhead_us(calls)
    windows = [lane.calls_us[r] for r in rounds]
    return [(max(window - base, 0.1 * window) + extra) / calls for window in windows]


def narrow(lanes: Sequence[Lane]) -> bool:
    """Whether the clean rounds already tell the last program's ratio to every other one's to NARROW.

    From the median absolute deviation of the paired ratios, as of normal ones. It looks at the scatter only, never at
    who is faster, so ending here favours nobody.
    """
    clean = clean_rounds(lanes)
    if len(clean) < NARROW_ROUNDS:
        return False
    mine = np.asarray([lanes[-1].calls_us[r] for r in clean])
    for lane in lanes[:-1]:
        ratios = np.asarray([lane.calls_us[r] for r in clean]) / mine
        scatter = 1.4826 * float(np.median(np.abs(ratios / np.median(ratios) - 1.0)))
        if 1.96 * 1.2533 * scatter / len(clean) ** 0.5 > NARROW:
            return False
    return True


def sampled(lane: Lane, honest: Lane, calls: int, rounds: Sequence[int], others: Sequence[int]) -> Sampled:
    """The counted rounds of one program, in all readings. ``others``: the rounds that would count by the strain of the
    baselines alone. A program that let its own threads fight for CPUs where it worked honestly had those rounds taken
    for disturbed, and the others, 40 % of all, for a gain of 7."""
    times = per_call_us(lane, honest, calls, rounds)
    beyond = max(0.0, lane.overhead_us(calls) - honest.overhead_us(calls)) / calls
    lost = [lane.disturbance(r) for r in rounds]
    kept = [1.0 - min(part, 0.9) if part > DISTURBED else 1.0 for part in lost]
    return Sampled(
        times=times,
        own=[max(time - beyond, 0.1 * time) for time in times],
        calm=[time * part for time, part in zip(times, kept, strict=True)],
        doubted=times,
        fair=per_call_us(lane, honest, calls, others),
    )


def rounds_until(
    step: Callable[[int], None],
    clean: Callable[[], int],
    *,
    least: int,
    most: int,
    seconds: float,
    settled: Callable[[], bool] = lambda: False,
) -> int:
    """Call ``step(i)`` until ``seconds`` are spent and ``clean()`` is at least ``least``; at most ``most`` times.

    ``settled()`` ends it early. Where other load keeps rounds from being clean, patience ends at PATIENCE times
    ``seconds``.
    """
    start = clock()
    done = 0
    while done < most:
        spent = (clock() - start) * 1e-9
        enough = clean() >= least or spent >= PATIENCE * seconds
        if done >= least and enough and (spent >= seconds or settled()):
            break
        step(done)
        done += 1
    return done


def stopwatch(action: Callable[[], object]) -> float:
    """Seconds that ``action`` takes: for budgets (how long is one draw?), never for a result."""
    start = clock()
    action()
    return (clock() - start) * 1e-9


def timed(action: Callable[[], T]) -> tuple[T, float]:
    """What ``action`` gives, and the seconds it takes: for budgets, as ``stopwatch``."""
    start = clock()
    return action(), (clock() - start) * 1e-9
