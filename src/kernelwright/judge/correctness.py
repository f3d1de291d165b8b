# SPDX-License-Identifier: Apache-2.0
"""Whether a candidate computes what it must: the first case, then every case in every variant, before any race."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.judge import agreement, ahead, left, race, remains, resized, spot_checks, taken, timing_plan, variants
from kernelwright.judge.bench import DEAR_BYTES, Bench, Point, load
from kernelwright.judge.buffers import Buffers, laid_out_oddly
from kernelwright.judge.by_chance import ByChance
from kernelwright.judge.inputs import Variant
from kernelwright.judge.program import Program
from kernelwright.judge.slices import ITSELF
from kernelwright.judge.tester import ExtraCase
from kernelwright.judge.variants import HEAVY
from kernelwright.judge.verify import Truth
from kernelwright.judge.window import Window
from kernelwright.sandbox.lease import sharing
from kernelwright.trial import CaseResult, Rejected

DETAIL = 4000
HELD_BYTES = 1 << 29
"""What the results and inputs kept at once in a smoke test may take together."""
STATE_SLACK = 64.0
"""Units of the last place by which running statistics may differ from the reference's (RMS over the buffer)."""


class Wrong(Exception):
    """The candidate failed a check."""

    def __init__(self, stage: str, reason: str, detail: str = "") -> None:
        super().__init__(stage, reason)
        self.outcome = Rejected(stage=stage, reason=reason[:600], detail=detail[:DETAIL])


