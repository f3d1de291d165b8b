# SPDX-License-Identifier: Apache-2.0
"""Windows that look like those that are timed, with other values in them than timed ones have.

What is timed gets the task's own values, and a program can tell that time has come: windows grow long. One that
leaves out then what the task's own values never need (the maximum of a softmax, the branch for negative numbers) is
right in every timed call and no program of the task. So in rounds drawn in secret the candidate has one more turn,
which is not timed, in which some calls are of other variants.

The others of such a window are drawn as timed ones are, and what is odd is a change of what was drawn so: where draws
are recombined a program that knows what they are made of would else tell. Such turns come as long as the race lasts, by
a lot drawn for each round, or a program would wait until they are over. Every odd call is
compared with eager's own answer at once, and in full where it lies further from it than timed calls may; the first ones
of a case that is not dear also at the end.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernelwright.judge import amid, taken, variants
from kernelwright.judge.inputs import Variant
from kernelwright.judge.spot_checks import Leaves, Mismatch, SpotChecks, Suspect
from kernelwright.judge.variants import AS_GIVEN, HEAVY

if TYPE_CHECKING:
    from kernelwright.judge.bench import Point
    from kernelwright.judge.program import Program
    from kernelwright.judge.window import Window

CHANCE = 1 / 3
"""That a round has an odd turn, whatever those before it had: where each five had one, a program that counted them knew
in half of the rounds that what it saw next was timed."""
ALIKE = 3 / 4
"""Of odd windows on a device those whose calls follow each other as timed ones do."""
WHOLE, WHOLE_BYTES = 8, 256 << 20
"""On a device, calls of a dear case's odd window that are changed as a whole, and bytes of one up to which they are: a
variance by squares of 8 million elements passed in windows that timed ones are like, while all changes came mixed into
one draw."""
Draw = Callable[[], Leaves]


@dataclass(frozen=True, slots=True)
class _Kept:
    variant: Variant
    leaves: Leaves
    state: Any
    outputs: Leaves
    inputs: Leaves


@dataclass(frozen=True, slots=True)
class _Deferred:
    """A window that is still to be looked at: its weights, and of each odd call what it was, its answers, and what it
    left of its inputs."""

    checks: SpotChecks
    state: Any
    calls: list[tuple[Variant, Leaves, Leaves, Leaves]]


@dataclass(slots=True)
class OddCalls:
    """The odd windows of one race: at least ``windows`` of them in as many rounds as it has at least, over which all
    variants are dealt, and on. On a dear case, and where there are too few calls for that, each holds one call with all
    changes of value."""

    point: Point
    dice: random.Random
    windows: int
    lasting: bool = True
    """They go on for as long as the race does."""
    strewn: tuple[str, ...] = ("",)
    """How a few odd rows are strewn, in turn; see ``Variant``."""
    _deck: list[Variant] = field(default_factory=list)
    """Variants whose turn is still to come."""
    _hand: int = 0
    """How many of them a window takes."""
    _always: list[Variant] = field(default_factory=list)
    """Variants that every window has besides."""
    _full: int = 0
    """Odd calls that are still to be compared in full."""
    _chosen: dict[int, tuple[Variant, Leaves]] = field(default_factory=dict)
    _given: list[Leaves] = field(default_factory=list)
    """Inputs of the last window."""
    _coming: deque[tuple[list[Leaves], dict[int, tuple[Variant, Leaves]]]] = field(default_factory=deque)
    """Those of the next ones, with what is odd of them."""
    room: int = 0
    """Bytes of what may be kept to be looked at when the race is over, while others may use its device."""
    _deferred: list[_Deferred] = field(default_factory=list)
    _kept: list[_Kept] = field(default_factory=list)

    def rounds(self, least: int, most: int, sets: int, first: int = 0) -> frozenset[int]:
        """In which rounds of ``sets`` calls there is one, of at least and at most so many, from ``first`` on; none
        where there is nothing to vary."""
        self._always, self._deck = self._offered(self.windows * sets) if self.windows else ([], [])
        self.dice.shuffle(self._deck)
        if not self._deck and not self._always:
            return frozenset()
        self._hand = -(-len(self._deck) // self.windows)
        if self._always:
            self._hand = min(self._hand, WHOLE)
        self._full = 0 if self.point.dear else self.windows * self._hand
        wanted, last = min(self.windows, max(1, least // 2), least - first), most if self.lasting else least
        while True:
            chosen = frozenset(r for r in range(first, last) if self.dice.random() < CHANCE)
            if sum(r < least for r in chosen) >= wanted:
                return chosen

    def prepare(self, sets: int, draw: Draw) -> None:
        """Draw a window that is to come: some before the race, and then one after each, so that its inputs are no
        longer in coming than those of a timed one."""
        hand = min(self._hand, sets - len(self._always), len(self._deck))
        some, self._deck = self._deck[:hand], [*self._deck[hand:], *self._deck[:hand]]
        some = [*self._always, *some]
        places = self.dice.sample(range(sets), len(some))
        ready = [draw() for _ in range(sets)]
        chosen = {}
        for place, variant in zip(places, some, strict=True):
            ready[place] = self._changed(variant, ready[place])
            chosen[place] = variant, ready[place]
        self._coming.append((ready, chosen))

    def values(self) -> list[Leaves]:
        """Inputs of one window: odd ones in places drawn by lot, the task's own in the others."""
        self._given, self._chosen = self._coming.popleft()
        return self._given

    def window(self, program: Program, order: list[int], *, grad: bool) -> Window:
        """Run it: on a device each result is copied right after its call, or, by lot, a few of them are (``amid``)."""
        places = amid.places(len(order), self.dice) if self.dice.random() < ALIKE else []
        if places and program.device != "cpu":
            for index in () if self.point.instance.contract.random else [order[place] for place in places]:
                self._chosen.setdefault(index, (self.point.as_given, self._given[index]))  # compared too
            return program.looked_at(order, places, grad=grad)
        return program.window(order, grad=grad, at_once=True)

    def look(self, suspect: Suspect, checks: SpotChecks, state: Any) -> None:
        """Compare the odd calls of the window that has just run with eager's answers, or keep them until the race is
        over, as far as there is ``room``: looking at them, and drawing them, was a seventh of the time for which a race
        on an H200 kept others waiting. Raises Mismatch."""
        chosen, buffers, size = self._chosen, suspect.buffers, self.point.call_bytes * len(self._given)
        kept = self.room >= size > 0
        calls = [
            (variant, leaves, buffers.answers(place), list(buffers.inputs[place]))
            for place, (variant, leaves) in chosen.items()
        ]
        self._chosen, self._given = {}, []
        if not kept:
            self._compare(suspect, _Deferred(checks, state, calls))
            return
        self.room -= size
        calls = [(v, leaves, [t.clone() for t in ours], [t.clone() for t in after]) for v, leaves, ours, after in calls]
        self._deferred.append(_Deferred(checks, state, calls))

    def _compare(self, suspect: Suspect, window: _Deferred) -> None:
        checks, state = window.checks, window.state
        random_ = self.point.instance.contract.random  # eager's own answer to it is another one
        calls = [
            (leaves, ours, after, [] if random_ else self.point.instance.eager(leaves, state))
            for _, leaves, ours, after in window.calls
        ]
        near = [False] * len(calls) if random_ else checks.alike(calls)
        for (variant, *_), call, passes in zip(window.calls, calls, near, strict=True):
            leaves, ours, after, eager = call
            if not passes:
                if not random_:
                    first = state is self.point.instance.first_state
                    if not first and not self.point.checker.accepts(variant, leaves, state):
                        continue  # with those weights, that is: with the first ones it does
                    self.point.checker.answered(leaves, state, eager)
                self._judge(suspect, _Kept(variant, leaves, state, ours, list(after)))
            elif self._full > 0:
                outputs, inputs_after = ([tensor.clone() for tensor in part] for part in (ours, after))
                self._kept.append(_Kept(variant, leaves, state, outputs, inputs_after))
            else:
                suspect.sampled += 1
            self._full -= 1

    def over(self) -> None:
        """No more windows come."""
        self._coming.clear()

    def conclude(self, suspect: Suspect) -> None:
        """Compare what was kept: with eager's answers, and in full. Raises Mismatch."""
        while self._deferred:
            self._compare(suspect, self._deferred.pop(0))
        kept, self._kept = self._kept, []
        for call in kept:
            self._judge(suspect, call)

    def _judge(self, suspect: Suspect, call: _Kept) -> None:
        check = self.point.checker.check
        result = suspect.spared(check(call.variant, call.leaves, call.state, call.outputs, call.inputs))
        suspect.checks.append(result)
        if not result.passed:
            raise Mismatch(result, call.leaves, call.state)

    def _changed(self, variant: Variant, given: Leaves) -> Leaves:
        """A call drawn as timed ones are, with one change. Near-duplicates are those of one call that others saw."""
        seed = self.dice.getrandbits(62)
        if variant.change in ("near-duplicate", "nearly", "rearranged"):
            return taken.or_as_given(self.point, variant, self.point.instance.draw(variant, seed), given)
        if variant.change == "strewn":
            variant = replace(variant, strewn=self.strewn[0])
            self.strewn = (*self.strewn[1:], self.strewn[0])
        instance = self.point.instance
        made = instance.given(instance.changed(given, variant, seed), seed)
        return taken.or_as_given(self.point, variant, made, given)

    def _offered(self, calls: int) -> tuple[list[Variant], list[Variant]]:
        """What every window has, and changes of value that the reference accepts, to be dealt: layouts have buffers of
        their own. On a dear case, or where there are fewer ``calls`` than changes (long calls are timed one to a
        window), all in one draw; a device has time for some of a dear case's beside that.
        """
        if self.point.instance.contract.random:  # there a comparison takes 36 calls of eager's
            return [], self._strewn()
        on_device = self.point.instance.device.type != "cpu" and self.point.call_bytes <= WHOLE_BYTES
        if self.point.dear and not (on_device and calls > self.windows and self.point.instance.work <= HEAVY):
            return [], self._strewn()
        offered = (v for v in self.point.offered if v.name != AS_GIVEN and v.layout == "contiguous")
        deck = [v for v in offered if (v.change or v.special or v.scale != 1.0) and self.point.usable(v)]
        if self.point.dear:
            mixed = self._strewn()
            return mixed[:1], [*mixed[1:], *deck]
        return [], deck if calls >= len(deck) else self._strewn() or deck

    def _strewn(self) -> list[Variant]:
        """Few odd rows: those of ``mixed``, which checks before the race have, any sample shows."""
        some = variants.mixed_of(self.point.instance, few=True)
        first = next((v for v in some if self.point.usable(_whole(v))), None)  # a call of eager's for each
        others = [v for v in self.point.offered if v.change == "constants" and self.point.usable(v)]
        return others if first is None else [replace(first, constants=v.constants) for v in others] or [first]


def _whole(variant: Variant) -> Variant:
    """The same with a whole row for each change. Of a few, by lot, or of spots, a draw that the reference takes says
    little of the next: a refusal of torch.multinomial's ended the judge."""
    return replace(variant, name=f"{variant.name}, each of them", strewn="rows")
