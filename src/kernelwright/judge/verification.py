# SPDX-License-Identifier: Apache-2.0
"""All that a proof checks before the race: every case in every variant, then the modes a program may be used in."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator
from typing import Any

import torch

from kernelwright.judge import (
    agreement,
    anew,
    aside,
    inputs,
    load,
    measure,
    near_sizes,
    race,
    relaid,
    resized,
    spot_checks,
    taken,
    weights,
)
from kernelwright.judge.bench import DEAR_BYTES, Point
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.checks import MODES, RAISED, TWINS, Wrong
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.near_sizes import Plan
from kernelwright.judge.program import Program
from kernelwright.judge.randomness import Randomness
from kernelwright.judge.timing_plan import TimingPlan
from kernelwright.judge.variants import HEAVY, LIGHT
from kernelwright.sandbox.lease import sharing
from kernelwright.trial import CaseResult

ANEW = (*(anew.MADE,) * 4, anew.MOVED, anew.THERE, anew.THERE)
"""Instances that are made one after the other, by where their weights lie."""
ANEW_NS = 3 * 10**9
"""How long they are made and asked: of one whose constructor takes seconds there is one."""
ZEROS = 1 / 4
"""Share of the elements that are zero in two calls which differ in the signs of zeros alone."""
IN_ONE = 8
"""Calls in the tensors of the one before; each by a coin, so that none of seven is once in 128 proofs."""
THREADS = 7, 5
"""Of which one is used that the judge does not use: few sizes are multiples of it."""


class Verification(Randomness):
    """The checks of ``Correctness``, ``Gradients`` and ``Randomness`` in their order."""

    __slots__ = ()

    def _verify(self, program: Program) -> None:
        """Every case in every variant, but on dear cases most variants together once smaller ones took them one by one.

        Small cases first, so that most wrong programs are cheap to refuse.
        """
        program.stage, timed = "verify", self.points[0]
        covered = self._other_cases()
        self._one_by_one(program, timed, timed.offered[1:], covered)
        self._keeps_state(program, timed)
        self._two_of_them(program)
        self._in_threads(program)
        self.conditions += relaid.otherwise(self)
        self._weights_alone(program, timed)
        self._zeros_in_turn(program, timed)
        self._into_one_tensor(program, timed)
        program.set_state(timed.instance.first_state)
        self._without_gradients(program, timed)
        self._one_for_all(program, timed)
        self._none_of_unused(program, timed)
        self._some_gradients(program, timed)
        self._as_of_losses(program, timed)
        self._written_between(program, timed)
        self._accumulated(program, timed)
        self._in_other_mode(program, timed)
        self._follows_seed(program, timed)
        self._varies(program, timed)
        self._belong(program, timed)
        self._near_sizes(program, timed)
        self._other_sizes(program, timed)
        program.set_state(timed.instance.first_state)
        self._probe()

    @sharing
    def _near_sizes(self, program: Program, own: Point) -> None:
        """Calls of sizes next to those before, and of one size for several axes: see ``near_sizes``."""
        bench, dice = self.bench, random.Random(self.seed ^ 0x4EA2)
        dear = own.state_bytes > DEAR_BYTES
        plan = bench.near = bench.near or Plan.of(own, bench.accepted, bench.seed, dear=dear)
        if self.compiles or bench.device.type != "cpu":  # what compiles on a device does so for some new sizes
            plan = plan.some(dice, 1 if self.compiles else near_sizes.KINDS)
        program.set_state(own.instance.first_state)
        for case in [*itertools.chain(*plan.walks), *plan.alike]:
            for point in [own] if case == own.case else bench.accepted((case,), self.seed):
                leaves = point.instance.draw(point.as_given, seed := dice.getrandbits(62))
                state = point.instance.first_state
                if point is not own and not near_sizes.fits(own, point):
                    with self._loaded(point) as other:
                        other.stage = "verify"
                        self._of_size(other, point, leaves, "where axes have one size")
                elif resized.answers(own.instance, point.instance, leaves, seed):
                    if self.stateful:  # who empties what it keeps when weights come keeps it here
                        program.set_state(state)
                    self._of_size(program, point, leaves, "among calls of sizes next to each other")

    def _two_of_them(self, program: Program) -> None:
        """Another instance with other weights, in a new process, and then the first one again: a model holds a dozen of
        one layer. Who keeps what is made of weights beside its module is right as long as there is one, and so is who
        tells weights by how often they were written to, where that is not as often for both."""
        contract, point = self.bench.contract, min(self.points, key=lambda one: one.instance.work)
        first, timed = point.instance.first_state, self.points[0]
        small = timed.call_bytes <= aside.CALL_BYTES and timed.state_bytes <= DEAR_BYTES
        small = small and timed.instance.work <= HEAVY
        if contract.frozen_parameters or not first:
            if small and not (contract.random or self.spares(TWINS)) and self._has_twin(program):
                self._in_turns(program, timed, timed.instance.first_state)
                program.leash.ask({"do": "twin"}, program.stage)  # the first one again, and the other gone
                program.leash.ask({"do": "turns", "sets": []}, program.stage)
            return
        if point.dear and not small:
            return
        dice = random.Random(self.seed ^ 0x2)
        with self._loaded(point) as program:
            program.stage = "verify"
            buffers = point.bind(program, point.as_given, 1)
            for number, state in enumerate((first, fresh := self._fresh_state(point, dice.getrandbits(62)), first)):
                if number:
                    program.leash.ask({"do": "twin"}, program.stage)
                if number == 1 or self.stateful:
                    program.set_state(state)
                leaves = point.instance.draw(point.as_given, dice.getrandbits(62))
                result = self._call(program, point, point.as_given, buffers, 0, leaves, state)
                if not result.passed:
                    reason = f"with two instances of it: {result.name}: {result.detail}"
                    raise Wrong("verify", reason, result.detail)
            if not contract.random:
                self._in_turns(program, point, fresh)
                self._made_anew(program, point, dice)

    def _has_twin(self, program: Program) -> bool:
        """Whether there can be another instance of a program without weights, in its process; the first one answers."""
        try:
            program.leash.ask({"do": "twin"}, program.stage)
        except ChildFailure as failure:
            if not failure.reason.startswith(RAISED):
                raise
            self.conditions.append(f"another instance of it in its process {failure.reason}".strip())
            return False
        program.leash.ask({"do": "twin"}, program.stage)
        return True

    @sharing
    def _in_turns(self, program: Program, point: Point, fresh: Any) -> None:
        """Calls of two instances in turn, in one window: all their results live on until they are read, and one that
        writes to what another one gave shows. The second one, which answers afterwards, has the weights ``fresh``."""
        program.leash.ask({"do": "twin"}, program.stage)
        if self.stateful:
            return
        dice, instance, many = random.Random(self.seed ^ 0x22), point.instance, 2 if point.dear else 4
        firsts = range(dice.randrange(2), many, 2)
        program.set_state(fresh)
        program.leash.ask({"do": "turns", "sets": list(firsts)}, program.stage)
        buffers = point.bind(program, point.as_given, many)
        given = [instance.draw(point.as_given, dice.getrandbits(62)) for _ in range(many)]
        for call, leaves in enumerate(given):
            race.fill(buffers, call, leaves)
        window = program.window(list(range(many)), grad=self.bench.contract.gradients)
        self._looked_at(window, point, point.as_given)
        for call, leaves in enumerate(given):
            state = instance.first_state if call in firsts else fresh
            answer = buffers.answers(call), list(buffers.inputs[call])
            self.results.append(self.chance.passed(point.checker.check(point.as_given, leaves, state, *answer)))
            if not (result := self.results[-1]).passed:
                reason = f"with two instances of it in turn: {result.name}: {result.detail}"
                raise Wrong("verify", reason, result.detail)

    @sharing
    def _made_anew(self, program: Program, point: Point, dice: random.Random) -> None:
        """Instances one after the other, each made when the one before is gone and some where that was: whoever tells
        weights by their address and by how often they were written to has those of another one there. Of a loop of ten
        such programs four answered by weights that were gone. One that notes in its constructor where its weights lie
        is not asked for those of another: it would be wrong wherever they are moved to."""
        buffers, until = point.bind(program, point.as_given, 1), measure.clock() + ANEW_NS
        for how in () if self.spares(TWINS) else ANEW:
            if measure.clock() > until:
                break
            program.leash.ask({"do": "anew", "how": how}, program.stage)
            program.set_state(state := self._fresh_state(point, dice.getrandbits(62)))
            leaves = point.instance.draw(point.as_given, dice.getrandbits(62))
            race.fill(buffers, 0, leaves)
            try:
                program.window([0], grad=self.bench.contract.gradients)
            except ChildFailure:
                if how == anew.MOVED:
                    break
                raise
            answer = buffers.answers(0), list(buffers.inputs[0])
            result = point.checker.check(point.as_given, leaves, state, *answer)
            if how == anew.MOVED and not result.passed:
                break
            self.results.append(self.chance.passed(result))
            if not self.results[-1].passed:
                reason = f"made anew when another instance was gone: {result.name}: {result.detail}"
                raise Wrong("verify", reason, result.detail)

    def _in_threads(self, program: Program) -> None:
        """In a process of its own that has more threads, where OpenMP is in it, or where it says that it counts cores:
        rows by two threads are two halves, and who leaves the rest of a division to nobody is right until somebody has
        a third core."""
        point = self.points[0] if not self.points[0].dear else min(self.points, key=lambda one: one.instance.work)
        if self.bench.device.type != "cpu" or self.bench.contract.random:
            return
        if not (self.counts or load.openmp(program.pid)):
            return
        threads = next(count for count in THREADS if count != torch.get_num_threads())
        try:
            with self._loaded(point, threads) as other:
                other.stage = "verify"
                buffers = point.bind(other, point.as_given, 1)
                leaves = point.instance.draw(point.as_given, random.Random(self.seed ^ 0x7).getrandbits(62))
                result = self._call(other, point, point.as_given, buffers, 0, leaves, point.instance.first_state)
        except ChildFailure as failure:
            raise ChildFailure(failure.stage, f"in {threads} threads: {failure.reason}", failure.detail) from failure
        if not result.passed:
            raise Wrong("verify", f"in {threads} threads: {result.name}: {result.detail}", result.detail)

    @sharing
    def _weights_alone(self, program: Program, point: Point) -> None:
        """Equal inputs, and weights of which one alone is new, or one element of each: fresh weights are new in all of
        them at once, so a program that looks at some of them to see whether to fold them anew is right there."""
        instance = point.instance
        if not instance.first_state or self.bench.contract.frozen_parameters:
            return
        dice = random.Random(self.seed ^ 0xA10E)
        dear = instance.work > HEAVY or point.state_bytes > DEAR_BYTES
        fresh = self._fresh_state(point, dice.getrandbits(62))
        alone = weights.ALONE_CHEAPLY if instance.work <= LIGHT else weights.ALONE
        states = weights.partly(instance.first_state, fresh, dice, few=dear, alone=alone)
        leaves = self._first_call(point, self.seed)
        buffers = point.bind(program, point.as_given, 1)
        program.set_state(instance.first_state)
        race.fill(buffers, 0, leaves)
        program.window([0], grad=self.bench.contract.gradients)  # what it keeps of these weights, it makes now
        for what, state in states:
            program.set_state(state)
            result = self._beside_eager(program, point, buffers, leaves, state)
            if result is not None and not result.passed:
                raise Wrong("verify", f"{what}: {result.name}: {result.detail}", result.detail)

    @sharing
    def _into_one_tensor(self, program: Program, point: Point) -> None:
        """Calls of other values, half of them in the tensor objects of the call before (``left.kept``), as a loop
        writes its mask: who knows an input by being the same object answers with what was made of the last."""
        instance, dice, contract = point.instance, random.Random(self.seed ^ 0x0B1EC7), self.bench.contract
        if point.dear or (contract.random and contract.gradients):  # those of a call without them are of other numbers
            return
        program.set_state(state := instance.first_state)
        buffers = point.bind(program, point.as_given, 1)
        for _ in range(IN_ONE):
            if self.stateful:
                program.set_state(state)
            call = point.as_given, instance.draw(point.as_given, dice.getrandbits(62)), state
            if contract.gradients:  # without them: a mask that is made anew for them is kept under no_grad
                result = self._under_no_grad(program, point, buffers, *call)
            else:
                result = self._call(program, point, call[0], buffers, 0, *call[1:])
            if not result.passed:
                how = ", under torch.no_grad()" if contract.gradients else ""
                reason = f"with other values in the tensors of an earlier call{how}: {result.name}: {result.detail}"
                raise Wrong("verify", reason, result.detail)

    def _zeros_in_turn(self, program: Program, point: Point) -> None:
        """Two calls that differ in the signs of zeros alone, where the reference tells those apart (``atan2``,
        ``copysign``): who kept the first answer and compares inputs by value has that one for both."""
        instance, dice = point.instance, random.Random(self.seed ^ 0x2E05)
        if self.bench.contract.random or point.dear:
            return
        program.set_state(state := instance.first_state)
        seed, rng = dice.getrandbits(62), inputs.generator(dice.getrandbits(62), instance.device)
        drawn = instance.draw(point.as_given, seed)
        spared = instance.kept | instance.constant
        places = [torch.rand(leaf.shape, generator=rng, device=leaf.device) < ZEROS for leaf in drawn]
        pair = [
            instance.given(
                [
                    leaf.masked_fill(there, zero) if leaf.dtype in inputs.FLOATS and at not in spared else leaf
                    for at, (leaf, there) in enumerate(zip(drawn, places, strict=True))
                ],
                seed,
            )
            for zero in dice.sample((0.0, -0.0), 2)
        ]
        if not all(point.checker.accepts(point.as_given, leaves, state) for leaves in pair):
            return
        one, other = (instance.eager(leaves, state) for leaves in pair)
        if all(map(torch.equal, one, other)):
            return
        buffers = point.bind(program, point.as_given, 1)
        for leaves in pair:
            if self.stateful:
                program.set_state(state)
            result = self._call(program, point, point.as_given, buffers, 0, leaves, state)
            if not result.passed:
                reason = f"after a call with zeros of the other sign: {result.name}: {result.detail}"
                raise Wrong("verify", reason, result.detail)

    def _beside_eager(
        self, program: Program, point: Point, buffers: Buffers, leaves: list[torch.Tensor], state: Any
    ) -> CaseResult | None:
        """One call, compared in full. Where a product in float64 is dear an answer as near to eager's as a timed call
        must be needs no more, and None is said: one that keeps what it made of other weights is not as near."""
        instance = point.instance
        if not self._outputs_alone(point):
            return self._call(program, point, point.as_given, buffers, 0, leaves, state)
        race.fill(buffers, 0, leaves)
        self._looked_at(program.window([0]), point, point.as_given)
        eager, ours, after = instance.eager(leaves, state), buffers.answers(0), list(buffers.inputs[0])
        if spot_checks.alike(leaves, ours, after, eager, self.near, self.bench.contract.index_outputs):
            return None
        point.checker.answered(leaves, state, eager)
        self.results.append(self.chance.passed(point.checker.check(point.as_given, leaves, state, ours, after)))
        return self.results[-1]

    def _draws(self, seed: int, plan: TimingPlan, stock_seed: int | None) -> Iterator[list[torch.Tensor]]:
        """What the calls of a race are given; see ``Bench.draws`` for the seeds."""
        made = self.bench.draws(seed, plan.draw_seconds, stock_seed, plan.sets)
        return taken.of_one_shape(self.points[0], made)

    def _outputs_alone(self, point: Point) -> bool:
        """Whether calls of this case are dear, and all that they give is outputs, the same each time."""
        contract = self.bench.contract
        return point.instance.work > HEAVY and not (contract.random or contract.gradients or contract.mutates)

    def _in_other_mode(self, program: Program, point: Point) -> None:
        """Where train() and eval() are one to the reference, they are to the candidate too."""
        contract, instance = self.bench.contract, point.instance
        name = "eval()" if instance.training else "train()"
        if contract.both_modes:
            return
        if contract.random:
            self.conditions.append(f"not judged in {name} mode, where results are random")
            return
        if self.spares(MODES) or instance.work > HEAVY:
            self.conditions.append(f"not judged in {name} mode: too dear")
            return
        variant, leaves, state = self._elsewhere(program, point, self.seed ^ 0x0DD)
        truth = point.checker.truth(variant, leaves, state)
        theirs = instance.in_other_mode(leaves, state)
        # the second: spectral_norm moves its vectors in train() mode, by less than agreement allows where these are
        # nearly right, and yet by 25 times the honest error
        if (
            theirs is None
            or agreement.differ(theirs, truth.eager)
            or not point.checker.check(variant, leaves, state, theirs, brief=True).passed
        ):
            self.conditions.append(f"not judged in {name} mode, in which the reference answers otherwise")
            return
        program.mode(training=not instance.training)
        buffers = point.bind(program, variant, 1)
        result = self._call(program, point, variant, buffers, 0, leaves, state)
        if not result.passed:
            raise Wrong("verify", f"in {name} mode: {result.name}: {result.detail}", result.detail)
        program.mode(training=instance.training)

    def _probe(self) -> None:
        """Cases nobody asked for: a failure there narrows the proven space and refuses nothing."""
        for point in self.bench.probes(self.seed):
            variant = dataclasses.replace(point.as_given, required=False)
            try:
                with self._loaded(point) as other:
                    other.stage = "verify"
                    self._variants(other, point, [variant])
            except (ChildFailure, Wrong) as failure:
                name = f"{point.case.name}: {variant.name}"
                self.results.append(
                    CaseResult(
                        name=name, required=False, passed=False, detail=str(failure)[:300], error_ratio=0.0, calls=1
                    )
                )