@dataclass(slots=True, kw_only=True)
class Correctness:
    """The checks of one candidate before it is timed. Raises Wrong, and ChildFailure where its program fails."""

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
    """It may compile when it first runs in another mode, which would cost more than all other checks."""
    chance: ByChance = field(init=False)
    late: int = 0
    """Looks at parameters and buffers that cost more than they may, as one does where pages are dear (1.6 ms)."""

    def __post_init__(self) -> None:
        self.chance = ByChance(self.bench.contract.bits_lost)

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
    def _smoke(self, program: Program, sets: int, *, fresh: bool) -> spot_checks.Distances:
        """The first case, once, checked in full; the distances from eager of an answer that passed."""
        point = self.points[0]
        variant = point.as_given
        program.stage = "smoke"
        dice = random.Random(self.seed)
        held = self._held(dice)
        buffers = point.bind(program, variant, max(sets, held))
        leaves = self._first_call(point, dice.getrandbits(62)) if fresh else self.bench.known_call(asking=True)
        call, *others = dice.sample(range(max(sets, held)), held)
        result = self._call(program, point, variant, buffers, call, leaves, point.instance.first_state)
        if not result.passed:
            raise Wrong("smoke", f"{result.name}: {result.detail}", result.detail)
        truth = point.checker.truth(variant, leaves, point.instance.first_state)
        self.first = leaves, truth
        before = [tensor.clone() for tensor in buffers.answers(call)]
        race.fill(buffers, call, leaves)
        if others:
            stock_seed = self.seed if fresh else None  # the race's: another one would have its draws made again
            other = next(self.bench.draws(dice.getrandbits(60), timing_plan.PRECISE.draw_seconds, stock_seed))
            for index in others:
                race.fill(buffers, index, other)
        gradients = self.bench.contract.gradients
        if gradients:  # all calls, then all gradients: a module called twice in one graph, or checkpointed
            program.leash.ask({"do": "late", "on": True}, program.stage)
        self._looked_at(program.window([call, *others], grad=gradients), point, variant)
        if gradients:
            program.leash.ask({"do": "late", "on": False}, program.stage)
        self._unchanged(point, variant, buffers, call, leaves, before)
        self._leaves_alone(program)
        if buffers.plan.sets != sets:
            point.bind(program, variant, sets)
        return spot_checks.learned(spot_checks.distances(before, truth.eager[: len(before)], None))

    def _leaves_alone(self, program: Program) -> None:
        """What is no part of the program is in its process as it was before."""
        told, own = program.leash.ask({"do": "left"}, program.stage), self.bench.contract
        if wrong := left.words(told.get("left", {}), left.settings, random_=own.random, mutates=own.mutates):
            raise Wrong("integrity", wrong)

    def _first_call(self, point: Point, seed: int) -> list[torch.Tensor]:
        """What a fresh process is asked first: the same of each, so its truth is known from the first one on."""
        self.first = self.first or self.bench.unasked()
        if self.first is None:
            return point.instance.draw(point.as_given, seed)
        point.checker.recall(self.first[1])
        return self.first[0]

    @sharing
    def _tested(self, program: Program, sets: int) -> None:
        """The tester's cases, each once; the program is bound again for ``sets`` calls of the timed case."""
        if not self.extras:
            return
        program.stage = "verify"
        point = self.points[0]
        buffers = point.bind(program, point.as_given, 1)
        for case in self.extras:
            race.fill(buffers, 0, case.leaves)
            window = program.window([0], grad=self.bench.contract.gradients)
            self._looked_at(window, point, point.as_given)
            result = case.check(point.instance.first_state, buffers.answers(0), list(buffers.inputs[0]))
            self.results.append(result)
            if not result.passed:
                raise Wrong("verify", f"a case of the tester: {result.name}: {result.detail}", case.shown(result))
        self._guards(program)
        self.conditions.append(f"{len(self.extras)} cases that a tester wrote were checked as well")
        point.bind(program, point.as_given, sets)

    def _held(self, dice: random.Random) -> int:
        """How many results the smoke test lets live at once: one that the next call overwrites shows there."""
        quick = self.bench.eager_us < timing_plan.SLOW_CALL_US
        return min(dice.randint(3, 8) if quick else 2, max(1, HELD_BYTES // max(self.bench.call_bytes, 1)))

    def _unchanged(
        self, point: Point, variant: Variant, buffers: Buffers, call: int, leaves: list[torch.Tensor],
        before: list[torch.Tensor],
    ) -> None:  # fmt: skip
        """A second call on equal inputs, and calls after it, leave the result as it was."""
        after = buffers.answers(call)
        same = all(agreement.same_bits(a, b) for a, b in zip(before, after, strict=True))
        self.deterministic = self.deterministic and same
        if same:
            return
        if self.bench.contract.deterministic:
            raise Wrong("smoke", "two calls on equal inputs differ, and the task asks for bit-for-bit repeats")
        state = point.instance.first_state
        again = self.chance.passed(point.checker.check(variant, leaves, state, after, list(buffers.inputs[call])))
        if not again.passed:
            raise Wrong("smoke", f"{again.name}, right once, is not after later calls: {again.detail}", again.detail)

    @sharing
    def _call(
        self, program: Program, point: Point, variant: Variant, buffers: Buffers, call: int,
        leaves: list[torch.Tensor], state: Any,
    ) -> CaseResult:  # fmt: skip
        """One checked call: filled, poisoned, run, compared."""
        return self._calls(program, point, variant, buffers, {call: leaves}, state)[0]

    @sharing
    def _calls(
        self, program: Program, point: Point, variant: Variant, buffers: Buffers,
        given: dict[int, list[torch.Tensor]], state: Any,
    ) -> list[CaseResult]:  # fmt: skip
        """Checked calls of one window, by set: all filled and poisoned, run back to back, compared."""
        for call, leaves in given.items():
            race.fill(buffers, call, leaves)
        how = {"grad": self.bench.contract.gradients, "hidden": variant is point.as_given}
        with taken.named(point, variant):
            self._looked_at(program.checked(list(given), **how), point, variant)
        if point.instance.seeds:
            for position in agreement.incoming_changed(buffers, given):
                raise Wrong("verify", f"the incoming gradient of output {position} was changed by the call")
        check = functools.partial(point.checker.check, variant)
        answers = ((leaves, state, buffers.answers(call), list(buffers.inputs[call])) for call, leaves in given.items())
        checked = [self.chance.passed(check(*answer)) for answer in answers]
        self.results += checked
        return checked

    def _looked_at(self, window: Window, point: Point, variant: Variant) -> None:
        """Where the results of a window lie: in memory of their own, in no other result's way, in the usual order."""
        found, contract = window.whereabouts, self.bench.contract
        allowed = set(contract.aliases) | self.bench.eager_aliases
        for output, source in sorted(set(window.aliases) - allowed):
            raise Wrong("verify", f"output {output} shares storage with input {source}, and the reference's does not")
        for output, source in sorted(set(contract.aliases) - set(window.aliases if found is None else found.aliases)):
            raise Wrong("verify", f"output {output} must share storage with input {source}")
        if found is None:
            return
        if found.trespass:
            raise Wrong("integrity", found.trespass)
        for leaf in sorted(found.shared - self.bench.eager_shared):
            raise Wrong("verify", f"result {leaf} of a call was overwritten by another call")
        for one, other in sorted(found.together - self.bench.eager_together):
            raise Wrong("verify", f"outputs {one} and {other} share memory, and the reference's do not")
        if not point.ordered(variant):
            return
        instance = point.instance
        for leaf, (mine, theirs) in enumerate(zip(found.strides, instance.out_strides, strict=False)):
            if laid_out_oddly(mine, theirs, instance.out_specs[leaf].shape):
                reason = f"output {leaf} is laid out in steps of {mine}, the reference's of {theirs}"
                raise Wrong("integrity", reason, "every result is put in order as part of its call")

    def _other_cases(self, program: Program) -> set[tuple[Any, str]]:
        """Every case but the timed one, in a process of its own; the variants that were covered, by manner and name."""
        program.stage = "verify"
        covered: set[tuple[Any, str]] = set()
        others = sorted(self.points[1:], key=lambda point: point.instance.work)
        # On an H200 a process takes 0.22 s to load, most of it in the driver: half the time of these checks.
        with contextlib.closing(ahead.each(others, self._loaded, lambda p: p.state_bytes <= DEAR_BYTES)) as loaded:
            for point, other in loaded:
                other.stage = "verify"
                self._one_by_one(other, point, point.offered, covered)
                if point is others[0]:
                    self._keeps_state(other, point)
                if point.instance.training != self.bench.contract.training:
                    self._back_in(other, point)
                if point in (others[0], others[-1]):
                    self._other_sizes(other, point)
        return covered

    @sharing
    def _other_sizes(self, program: Program, own: Point) -> None:
        """Calls of other cases by a program that was made for one of them and has answered that."""
        for point, leaves in resized.in_turn(own, self.points, self.seed ^ 0x512E):
            state = point.instance.first_state
            program.set_state(state)
            buffers = point.bind(program, point.as_given, 1)
            result = self._call(program, point, point.as_given, buffers, 0, leaves, state)
            if not result.passed:
                raise Wrong("verify", f"among calls of several sizes: {result.name}: {result.detail}", result.detail)

    def _one_by_one(
        self, program: Program, point: Point, offered: Sequence[Variant], covered: set[tuple[Any, str]]
    ) -> None:
        """The variants of a case; on a dear one, those ``covered`` by others in the same manner come mixed into one.
        What was taken joins ``covered``."""
        known = {name for manner, name in covered if point.dear and manner == point.manner}
        dear = point.state_bytes > DEAR_BYTES
        shared = {"heavy": point.instance.work > HEAVY, "dear": dear, "seed": self.seed ^ 0xB107}
        chosen, spared = variants.shared_out(offered, known, self.bench.contract, **shared)
        taken = self._variants(program, point, chosen)
        covered |= {(point.manner, v.name) for v in taken}
        if spared:
            instead = self._instead(point)
            self._variants(program, point, instead)
            left_out = ", ".join(v.name for v in spared if v not in instead)
            if left_out:
                self.conditions.append(f"checked one by one on cases smaller than {point.case.name} only: {left_out}")

    def _instead(self, point: Point) -> list[Variant]:
        """For variants too dear to repeat one by one on the timed case: all changes of value in one draw, and every
        layout. One of two layouts, by lot, let a program that ignores strides at this size pass half the time.
        """
        if point.instance.work > HEAVY:  # it has them among its variants
            return []
        mixed = next((v for v in variants.mixed_of(point.instance) if point.usable(v)), None)
        return [*([] if mixed is None else [mixed]), *taken.layouts(point)]

    @sharing
    def _keeps_state(self, program: Program, point: Point) -> None:
        """What a call does to parameters and buffers is what it does to the reference's: in eval mode, nothing."""
        instance, dice, grad = point.instance, random.Random(self.seed ^ 0x57A7E), self.bench.contract.gradients
        if not (before := instance.first_state):
            return
        before = before if self.bench.contract.frozen_parameters else self._fresh_state(point, dice.getrandbits(62))
        buffers = point.bind(program, point.as_given, 1)
        for variant in (point.as_given, *(v for v in point.offered if v.change in variants.LEAVING)):
            leaves = instance.draw(variant, dice.getrandbits(62))
            if variant.change and not (self.stateful and point.accepts(variant, leaves, before)):
                continue
            for looks in range(remains.CHANCES):
                remains.rest(looks)
                program.set_state(before)
                race.fill(buffers, 0, leaves)
                program.window([0], grad=grad)
                self._state_as_left(program, [leaves], before, point)
                if self.late <= looks:  # this one was not
                    break
            self.late = 0
        if self.stateful and point is self.points[0]:
            buffers = point.bind(program, point.as_given, remains.many(self.bench.eager_us, self.bench.call_bytes))
            for call in range(buffers.plan.sets):
                race.fill(buffers, call, leaves)
            if found := remains.of_many(program, buffers.plan.sets, remains.usual(self.bench.entrants), grad=grad):
                raise Wrong(program.stage, found)

    def _state_as_left(
        self, program: Program, given: Sequence[list[torch.Tensor]], before: Any, point: Point | None = None
    ) -> None:
        """Calls in this order left in parameters and buffers what they leave in the reference's."""
        left, unfinished = remains.read(program, remains.usual(self.bench.entrants))
        self.late += bool(unfinished)
        if unfinished and self.late >= (remains.CHANCES if point else 2):  # a race looks at few of its rounds
            raise Wrong(program.stage, unfinished)
        after = (point or self.points[0]).instance.state_after(given, before)
        pairs = zip(before, after, strict=True)
        self.stateful = not all(one is other or agreement.same_bits(one, other) for (_, one), (_, other) in pairs)
        for (name, mine), (_, theirs) in zip(left, after, strict=True):
            if torch.equal(mine, theirs):  # 256 MB of distances take 0.7 s
                continue
            far, *_ = spot_checks.distances([mine], [theirs], None)
            if far > (STATE_SLACK * torch.finfo(mine.dtype).eps if mine.is_floating_point() else 0.0):
                raise Wrong(program.stage, f"after a call {name} is not what the reference leaves there")

    def _back_in(self, program: Program, point: Point) -> None:
        """Switched back, it answers as if nothing had been."""
        own = next(known for known in self.points if known.case == point.case and not known.instance.autocast)
        program.mode(training=own.instance.training)
        program.set_state(own.instance.first_state)
        self._variants(program, own, [own.as_given])

    def _variants(self, program: Program, point: Point, chosen: Sequence[Variant]) -> list[Variant]:
        """Check those that the reference accepts; which they were."""
        dice, state = random.Random(self.seed ^ 0x5EED), point.instance.first_state
        loaded, had = state, list[Variant]()
        for variant in chosen:
            if not variants.stood_in_for(variant, had):
                loaded, accepted = self._variant(program, point, variant, dice, loaded)
                had += [variant] if accepted else []
        if loaded is not state:
            program.set_state(state)
        return had

    @sharing  # all of it: eager's answers and draws outside a share ran beside what other judges timed
    def _variant(
        self, program: Program, point: Point, variant: Variant, dice: random.Random, loaded: Any
    ) -> tuple[Any, bool]:
        """Check one; the weights that the program has then, and whether the reference accepts such inputs."""
        state = point.instance.first_state
        wanted = self._fresh_state(point, dice.getrandbits(62), variant.moved) if variant.fresh_weights else state
        seeds = range(first := dice.getrandbits(62), first + variant.draws)  # in turn, for ``almost``
        if self.compiles and (variant.apart or variant.name == ITSELF):  # it would compile once more for each
            return loaded, False
        leaves = point.instance.draw(variant, seeds[0])
        if not point.accepts(variant, leaves, wanted):
            return loaded, False
        if wanted is not loaded:
            program.set_state(wanted)
        buffers = point.bind(program, variant, variant.draws, leaves)
        for calls in taken.in_windows(variant.draws, dice):
            given = taken.of_calls(point, variant, seeds, calls, leaves, wanted)
            for result in self._calls(program, point, variant, buffers, given, wanted):
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

    def _guards(self, program: Program) -> None:
        if program.buffers is not None and not program.buffers.guards_intact():
            raise Wrong("integrity", "it wrote outside the memory it was handed")
