# SPDX-License-Identifier: Apache-2.0
"""Whether a candidate computes what it must: the first case, then every case in every variant, before any race."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.judge import (
    agreement,
    ahead,
    aside,
    initial,
    leaving,
    left,
    parts,
    race,
    remains,
    resized,
    spot_checks,
    taken,
    thresholds,
    timing_plan,
    variants,
)
from kernelwright.judge.aside import Found
from kernelwright.judge.bench import DEAR_BYTES, Point
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.by_chance import ByChance
from kernelwright.judge.checks import Checks, Wrong
from kernelwright.judge.inputs import Variant
from kernelwright.judge.program import Program
from kernelwright.judge.variants import HEAVY, LIGHT
from kernelwright.judge.weights import OUTLYING
from kernelwright.sandbox.forked import Fork
from kernelwright.sandbox.lease import sharing

HELD_BYTES = 1 << 29
"""What the results and inputs kept at once in a smoke test may take together."""


@dataclass(slots=True, kw_only=True)
class Correctness(Checks):
    """The checks of one candidate before it is timed. Raises Wrong, and ChildFailure where its program fails."""

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
        self.first = None if self.bench.tight else (leaves, truth)
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
        theirs, methods = self.points[0].instance.first_state, parts.own(self.points[0].instance.model)
        said = initial.words(told.get("begun"), theirs), parts.words(told.get("own"), methods)
        for words, first in zip(said, (initial.WORDS, parts.WORDS), strict=True):
            if words and not any(one.startswith(first) for one in self.conditions):
                self.conditions.append(words)

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

    def _other_cases(self) -> set[tuple[Any, str]]:
        """Every case but the timed one, of the larger ones every second in a fork where that pays; the variants that
        were covered, by manner and name."""
        others = sorted(self.points[1:], key=lambda point: point.instance.work)
        ends, theirs = [*others[:1], *others[-1:]], others[-2:0:-2][::-1]
        fork = self._begun_aside(theirs, ends) if aside.pays(theirs, self.bench.contract) else None
        if fork is None:
            return self._each_by_itself(others, ends)
        self.beside, threads = fork, torch.get_num_threads()
        torch.set_num_threads(max(1, threads - 1))  # with one for each core all of them wait for the one that is gone
        try:
            covered = self._each_by_itself([p for p in others if not any(p is q for q in theirs)], ends)
            found = fork.result()
        finally:
            torch.set_num_threads(threads)
            self.beside = None
            fork.close()
        if found is None:
            return covered | self._each_by_itself(theirs, ends)
        self.results += found.results
        self.conditions += found.conditions
        aside.adopted(self.points, found, self.chance)
        return covered | found.covered

    def _begun_aside(self, points: Sequence[Point], ends: Sequence[Point]) -> Fork[Found] | None:
        """Their checks, begun in a fork if there is one."""

        def work(shared: aside.Shared) -> Found:
            self.shared, self.results, self.conditions = shared, [], []
            self.bench.entrants = {}  # asked from here, one ran while the judge had it stopped
            self.chance = ByChance(self.chance.allowed)
            covered = self._each_by_itself(points, ends)
            return Found(covered, self.results, self.conditions, self.chance, aside.known(self.points))

        return self.aside(work)

    def _each_by_itself(self, points: Sequence[Point], ends: Sequence[Point]) -> set[tuple[Any, str]]:
        """Some of the other cases, each in a process of its own; the variants that were covered. ``ends``: the smallest
        case and the largest."""
        covered: set[tuple[Any, str]] = set()
        # On an H200 a process takes 0.22 s to load, most of it in the driver: half the time of these checks.
        with contextlib.closing(ahead.each(points, self._loaded, lambda p: p.state_bytes <= DEAR_BYTES)) as loaded:
            for point, other in loaded:
                other.stage = "verify"
                self._one_by_one(other, point, point.offered, covered)
                if point is ends[0]:
                    self._keeps_state(other, point)
                if point.instance.training != self.bench.contract.training:
                    self._back_in(other, point)
                if point in ends:
                    self._other_sizes(other, point)
        return covered

    @sharing
    def _other_sizes(self, program: Program, own: Point) -> None:
        """Calls of other cases by a program that was made for one of them and has answered that."""
        for point, leaves in resized.in_turn(own, self.points, self.seed ^ 0x512E):
            program.set_state(point.instance.first_state)
            self._of_size(program, point, leaves, "among calls of several sizes")

    def _of_size(self, program: Program, point: Point, leaves: list[torch.Tensor], among: str) -> None:
        """One call of another case by a program that has its weights."""
        buffers, state = point.bind(program, point.as_given, 1), point.instance.first_state
        result = self._call(program, point, point.as_given, buffers, 0, leaves, state)
        if not result.passed:
            raise Wrong("verify", f"{among}: {result.name}: {result.detail}", result.detail)

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
        buffers, changes = point.bind(program, point.as_given, 1), False
        for number, (variant, state) in enumerate(self._leaving(point, before, dice)):
            leaves = instance.draw(variant, dice.getrandbits(62))
            if number and not (
                self._takes(point, variant, leaves, state) and (changes or _changes(point, leaves, state))
            ):
                continue
            for looks in range(remains.CHANCES):
                remains.rest(looks)
                program.set_state(state)
                race.fill(buffers, 0, leaves)
                program.window([0], grad=grad)
                self._state_as_left(program, [leaves], state, point)
                if self.late <= looks:  # this one was not
                    break
            self.late, changes = 0, changes or self.stateful
        self.stateful = changes
        program.set_state(instance.first_state)  # with which whoever asks next begins
        if self.stateful and point is self.points[0]:
            buffers = point.bind(program, point.as_given, remains.many(self.bench.eager_us, self.bench.call_bytes))
            for call in range(buffers.plan.sets):
                race.fill(buffers, call, leaves)
            if found := remains.of_many(program, buffers.plan.sets, remains.usual(self.bench.entrants), grad=grad):
                raise Wrong(program.stage, found)

    def _leaving(self, point: Point, before: Any, dice: random.Random) -> Iterator[tuple[Variant, Any]]:
        """Inputs and weights of the calls after which it is looked at what they leave: the task's own first, changes of
        value, weights with outliers, as a table of which rows are longer than they may be, counters where the reference
        turns, and what calls left where nothing has been counted yet."""
        yield point.as_given, before
        for variant in filter(leaving.looked_at, point.offered):
            yield variant, before
        if point.state_bytes > DEAR_BYTES or self.bench.contract.frozen_parameters:
            return
        yield point.as_given, point.instance.draw_state(dice.getrandbits(62), OUTLYING)
        yield from ((point.as_given, state) for state in thresholds.each(point.instance, before, dice))
        if point.instance.work <= HEAVY and (state := leaving.begun(point, before, dice)) is not None:
            yield point.as_given, state

    def _takes(self, point: Point, variant: Variant, leaves: Any, state: Any) -> bool:
        if variant is point.as_given:
            return point.instance.accepted(leaves, state) is not None
        return point.accepts(variant, leaves, state)

    def _state_as_left(
        self, program: Program, given: Sequence[list[torch.Tensor]], before: Any, point: Point | None = None
    ) -> None:
        """Calls in this order left in parameters and buffers what they leave in the reference's."""
        found, unfinished = remains.read(program, remains.usual(self.bench.entrants))
        self.late += bool(unfinished)
        if unfinished and self.late >= (remains.CHANCES if point else 2):  # a race looks at few of its rounds
            raise Wrong(program.stage, unfinished)
        right = leaving.Left((point or self.points[0]).instance, given, before)
        pairs = zip(before, right.theirs, strict=True)
        self.stateful = not all(one is other or agreement.same_bits(one, other) for (_, one), (_, other) in pairs)
        for (name, mine), (_, theirs) in zip(found, right.theirs, strict=True):
            if off := right.wrong(name, mine, theirs):
                raise Wrong(program.stage, f"after a call {name} is not what the reference leaves there{off}")

    def _back_in(self, program: Program, point: Point) -> None:
        """Switched back, it answers as if nothing had been."""
        own = next(known for known in self.points if known.case == point.case and not known.instance.autocast)
        program.mode(training=own.instance.training)
        program.set_state(own.instance.first_state)
        self._variants(program, own, [own.as_given])


def _changes(point: Point, leaves: Any, state: Any) -> bool:
    """Whether a call of the reference leaves other parameters or buffers, asked where that costs little."""
    if point.instance.work > LIGHT or point.state_bytes > DEAR_BYTES:
        return False
    after = point.instance.state_after([leaves], state)
    return any(not agreement.same_bits(one, other) for (_, one), (_, other) in zip(state, after, strict=True))
