# SPDX-License-Identifier: Apache-2.0
"""What stays warm for one task on one device: reference, instances, checkers, baselines, and one known call."""

from __future__ import annotations

import functools
import itertools
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kernelwright.errors import TaskError
from kernelwright.judge import (
    foresight,
    health,
    measure,
    numerics,
    pages,
    room,
    slices,
    timing_plan,
    weights,
)
from kernelwright.judge.admission import Admission, Known, admit
from kernelwright.judge.buffers import Buffers, CallPlan
from kernelwright.judge.entrant import Entrant
from kernelwright.judge.foresight import Say
from kernelwright.judge.inputs import Variant, layout_for
from kernelwright.judge.instance import Instance, State
from kernelwright.judge.layouts import EXPANDED, of_gradient, spec_of
from kernelwright.judge.near_sizes import Plan
from kernelwright.judge.program import Program
from kernelwright.judge.recombined import Recombiner
from kernelwright.judge.reference import Reference
from kernelwright.judge.stock import Stock
from kernelwright.judge.variants import AS_GIVEN, HEAVY, LIGHT
from kernelwright.judge.verify import Checker, Drawn, Truth
from kernelwright.limits import Trace
from kernelwright.task import Case, Task

KNOWN_CALL_USES = 16
"""How many coarse candidates see the same first call before it is drawn anew (its oracle is the dear part)."""
AUTOCAST = "bfloat16"
"""The dtype that a contract with ``autocast`` is also judged under."""
SLOW_S = 0.05
"""Calls of the reference that take longer are not made again to learn how long they take."""
LOOKS, LOOKS_S = 8, 0.05
"""So many calls, or so many seconds of them, say how long one takes."""
DEAR_BYTES = 8 << 20
DEAR_DRAWS, DEAR_DRAW_SECONDS = 10, 0.1
"""A draw that takes so many times its budget, and so many seconds, is the last real one of a race."""
MADE_BYTES = 256 << 20
"""Of recombined draws that are made at once."""


@dataclass
class Point:
    """One case ready to be judged on."""

    case: Case
    instance: Instance
    checker: Checker
    seed: int
    known: dict[str, bool]
    """Which variants the reference was seen to accept, by name; shared by all points of a case."""

    def __post_init__(self) -> None:
        self.offered = self.instance.offered(self.seed)
        """What may be drawn; the first is the task's own. Nothing can be varied where there is nothing."""
        if any(0 in spec.shape for spec in self.instance.specs):
            self.offered = self.offered[:1]
        tensors = [*self.instance.specs, *self.instance.out_specs]
        self.state_bytes = numerics.held_bytes(tensor for _, tensor in self.instance.first_state)
        self.call_bytes = sum(spec.nbytes() for spec in tensors) + self.state_bytes
        """Inputs, outputs and weights of one call."""

    @property
    def dear(self) -> bool:
        """A full check costs so much that variants proven on smaller cases are not repeated one by one."""
        return self.call_bytes > DEAR_BYTES or self.instance.work > LIGHT

    @property
    def manner(self) -> tuple[str, bool]:
        """In which precision and mode it is run: what holds in one may not hold in another."""
        return self.instance.autocast, self.instance.training

    @property
    def as_given(self) -> Variant:
        """The task's own way of drawing."""
        return self.offered[0]

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Those that the reference accepts: finding out costs an eager call each, once."""
        return tuple(variant for variant in self.offered if self.usable(variant))

    def usable(self, variant: Variant) -> bool:
        """Whether the reference accepts one of ``offered`` on this case."""
        if variant.name not in self.known:
            self.known[variant.name] = self.instance.usable(variant, self.seed)
        return self.known[variant.name]

    def accepts(self, variant: Variant, leaves: list[torch.Tensor], state: State) -> bool:
        """The same of inputs that are about to be checked, whatever others showed, of another program too, by lot."""
        several = self.instance.bonds.lots(variant, self.instance.factors) > 1
        if not (self.usable(variant) if several else self.known.get(variant.name, True)):
            return False
        taken = variant.name == AS_GIVEN or self.checker.accepts(variant, leaves, state)
        return self.known.setdefault(variant.name, taken) and taken

    def call_plan(self, variant: Variant, sets: int, leaves: Sequence[torch.Tensor] = ()) -> CallPlan:
        """Buffers for ``sets`` calls in the variant's layout; see ``bind``."""
        specs, outputs = self.instance.specs, self.instance.out_specs
        incoming = tuple(outputs[leaf] for leaf in variant.roots or self.instance.seeds)
        if variant.layout != "contiguous":
            count = len(specs)
            specs = tuple(spec_of(spec, layout_for(variant, i, count)) for i, spec in enumerate(specs))
            if variant.layout != EXPANDED:
                incoming = tuple(of_gradient(spec, variant.layout, self.instance.device) for spec in incoming)
        return CallPlan(
            arguments=slices.handed(self.instance.skeleton, leaves, variant.name),
            inputs=specs,
            results=self.instance.out_skeleton,
            outputs=tuple(self.instance.out_specs),
            sets=sets,
            gradients=self.instance.gradients,
            orders=self.instance.out_strides if self.ordered(variant) else (),
            seeds=variant.roots or self.instance.seeds,
            incoming=incoming,
        )

    def ordered(self, variant: Variant) -> bool:
        """Whether results must lie in a usual order: what comes of odd inputs may be as odd."""
        return variant.layout == "contiguous" and not self.instance.contract.free_strides

    def bind(self, program: Program, variant: Variant, sets: int, leaves: Sequence[torch.Tensor] = ()) -> Buffers:
        """Shared memory for ``sets`` calls of a program, incoming gradients written. ``leaves``: of the only call."""
        buffers = program.bind(self.call_plan(variant, sets, leaves))
        for seeds in buffers.seeds:
            for target, leaf in zip(seeds, buffers.plan.seeds, strict=True):
                assert self.instance.incoming is not None
                target.copy_(self.instance.incoming[leaf])
        return buffers


