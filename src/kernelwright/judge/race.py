# SPDX-License-Identifier: Apache-2.0
"""Programs against each other on one case: interleaved windows on fresh values, timed calls are checked calls.

In each round all programs get the same fresh values, so rounds are pairs. Before a window the outputs are poisoned
and the cache is walked cold; which calls are compared in full (``spot_checks``) is decided after the race.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.judge import cold, intervals, layouts, load, measure, numerics, spot_checks, together, whereabouts
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.calls import Given
from kernelwright.judge.clocks import Clocks
from kernelwright.judge.cold import Cold
from kernelwright.judge.health import Steady
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.odd_calls import OddCalls
from kernelwright.judge.program import Program
from kernelwright.judge.spot_checks import SpotChecks, Suspect
from kernelwright.judge.timing_plan import TimingPlan, ahead_bytes
from kernelwright.judge.window import Window

WARM_WINDOWS, DEVICE_WARM_WINDOWS, MOST_WARM_WINDOWS = 8, 3, 24
"""Warm-up goes on past the first of these while windows still touch FRESH_PAGES new pages."""
FRESH_PAGES = 64
WARM_US = 200_000.0
ASKED = 1 / 3
"""How often the weights that calls left are looked at, besides once: a share of the rounds of a stateful program."""
OUTRUN = 0.05
"""By how much a baseline must be slower than the best, at the least, for the second process to be raced without it:
on an H200 the windows of four baselines were most of what a proof took."""
SINGLE_ROUNDS = 2
"""Of so many rounds one has windows of one call: with the empty ones after them these took a seventh of a race of small
calls on an H200, and half as many tell their median to 0.3 % of a window."""
HELD_BYTES, HELD_WINDOWS, HELD_US = 256 << 20, 8, 50_000.0
"""Results that are alive at once, windows they come from, and microseconds these take: at most, but two windows."""
Leaves = spot_checks.Leaves
Turn = Callable[[], contextlib.AbstractContextManager[None]]


class Lost(Exception):
    """A baseline's program died or misbehaved: the race must be run again without the old process."""

    def __init__(self, name: str, failure: ChildFailure) -> None:
        super().__init__(name, str(failure))
        self.name, self.failure = name, failure


@dataclass(slots=True)
class Racer:
    """One program in the race: its lane and the shared buffers of its call sets."""

    name: str
    program: Program
    suspect: Suspect
    """What of its calls is compared, and how."""
    lane: measure.Lane

    @property
    def buffers(self) -> Buffers:
        """The shared memory of its call sets."""
        return self.suspect.buffers


