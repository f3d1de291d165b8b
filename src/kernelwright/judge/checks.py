# SPDX-License-Identifier: Apache-2.0
"""Calls of a candidate, one or several in a window, compared; and the variants of a case, drawn and asked for."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge import agreement, odd_addresses, race, refusals, replaced, spot_checks, taken, variants, weighed
from kernelwright.judge.bench import DEAR_BYTES, Bench, Point
from kernelwright.judge.buffers import Buffers, laid_out_oddly
from kernelwright.judge.by_chance import ByChance
from kernelwright.judge.gathered import Gathered
from kernelwright.judge.inputs import Variant
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.loading import load
from kernelwright.judge.other_stream import answers_otherwise
from kernelwright.judge.own_draws import said
from kernelwright.judge.program import Program
from kernelwright.judge.slices import ITSELF
from kernelwright.judge.tester import ExtraCase
from kernelwright.judge.timing_plan import PRECISE
from kernelwright.judge.verify import Truth
from kernelwright.judge.window import Window
from kernelwright.sandbox.lease import sharing
from kernelwright.trial import CaseResult, Rejected

if TYPE_CHECKING:
    from kernelwright.judge.aside import Found, Work
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State
    from kernelwright.sandbox.forked import Fork

DETAIL = 4000
DEAR_TO_COMPILE = ODD, MODES, NEEDED, WRITTEN, TWINS = "odd calls", "modes", "needed", "written", "twins"
"""Checks for which ``torch.compile`` compiles again, some 10 s each."""
RAISED = "raised "
"""How the reason of a program begins that raised an error."""
Call = tuple[Variant, list[torch.Tensor]]


class Wrong(Exception):
    """The candidate failed a check."""

    def __init__(self, stage: str, reason: str, detail: str = "") -> None:
        super().__init__(stage, reason)
        self.outcome = Rejected(stage=stage, reason=reason[:600], detail=detail[:DETAIL])


@dataclass(slots=True, kw_only=True)
class Checks:
    """What all checks of one candidate are made of: its processes, their calls, and these in every variant of a case.

    Raises Wrong, and ChildFailure where a program fails."""

    bench: Bench
    entry: str
    start: Callable[[], Program]
    """A fresh confined process in the candidate's folder."""
    shared: Callable[[], contextlib.AbstractContextManager[None]]
    """The device, with others, but not beside somebody's timing: around every check."""
    seed: int
    results: list[CaseResult] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    deterministic: bool = True
    sandbox: str = ""
    first: tuple[list[torch.Tensor], Truth] | None = None
    """What the first process was asked first, and what is known about it."""
    near: spot_checks.Distances = field(default_factory=list)
    """How far from eager's a first answer lay that passed."""
    points: tuple[Point, ...] = ()
    """The cases, the timed one first."""
    fresh: Any = None
    """Fresh weights, once some were drawn that are dear to draw: others are made of them."""
    extras: tuple[ExtraCase, ...] = ()
    """Cases that a tester wrote and the reference confirmed; they come on top of all others."""
    stateful: bool = False
    """Calls of the reference change parameters or buffers."""
    compiles: bool = False
    """It may compile when it first runs in another mode, which costs more than all other checks: see ``spares``."""
    aligned: bool = False
    """Inputs begin where vectors do: see ``odd_addresses``."""
    counts: bool = False
    """It may count the cores, or its threads."""
    aside: Callable[[Work], Fork[Found] | None] = lambda work: None
    """Begin checks in a fork, where that pays."""
    beside: Fork[Found] | None = None
    """What checks the other cases at the moment."""
    chance: ByChance = field(init=False)
    late: int = 0
    """Looks at parameters and buffers that cost more than they may, as one does where pages are dear (1.6 ms)."""

    def __post_init__(self) -> None:
        self.chance = ByChance(self.bench.contract.bits_lost)

    def spares(self, check: str) -> bool:
        """Whether a program that may compile for it is spared one of DEAR_TO_COMPILE: all but one, by lot."""
        return self.compiles and random.Random(self.seed ^ 0xC0).choice(DEAR_TO_COMPILE) != check

    @sharing
    def _loaded(self, point: Point | None = None, threads: int = 0) -> Program:
        instance = (point or self.points[0]).instance
        (program := self.start()).threads = threads
        # A result may be the state that the next call begins with, where calls change one.
        program.watched, program.spared = True, self.bench.eager_shared if instance.giver.keeps else None
        try:
            program.shown = self.bench.eager_aliases
            program.perturb(on=True)
            load(program, self.entry, instance)
            if instance.training != self.bench.contract.training:
                program.mode(training=instance.training)
        except BaseException:
            program.close()
            raise
        self.sandbox = program.level
        return program

    @sharing
    def _carried(self, leaves: list[torch.Tensor], state: Any) -> None:
        """Raise TaskError where the reference itself answers a call of a timed window otherwise in it than alone."""
        if self.stateful and not self.bench.contract.random:
            calls = self.bench.plan(PRECISE, 2).sets * race.HELD_WINDOWS  # so many follow each other at the most
            refusals.carried_in_a_window(self.points[0].instance, leaves, state, calls)

    @sharing
    def _said(self, refused: Rejected) -> Rejected:
        return said(self.points[0].instance, refused)

    def _states(self, instance: Instance, seed: int, budget: float, stock: State | None, how: str) -> Iterator[State]:
        """Weights of a race's windows: fresh ones, of which counters are at their beginning. A window that comes to
        where the reference copies a target, from 16,383 calls on to 20,000, has other answers behind that: one of 80
        proofs of an honest program ended so, with an error of the task."""
        return map(functools.partial(weighed.begun, instance), self.bench.states(instance, seed, budget, stock, how))

    @sharing
    def _call(
        self, program: Program, point: Point, variant: Variant, buffers: Buffers, call: int,
        leaves: list[torch.Tensor], state: Any,
    ) -> CaseResult:  # fmt: skip
        """One checked call: filled, poisoned, run, compared."""
        return self._calls(program, point, buffers, {call: (variant, leaves)}, state)[0]

    @sharing
    def _calls(
        self, program: Program, point: Point, buffers: Buffers, given: Mapping[int, Call], state: Any
    ) -> list[CaseResult]:
        """Checked calls of one window, by set: all filled and poisoned, run back to back, compared. Their variants
        differ in values alone."""
        if self.bench.tight:
            point.checker.recent.make_room()
        for call, (_, leaves) in given.items():
            race.fill(buffers, call, leaves)
        asked = [variant for variant, _ in given.values()]
        how = {"grad": self.bench.contract.gradients, "hidden": asked[0] is point.as_given}
        with taken.named(point, asked):
            self._looked_at(program.checked(list(given), **how), point, asked[0])
        if point.instance.seeds:
            for position in agreement.incoming_changed(buffers, {call: leaves for call, (_, leaves) in given.items()}):
                raise Wrong("verify", f"the incoming gradient of output {position} was changed by the call")
        checked = []
        for call, (variant, leaves) in given.items():
            answer = buffers.answers(call), list(buffers.inputs[call])
            checked.append(self.chance.passed(point.checker.check(variant, leaves, state, *answer)))
        self.results += checked
        return checked

    def _looked_at(self, window: Window, point: Point, variant: Variant) -> None:
        """Where the results of a window lie: in memory of their own, in no other result's way, in the usual order."""
        found, contract = window.whereabouts, self.bench.contract
        allowed = set(contract.aliases) | self.bench.eager_aliases
        if variant.name == ITSELF:  # what is handed on is every input then
            allowed |= {(output, source) for output, _ in allowed for source in range(len(point.instance.specs))}
        for output, source in sorted(set(window.aliases) - allowed):
            name = self._leaf(point, output)
            raise Wrong("verify", f"{name} shares storage with input {source}, and the reference's does not")
        for output, source in sorted(set(contract.aliases) - set(window.aliases if found is None else found.aliases)):
            raise Wrong("verify", f"output {output} must share storage with input {source}")
        if found is None:
            return
        if found.trespass:
            raise Wrong("integrity", found.trespass)
        for leaf in sorted(found.shared - self.bench.eager_shared):
            raise Wrong("verify", f"result {leaf} of a call was overwritten by another call")
        for one, other in sorted(found.together - self.bench.eager_together):
            names = f"{self._leaf(point, one)} and {self._leaf(point, other)}"
            raise Wrong("verify", f"{names} share memory, and the reference's do not")
        if not point.ordered(variant):
            return
        instance = point.instance
        for leaf, (mine, theirs) in enumerate(zip(found.strides, instance.out_strides, strict=False)):
            if laid_out_oddly(mine, theirs, instance.out_specs[leaf].shape):
                reason = f"output {leaf} is laid out in steps of {mine}, the reference's of {theirs}"
                raise Wrong("integrity", reason, "every result is put in order as part of its call")

    def _leaf(self, point: Point, leaf: int) -> str:
        """What a leaf of a result is called: outputs come first, then gradients."""
        outputs = len(point.instance.out_specs)
        return f"output {leaf}" if leaf < outputs else f"the gradient of {point.instance.gradients[leaf - outputs][0]}"

    def _variants(self, program: Program, point: Point, chosen: Sequence[Variant]) -> list[Variant]:
        """Check those that the reference accepts; which they were."""
        dice, state = random.Random(self.seed ^ 0x5EED), point.instance.first_state
        loaded, had, others = state, list[Variant](), Gathered(point, dice)
        for variant in odd_addresses.moved(chosen) if self.aligned else chosen:
            if self.beside is not None:
                self.beside.glance()
            if variants.stood_in_for(variant, had):
                continue
            if others.takes(variant):
                accepted = self._waits(point, variant, dice.getrandbits(62), others)
                loaded = self._at_once(program, point, others.take(), loaded) if others.ready else loaded
            else:
                loaded, accepted = self._variant(program, point, variant, dice, loaded)
            had += [variant] if accepted else []
        if rest := others.take():
            loaded = self._at_once(program, point, rest, loaded)
        if loaded is not state:
            program.set_state(state)
        return had

    @sharing
    def _waits(self, point: Point, variant: Variant, seed: int, others: Gathered) -> bool:
        """Draw one that comes with others, where the reference accepts it."""
        leaves, state = point.instance.draw(variant, seed), point.instance.first_state
        accepted = point.accepts(variant, leaves, state)
        if accepted:
            seeds = range(seed, seed + variant.draws)  # in turn, for ``almost``
            others.add(variant, taken.of_calls(point, variant, seeds, range(variant.draws), leaves, state).values())
        return accepted

    @sharing
    def _at_once(self, program: Program, point: Point, calls: list[Call], loaded: Any) -> Any:
        """Check calls that differ in values alone in one window; the weights that the program has then. Where one of
        them fails outright a new process is asked one by one, for the reason's sake."""
        if loaded is not (state := point.instance.first_state):
            program.set_state(state)
        try:
            self._hold(program, point, calls)
        except ChildFailure as failure:
            if len(calls) > 1 and failure.reason.startswith(RAISED):
                with self._loaded(point) as other:
                    other.stage = "verify"
                    for call in calls:
                        self._hold(other, point, [call])
            raise
        return state

    def _hold(self, program: Program, point: Point, calls: list[Call]) -> None:
        """Each answer to these calls is right, or Wrong is raised."""
        buffers = point.bind(program, calls[0][0], len(calls))
        for result in self._calls(program, point, buffers, dict(enumerate(calls)), point.instance.first_state):
            if not result.passed and result.required:
                raise Wrong("verify", f"{result.name}: {result.detail}", result.detail)
        self._guards(program)

    @sharing  # all of it: eager's answers and draws outside a share ran beside what other judges timed
    def _variant(
        self, program: Program, point: Point, variant: Variant, dice: random.Random, loaded: Any
    ) -> tuple[Any, bool]:
        """Check one; the weights that the program has then, and whether the reference accepts such inputs."""
        state = point.instance.first_state
        if replaced.nothing(point.instance, variant.moved):
            return loaded, False
        wanted = self._fresh_state(point, dice.getrandbits(62), variant.moved) if variant.fresh_weights else state
        if variant.fresh_weights and variant.draws == 1 and variant.moved not in replaced.MOVED:
            wanted = weighed.placed(point.instance, wanted, dice.getrandbits(62))
        seeds = range(first := dice.getrandbits(62), first + variant.draws)  # in turn, for ``almost``
        if (variant.apart or variant.name == ITSELF) and self.spares(ODD):  # it would compile once more for each
            return loaded, False
        leaves = point.instance.draw(variant, seeds[0], wanted)
        if not point.accepts(variant, leaves, wanted):
            return loaded, False
        if wanted is not loaded:
            program.set_state(wanted)
        buffers = point.bind(program, variant, variant.draws, leaves)
        for calls in taken.in_windows(variant.draws, dice):
            drawn = taken.of_calls(point, variant, seeds, calls, leaves, wanted)
            given = {call: (variant, made) for call, made in drawn.items()}
            for result in self._calls(program, point, buffers, given, wanted):
                if not result.passed and result.required:
                    raise Wrong("verify", f"{result.name}: {result.detail}", result.detail)
        self._guards(program)
        return wanted, True

    def _fresh_state(self, point: Point, seed: int, moved: str = "") -> Any:
        """New weights of a case. Dear ones are drawn once, for the first case that has them: 256 MB take 1.3 s."""
        if point.state_bytes <= DEAR_BYTES:
            return point.instance.draw_state(seed, moved)
        known = self.fresh is not None and agreement.alike(self.fresh, point.instance.first_state)
        self.fresh = self.fresh if known else point.instance.draw_state(seed)
        if moved:
            return point.instance.draw_state(seed, moved, self.fresh)
        return next(self.bench.states(point.instance, seed, 0.0, self.fresh)) if known else self.fresh

    @sharing
    def _on_another_stream(self, program: Program) -> None:
        """What a proof's last process, once it was raced, answers on another stream."""
        self.conditions += answers_otherwise(self, program)

    def _guards(self, program: Program) -> None:
        if program.buffers is not None and not program.buffers.guards_intact():
            raise Wrong("integrity", "it wrote outside the memory it was handed")