class Bench:
    """One task on one device; ``say`` hears what takes long, ``left`` are the seconds there are (None: no hurry).

    Raises the task errors of ``Reference`` and ``Instance``, NotEnoughMemory and BudgetTooSmall. Not thread-safe."""

    def __init__(self, task: Task, device: str, *, left: float | None = None, say: Say = lambda text: None) -> None:
        began = measure.clock()
        self.task, self.device, self.contract = task, torch.device(device), task.contract
        self.seed = secrets.randbits(62)
        self.reference = Reference(task, device)
        pages.suit(2 * room.check(self.reference, task.timed_case()), room.available_bytes())
        self._usable: dict[tuple[Case, str, bool], dict[str, bool]] = {}
        self._drawn: dict[tuple[Case, str, bool], Drawn] = {}
        opening = None if task.contract.random else secrets.randbits(62)
        self.reference.instance(task.timed_case(), opening=opening)
        self.timed = self._point(task.timed_case())
        self.entrants: dict[str, Entrant] = {}
        self.admission: Admission | None = None
        self.bound: tuple[float | None, str] | None = None
        """(unavoidable microseconds or None, limiter), once asked for."""
        self.traced: Trace | None = None
        """The timed case of the reference, once traced: what its bounds come from."""
        self.near: Plan | None = None
        """Sizes next to the timed ones that the reference takes, once asked for."""
        self.looked_again = False
        """Whether ``bound`` comes from a second look at the device's memory, which then outdoes any other."""
        self.cache_bytes = timing_plan.cache_bytes(self.device)
        self.eager_aliases: frozenset[tuple[int, int]] = frozenset()
        """(output, input) pairs that share storage in the reference itself; known once eager has run."""
        self.eager_shared: frozenset[int] = frozenset()
        """Outputs whose memory is the same in every call of the reference, such as a weight that it returns."""
        self.eager_together: frozenset[tuple[int, int]] = frozenset()
        """Pairs of outputs that share memory in each call of the reference."""
        self._stock: tuple[int, Stock] | None = None
        self._fresh: State | None = None
        self._recombiner = Recombiner(self.device)
        self.most_sets: int | None = None
        """Call sets that the device has room for, where more were tried."""
        self.sized = False
        """Whether ``eager_us`` is that of the reference as a program of its own, not in this process."""
        self._known: tuple[list[torch.Tensor], int] | None = None
        self._asked = False  # whether a candidate was asked the known call

        def still() -> float | None:
            return None if left is None else left - 1e-9 * (measure.clock() - began)

        foresight.look(self.timed.instance, still(), say)
        self._measure_reference()
        foresight.look_again(self.timed.instance, still(), say)

    def _measure_reference(self) -> None:
        """Sizes and rough costs, for planning only."""
        instance = self.timed.instance
        self.state_bytes, self.call_bytes = self.timed.state_bytes, self.timed.call_bytes
        pages.suit(self.call_bytes, room.available_bytes())
        health.in_pieces(wanted=self.tight)
        as_given = self.timed.as_given
        opened, instance.opened = instance.opened, None
        if opened is not None and instance.call_seconds > SLOW_S:
            # What the first look at the reference took is known well enough, and its call serves as the known one.
            self.draw_seconds, self.eager_us = instance.draw_seconds, 1e6 * instance.call_seconds
            self._known = opened[0], 0
            self.timed.checker.answered(opened[0], instance.first_state, opened[1])
            self.timed.checker.truth(as_given, self.known_call(), instance.first_state)
            return
        del opened  # a call may be a tenth of a device
        self.draw_seconds = measure.stopwatch(lambda: instance.draw(as_given, 0))
        leaves = instance.draw(as_given, 1)
        synchronise(self.device)
        taken: list[float] = []
        # The first call pays for what is new, and a busy machine keeps any of them waiting: short ones are looked at
        # more often. Plans are made with this, and models read it.
        while len(taken) < (2 if instance.work <= HEAVY else 1) or len(taken) < LOOKS and sum(taken) < LOOKS_S:
            taken.append(measure.stopwatch(lambda: self._eager(leaves)))
        self.eager_us = 1e6 * min(taken)
        leaves.clear()
        self.timed.checker.truth(as_given, self.known_call(), instance.first_state)

    def _eager(self, leaves: list[torch.Tensor]) -> None:
        self.timed.instance.eager(leaves, None)
        synchronise(self.device)

    def _point(self, case: Case, seed: int | None = None, autocast: str = "", *, switched: bool = False) -> Point:
        """A case with a checker of its own; everything drawn on it follows from ``seed`` (None: the bench's own)."""
        seed = self.seed if seed is None else seed
        instance = self.reference.instance(case, autocast, switched=switched)
        key = case, autocast, switched
        checker = Checker(instance, seed=seed % 2**31, drawn=self._drawn.setdefault(key, {}))
        return Point(case, instance, checker, seed, self._usable.setdefault(key, {}))

    def points(self, seed: int) -> tuple[Point, ...]:
        """Every case, the timed one first: those of the task (errors are the user's) and hidden ones that make sense.

        What is drawn on them follows from ``seed``; which hidden shapes there are is the bench's own secret.
        """
        return self._point(self.task.timed_case(), seed), *self.others(seed)

    def others(self, seed: int) -> tuple[Point, ...]:
        """``points`` without the timed case."""
        timed = self.task.timed_case()
        points = [self._point(c, seed) for c in self.task.cases if c != timed]
        empty = self.reference.empty_cases() if self.contract.zero_size else ()
        points += self.accepted((*self.reference.hidden_cases(self.seed), *empty), seed)
        if self.contract.autocast:
            points += [self._point(case, seed, AUTOCAST) for case in self.task.cases]
        if self.contract.both_modes:
            points += [self._point(case, seed, switched=True) for case in self.task.cases]
        return tuple(points)

    def probes(self, seed: int) -> list[Point]:
        """Cases that are tried without being asked for: one axis at size 0, where the reference accepts that."""
        cases = self.reference.empty_cases()
        if self.contract.zero_size or not cases:
            return []
        return self.accepted((cases[seed % len(cases)],), seed)

    def accepted(self, cases: Sequence[Case], seed: int) -> list[Point]:
        """Those of ``cases`` that the reference does not refuse itself; of several of one name the first."""
        points: list[Point] = []
        for case in cases:
            if any(known.case.name == case.name for known in points):
                continue
            try:
                points.append(self._point(case, seed))
            except TaskError:
                continue
        return points

    def known_call(self, *, asking: bool = False) -> list[torch.Tensor]:
        """Inputs of a first call shared by a few candidates, so that its oracle is computed once for all of them.
        ``asking``: one of them gets to see it."""
        self._asked = self._asked or asking
        if self._known is None or self._known[1] >= KNOWN_CALL_USES:
            self._known = self.timed.instance.draw(self.timed.as_given, secrets.randbits(62)), 0
        leaves, uses = self._known
        self._known = None if self.tight else (leaves, uses + 1)
        return leaves

    def unasked(self) -> tuple[list[torch.Tensor], Truth] | None:
        """The known call, with what is known of it, where that is dear and no candidate was asked it: the first one of
        one proof. It was drawn in secret as a proof's own is, by another seed."""
        timed = self.timed
        if self._asked or self.contract.random or timed.instance.work <= HEAVY:
            return None
        leaves = self.known_call(asking=True)
        return leaves, timed.checker.truth(timed.as_given, leaves, timed.instance.first_state)

    def some_call(self) -> list[torch.Tensor]:
        """Inputs of the timed case of which nobody looks at the values."""
        return self._known[0] if self._known is not None else self.timed.instance.draw(self.timed.as_given, 0)

    @property
    def tight(self) -> bool:
        """A device has hardly room for one call of each program: less is kept, and by fewer programs."""
        return timing_plan.tight(timing_plan.device_bytes(self.device), self.call_bytes)

    def admit(self, say: Say = lambda text: None) -> Admission:
        """Whether known-wrong programs are told from the reference; found out once. ``say`` hears what is tried."""
        if self.admission is None:
            known = None  # where results are random, a checker remembers what it was shown
            if not self.contract.random:
                known = Known(self.timed.instance, self.timed.checker, self.known_call(), self.tight)
            self.admission = admit(self.reference, seed=self.seed % 2**31, known=known, say=say)
        return self.admission

    def plan(self, spend: timing_plan.Spend, processes: int) -> timing_plan.TimingPlan:
        """How the timed case is raced."""
        return timing_plan.plan(
            spend,
            call_bytes=self.call_bytes,
            call_us=self.eager_us,
            cache_bytes=self.cache_bytes,
            processes=processes,
            device_bytes=timing_plan.device_bytes(self.device),
            result_bytes=sum(spec.nbytes() for spec in self.timed.instance.out_specs),
            most_sets=self.most_sets,
        )

    def draws(
        self, seed: int, budget: float, stock_seed: int | None = None, sets: int = 1
    ) -> Iterator[list[torch.Tensor]]:
        """Endless fresh inputs of the timed case: real draws if one costs at most ``budget`` seconds, else recombined.

        A recombined draw takes every leaf from one of a few real draws, replaces a random stretch of it by another's
        and moves every floating element by up to 3 %, so that nothing in it, not even in proportion, was seen before.
        Of whole numbers it takes every second one, by lot, from the other draw (``stock``).
        The real draws follow from ``stock_seed`` (None: the bench's own, so that coarse candidates share them). On a
        device recombined draws are made for ``sets`` calls at once, as far as MADE_BYTES hold them.
        """
        instance, as_given = self.timed.instance, self.timed.as_given
        if self.draw_seconds <= budget:
            for number in itertools.count():
                real, seconds = measure.timed(functools.partial(instance.draw, as_given, seed + number))
                yield real
                if seconds > max(DEAR_DRAWS * budget, DEAR_DRAW_SECONDS) and not self.tight:
                    break  # it was cheap when it was tried, and is not now
        stock_seed = self.seed if stock_seed is None else stock_seed
        if self._stock is None or self._stock[0] != stock_seed:
            self._stock = stock_seed, Stock(instance, as_given, stock_seed, self._recombiner)
        stock, dice = self._stock[1], torch.Generator().manual_seed(seed % 2**63)
        while not stock.taken:
            yield instance.draw(as_given, seed := seed + 1)
        at_once = min(sets, MADE_BYTES // max(self.call_bytes, 1))
        while self.device.type == "cuda" and at_once > 1 and stock.free:
            drawn = self._recombiner.batch(stock.drawn, instance.kept, at_once, dice)
            yield from (instance.given(list(call), int(torch.randint(2**60, (), generator=dice))) for call in drawn)
        while True:
            made = stock.made(dice)
            yield instance.given(made, int(torch.randint(2**60, (), generator=dice)))

    def fresh(self) -> State | None:
        """Fresh weights of the timed case that all coarse candidates' weights are made of, where a draw is dear."""
        if self._fresh is None and self.timed.state_bytes > DEAR_BYTES:
            self._fresh = self.timed.instance.draw_state(self.seed)
        return self._fresh

    def states(
        self, instance: Instance, seed: int, budget: float, stock: State | None, how: str = ""
    ) -> Iterator[State]:
        """Endless fresh weights of an instance: real draws (every second moved ``how``: ``weights.moved``) until one
        costs more than ``budget`` seconds, from then on recombinations of that one (or of ``stock``) with the first
        weights, as ``draws`` makes them; whole numbers are those of one of them. Tied tensors stay tied."""
        for number in itertools.count():
            if stock is None:
                moved = how if number % 2 == 0 else ""
                draw = functools.partial(instance.draw_state, (seed + number) % 2**62, moved)
                real, seconds = measure.timed(draw)
                stock = real if seconds > budget else None
                yield real
                continue
            dice = torch.Generator().manual_seed((seed + number) % 2**62)
            mix = functools.partial(self._recombiner.of, dice=dice)
            yield weights.recombined(instance.first_state, stock, mix, renew=bool(torch.randint(2, (), generator=dice)))

    def close(self) -> None:
        """End the baselines' programs."""
        for entrant in self.entrants.values():
            entrant.close()
        self.entrants = {}


def synchronise(device: torch.device) -> None:
    """Wait for a device that works behind our back."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