@dataclass(slots=True)
class Race:
    """The programs and how they are run: eager first (the measure of honest delivery), the candidate last."""

    racers: list[Racer]
    plan: TimingPlan
    draw: Callable[[], Leaves]
    """Fresh inputs of one call."""
    draw_state: Callable[[], Any] | None
    """Fresh weights, or None where they are frozen or absent."""
    state: Any
    dice: random.Random
    grad: bool
    checks: SpotChecks
    look: Callable[[Window], None]
    """Where the results of one of the candidate's windows lie."""
    left: Callable[[list[Leaves], Any], None] | None
    """Whether calls in this order, which began with these weights, left the right ones; None where none do."""
    threads: int
    device: torch.device
    warm: frozenset[str]
    """Baselines whose processes have just been raced: what is new must be warmed."""
    clocks: Clocks
    """Read between rounds."""
    odd: OddCalls
    """Turns of the candidate with values that no timed call has."""
    unseen: Sequence[Callable[[], Leaves]] = ()
    """Draws of the task's own, still to be made, where ``draw`` puts others together; see there."""
    odd_state: Callable[[], Any] | None = None
    """Weights for these turns, where they may be such as no timed call has either; else fresh ones."""
    _steady: Steady = field(default_factory=Steady)
    _strangers: load.Strangers | None = None
    _cold: Cold = field(init=False)
    _singles: bool = field(init=False)
    """Windows of one call are run too, by which the cost of a window on a device is known."""
    _held: int = field(init=False)
    """The round after whose timed window the candidate's results live on."""
    _asked: frozenset[int] = field(init=False)
    """Rounds after whose timed window the weights that calls left are looked at."""
    _odd: frozenset[int] = field(init=False)
    """Rounds in which the candidate has an odd turn."""
    _drawn: deque[tuple[list[Leaves], list[Leaves]]] = field(default_factory=deque)
    """What the first rounds will see."""
    _early: int = 0
    """How many these are. No odd turn of theirs draws either: what comes after takes no longer than elsewhere."""

    def take_turns(self, alone: Turn, shared: Turn, after: Callable[[], None]) -> None:
        """The whole race and ``after`` (of the same turn: who waits for another waits for the programs that other
        judges load), alone on the device for what is timed, which on a GPU first windows and last comparisons are not:
        they were 0.2 of the 1.9 s of a proof on an H200 in which no other judge could time."""
        if self.device.type == "cpu":  # what compiles here in the background stands still from the first window
            with alone():
                self.begin()
                self.run()
                self.conclude()
                after()
            return
        with shared():
            self.begin()
        with alone():
            self.run()
            self.checks.conclude()  # before other calls take the place of some
            after()
        with shared():
            self.conclude()

    def begin(self) -> None:
        """What comes before the rounds and is not timed: programs are warmed. Raises Lost, and what programs do."""
        if self.device.type != "cpu":
            torch.cuda.empty_cache()  # what checks in float64 took: programs need it for what they hold inside
        self._cold = cold.of(self.device, self.plan.flush_bytes)
        self._singles = self.device.type != "cpu" and self.plan.sets > 1
        self._held = self.dice.randrange(self.plan.least)
        if self.left is not None:  # until the end: a program notices when it is asked
            self._asked = frozenset(r for r in range(self.plan.most) if r == self._held or self.dice.random() < ASKED)
        first = int(self.draw_state is not None and self.plan.least > 1)
        self._odd = self.odd.rounds(self.plan.least, self.plan.most, self.plan.sets, first)
        for racer in self.racers:
            with self._blame(racer):
                self._warm(racer)
        self._prepare_odd(-1)
        self._draw_ahead()

    def run(self) -> None:
        """Race until the plan is spent. Raises Lost, ClockJumped, and what checks raise."""
        lanes = [racer.lane for racer in self.racers]
        if self.device.type == "cpu":
            pids = (os.getpid(), *(lane.program.pid for lane in lanes))
            self._strangers = load.Strangers(lambda: sum(measure.clock(pid) for pid in pids))
        self.racers[-1].program.veil.rests(measure.clock)
        measure.rounds_until(
            self._round,
            lambda: len(measure.clean_rounds(lanes)),
            least=self.plan.least,
            most=self.plan.most,
            seconds=self.plan.seconds,
            settled=lambda: measure.narrow(lanes),
        )
        self._hold(self.racers[-1])
        self.odd.over()

    def conclude(self) -> None:
        """Compare what is still to be compared of the rounds. Raises what checks raise."""
        self.checks.conclude()
        self.odd.conclude(self.racers[-1].suspect)

    def _warm(self, racer: Racer) -> None:
        """Windows that are not counted: first touch of pages, autotuners, and the steady state of the allocator.

        A fresh process needs several: on a 2-core virtual machine one call of 16 MB in and out fell from 8.1 to 1.7 ms
        over six windows, while a baseline that had been running for a while stood at 3.5 ms from the first.
        """
        if racer.name in self.warm and racer is not self.racers[-1]:
            return
        self.fill(racer, [self.draw() for _ in range(self.plan.sets)])
        spent_us, settled = 0.0, 0
        least = WARM_WINDOWS if self.device.type == "cpu" else DEVICE_WARM_WINDOWS
        for count in range(MOST_WARM_WINDOWS):
            if spent_us > WARM_US or (count >= least and settled >= 3):
                return
            window = racer.program.window(list(range(self.plan.sets)), grad=self.grad)
            spent_us += window.call_us
            settled = settled + 1 if window.strain.faults < FRESH_PAGES else 0

    def _draw_ahead(self) -> None:
        """Draw what the first rounds see, and their odd turns, as far as there is room for it."""
        room = ahead_bytes(self.device)
        window = sum(spec.nbytes() for spec in self.racers[-1].buffers.plan.inputs) * self.plan.sets
        self._early = min(self.plan.ahead(), room // max(2 * window, 1))
        for index in range(self._early):
            self._drawn.append(self._draws(index))
            if index in self._odd:
                self._prepare_odd(index)
        self.odd.room = room

    def _draws(self, index: int) -> tuple[list[Leaves], list[Leaves]]:
        """What a round's window sees, and its window of one call, where it has one."""
        values = [self.draw() for _ in range(self.plan.sets)]
        return values, [self.draw()] if self._singles and index % SINGLE_ROUNDS == 0 else []

    def _blame(self, racer: Racer) -> contextlib.AbstractContextManager[None]:
        return blamed(racer.name, last=racer is self.racers[-1])

    def _round(self, index: int) -> None:
        torch.set_num_threads(1)  # no pool of ours spins while a program is timed
        values, other = self._drawn.popleft() if self._drawn else self._draws(index)
        if self.draw_state is not None and index > 0:
            self.state = self.draw_state()
        mine, turns = self.racers[-1], self.dice.sample(self.racers, len(self.racers))
        strange = turns.index(mine) if index in self._odd else -1
        if strange >= 0:  # its own turn comes later, so that the odd window stands where a timed one would
            turns.remove(mine)
            turns.insert(self.dice.randint(strange, len(turns)), mine)
        for place, racer in enumerate(turns):
            if place == strange:
                self._odd_turn(index, other)
            self._load(racer, self.state, index)
            with self._blame(racer):
                measure.run_empty(racer.lane, grad=self.grad)  # before the values are there: nothing to work ahead on
            self._prepare(racer, values, other)
            order, held = self._order(), racer is mine and index == self._held
            with self._blame(racer):
                window = measure.run_window(racer.lane, order, grad=self.grad, keep=held)
            if racer is mine:
                self._idle()
                self.look(window)
                first = window
            if racer is mine and self.left is not None and index in self._asked:
                with self._blame(racer):
                    self.left([*other, *(values[call] for call in order)], self.state)
        self.clocks.look()
        self._steady.look()
        if self._strangers is not None:
            crowded = self._strangers.crowd()
            for racer in self.racers:
                racer.lane.crowded = crowded
        torch.set_num_threads(self.threads)
        self.checks.look(values, self.state)
        if index == self._held:
            self._hold(mine, first)

    def _idle(self) -> None:
        """While the device is this race's alone nothing of the candidate may run on it when its turn is over."""
        with self._blame(self.racers[-1]):
            self.racers[-1].program.idle()

    def _order(self) -> list[int]:
        return self.dice.sample(range(self.plan.sets), self.plan.sets)

    def load(self, racer: Racer) -> None:
        """The last weights, before a window that is no round's."""
        self._load(racer, self.state, 1)

    def walk(self) -> None:
        """Make the caches cold."""
        self._cold.walk()

    def _load(self, racer: Racer, state: Any, index: int) -> None:
        """Weights of a window: those of a round, once some were drawn. Where calls change the state every window begins
        with it, or a program would know by its being loaded that somebody will ask what calls left."""
        if self.left is not None or (self.draw_state is not None and index > 0):
            with self._blame(racer):
                racer.program.set_state(state)

    def _prepare(self, racer: Racer, values: list[Leaves], other: list[Leaves]) -> None:
        """What comes between the empty windows and the one that counts."""
        if other:
            self._run_single(racer, other)
        self.fill(racer, values)
        racer.program.veil.drop()
        self._cold.walk()

    def _odd_turn(self, index: int, other: list[Leaves]) -> None:
        """What the candidate sees of a turn, with odd values and weights of its own; see ``odd_calls``.

        The turns of others lie before it as before any other: after one that always came at the end of a round, a
        program knew by the clock, and by weights it had seen before, that nobody timed it.
        """
        racer, state = self.racers[-1], self.state
        if self.draw_state is not None and index > 0:
            state = (self.odd_state or self.draw_state)()
        values = self.odd.values()
        self._load(racer, state, index)
        with self._blame(racer):
            for _ in range(2):
                racer.program.window([], grad=self.grad)
        self._prepare(racer, values, other)
        with self._blame(racer):
            self.look(self.odd.window(racer.program, self._order(), grad=self.grad))
        torch.set_num_threads(self.threads)
        self.odd.look(racer.suspect, self.checks, state)
        if index >= self._early:
            self._prepare_odd(index)
        torch.set_num_threads(1)

    def _prepare_odd(self, after: int) -> None:
        """Draw what the next odd turn will see. After a turn this takes the place of the draws for a round, or a
        program would know by the clock, by how soon it has a turn again, that the next one is timed."""
        if any(index > after for index in self._odd):
            self.odd.prepare(self.plan.sets, self.draw)

    def _hold(self, racer: Racer, first: Window | None = None) -> None:
        """Windows whose results are alive at once, as a list of them is for its user: none may lie in another's place.

        In a window of one call nothing else would show a program that writes every result where it wrote the last
        one. It cannot know: that results live on is said when they are delivered. Not timed. On a device nobody sees
        where results lie.
        """
        if self.device.type != "cpu":
            return
        windows = [first] if first is not None else []
        size = sum(spec.nbytes() for spec in racer.buffers.plan.outputs) * self.plan.sets
        most = max(2, min(HELD_WINDOWS, HELD_BYTES // max(size, 1)))
        while len(windows) < most:
            last = len(windows) == most - 1 or (len(windows) > 0 and sum(one.call_us for one in windows) > HELD_US)
            with self._blame(racer):
                windows.append(racer.program.window(list(range(self.plan.sets)), grad=self.grad, keep=not last))
            if last:
                break
        found = [window.whereabouts for window in windows if window.whereabouts is not None]
        if found:
            together = dataclasses.replace(found[-1], shared=whereabouts.overwritten(found))
            self.look(dataclasses.replace(windows[-1], whereabouts=together))

    def _run_single(self, racer: Racer, other: list[Leaves]) -> None:
        """A window of one call, before the window that counts and like it: after two empty ones, on inputs just
        written, but on ``other`` inputs, or all that counts could be computed here. All programs run it, so that all
        come to that window alike; where only eager did, on an H200, its next window read 200 us longer than its twin's.
        """
        self.fill(racer, other)
        self._cold.walk()
        with self._blame(racer):
            measure.run_single(racer.lane, grad=self.grad)
            for _ in range(2):
                racer.program.window([], grad=self.grad)

    def fill(self, racer: Racer, values: Sequence[Leaves]) -> None:
        """Write the inputs of calls into its first sets, and poison their outputs."""
        if together.fits(racer.buffers, values):
            together.fill(racer.buffers, self.checks.stacks_of(values))
            torch.cuda.synchronize(self.device)
            return
        for index, leaves in enumerate(values):
            fill(racer.buffers, index, leaves, settle=index + 1 == len(values))


@contextlib.contextmanager
def blamed(name: str, *, last: bool) -> Iterator[None]:
    """A failure of the candidate, who is ``last``, is its own; one of a baseline is not the candidate's fault."""
    try:
        yield
    except ChildFailure as failure:
        if last:
            raise
        raise Lost(name, failure) from failure


def fill(buffers: Buffers, index: int, leaves: Leaves, *, settle: bool = True) -> None:
    """Write one call's inputs, and incoming gradients, into a set and poison its outputs. ``settle``: wait until a
    device has done so."""
    for target, leaf in zip(buffers.inputs[index], leaves, strict=True):
        layouts.write(target, leaf)
    incoming = leaves.incoming if isinstance(leaves, Given) else None
    if incoming is not None:
        for target, position in zip(buffers.seeds[index], buffers.plan.seeds, strict=True):
            target.copy_(incoming[position])
    for tensor in (*buffers.outputs[index], *buffers.grads[index]):
        numerics.poison_(tensor)
    if settle and buffers.outputs[index][0].is_cuda:
        torch.cuda.synchronize(buffers.outputs[index][0].device)


def outrun(racers: Sequence[Racer], plan: TimingPlan) -> frozenset[str]:
    """Baselines that are over OUTRUN slower than another one, by all of the interval. Never eager, which is the measure
    of the others' deliveries and answers; and who is the candidate's rival does not depend on the candidate."""
    lanes = [racer.lane for racer in racers]
    counted = measure.chosen_rounds(lanes, plan.least)
    times = {lane.name: measure.per_call_us(lane, lanes[0], plan.sets, counted) for lane in lanes[:-1]}
    sound = {r.name for r in racers[:-1] if all(check.passed for check in r.suspect.checks)}
    best = min(sound, key=lambda name: statistics.median(times[name]), default=None)
    if best is None:
        return frozenset()
    slower = {n for n in times if intervals.ratio_interval(times[n], times[best])[1] > 1 + OUTRUN}
    return frozenset(slower - {lanes[0].name})
