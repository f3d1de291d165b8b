# SPDX-License-Identifier: Apache-2.0
"""Random results: that they follow the seed, vary as the reference's do, and that gradients are of the numbers drawn.

Under one seed a call is a function like any other. Moved along its gradient by a little it changes by so much as that
says, if the backward pass has the numbers of the forward pass: one that draws its mask of dropout anew has gradients of
the right law, and trains another network.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.judge import agreement, calls, chance, inputs, numerics, outcomes, race, weights
from kernelwright.judge.bench import Point
from kernelwright.judge.checks import Wrong
from kernelwright.judge.correctness import HELD_BYTES
from kernelwright.judge.gradients import Gradients
from kernelwright.judge.instance import Instance
from kernelwright.judge.program import Program
from kernelwright.judge.variants import HEAVY
from kernelwright.sandbox.lease import sharing

STEP = 2.0**-8
"""By how much of its size (RMS) an input or parameter is moved."""
OFF = 0.04
"""By how much of what a gradient says an answer may change otherwise than the reference's does. A mask of dropout that
drops one in ten, drawn anew, is 0.1."""
COARSE = 8.0
"""Roundings of its type that it is moved by at the least."""
SEEDS, SCATTER = 3, 3.0
"""Of halves other seeds of which the reference is asked where a candidate's answer changes otherwise, and times what
the most of all is off by that it may: of attention in bfloat16 with 16 keys what a gradient says is right to 6 %."""
HALVES = ("float16", "bfloat16")
MOST, MOST_OF_DEAR = 16, 6
"""Inputs and parameters that are moved, one at a time, so that what goes round a branch hides none of it."""
LEAST, THIRDS = 6, 2
"""Of each of these, thirds along an axis of so many places that are moved alone: a head's rows for a variance have a
hundredth of the gradient that those for a mean have, and one that drew their noise anew for it was granted."""
Part = tuple[slice, ...]
WHOLE: Part = ()
Run = Callable[[list[torch.Tensor], Any], list[torch.Tensor]]


class Randomness(Gradients):
    """The checks of random results that distributions do not show."""

    __slots__ = ()

    @sharing
    def _follows_seed(self, program: Program, point: Point) -> None:
        """Where random results repeat after torch.manual_seed, so must the candidate's: numbers that somebody made
        ahead, or seeded for himself, do not."""
        if not self.bench.contract.random:
            return
        seed = random.Random(self.seed ^ 0x5EED5).getrandbits(62)
        leaves = self._first_call(point, seed)
        theirs, mine = [], []
        buffers = point.bind(program, point.as_given, 1)
        for _ in range(2):
            with inputs.seeded(seed):
                theirs.append(point.instance.eager(leaves, point.instance.first_state))
            program.set_state(point.instance.first_state)
            race.fill(buffers, 0, leaves)
            program.seed(seed)
            self._looked_at(program.window([0], grad=self.bench.contract.gradients), point, point.as_given)
            mine.append([tensor.clone() for tensor in buffers.answers(0)])
        program.seed(secrets.randbits(62))
        if agreement.differ(*mine) and not agreement.differ(*theirs):
            reason = "its random numbers do not follow torch.manual_seed, and the reference's do"
            raise Wrong("verify", reason, "two calls on equal inputs, each after the same torch.manual_seed, differ")

    def _varies(self, program: Program, point: Point) -> None:
        """Results of many calls on equal inputs come as often as the reference's do, of whole calls and of samples."""
        if not self.bench.contract.random or self.bench.contract.gradients:
            return
        instance, seed = point.instance, random.Random(self.seed ^ 0xD1CE).getrandbits(60)
        many = chance.calls(self.bench.eager_us, HELD_BYTES // max(self.bench.call_bytes, 1))
        leaves = self._first_call(point, seed)
        buffers = point.bind(program, point.as_given, many)
        numbers = itertools.count()

        def columns(count: int) -> list[tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]]:
            """Of each output ``many`` further calls, and ``count`` runs of the reference."""
            program.set_state(instance.first_state)  # hundreds of calls move a rate that rises from call to call
            for call in range(many):
                race.fill(buffers, call, leaves)
            self._looked_at(program.window(list(range(many))), point, point.as_given)
            runs = []
            for number in itertools.islice(numbers, count):
                with inputs.seeded(seed + number):
                    runs.append(instance.eager(leaves, instance.first_state))
            answers = [[answer.to(instance.device) for answer in buffers.answers(call)] for call in range(many)]
            return list(zip(zip(*answers, strict=True), zip(*runs, strict=True), strict=False))

        drawn = columns(chance.RUNS * many)
        for index, (mine, theirs) in enumerate(drawn):
            if said := chance.otherwise(mine, theirs):
                raise Wrong("verify", f"output {index}: {said}")
        further = functools.partial(columns, many)
        if said := outcomes.otherwise(drawn, further, outcomes.times(self.bench.eager_us * many)):
            raise Wrong("verify", said)

    @sharing
    def _belong(self, program: Program, point: Point) -> None:
        """Under one seed gradients are those of the answer, where the reference's are."""
        contract, instance = self.bench.contract, point.instance
        if not (contract.random and instance.gradients) or instance.work > HEAVY:
            return
        dice = random.Random(self.seed ^ 0xBE10)
        seed, names = dice.getrandbits(62), [name for name, _ in instance.gradients]
        leaves, state = instance.draw(point.as_given, seed), self._moving(point, seed)
        if not isinstance(leaves, calls.Given) or leaves.incoming is None:
            return
        buffers, halves = point.bind(program, point.as_given, 1), any(s.dtype in HALVES for s in instance.out_specs)

        def theirs(number: int, given: list[torch.Tensor], values: Any) -> list[torch.Tensor]:
            with inputs.seeded(number):
                return instance.eager(given, values)

        def mine(given: list[torch.Tensor], values: Any) -> list[torch.Tensor]:
            program.set_state(values)
            race.fill(buffers, 0, given)
            program.seed(seed)
            program.window([0], grad=True)
            return [tensor.clone().to(instance.device) for tensor in (*buffers.outputs[0], *buffers.grads[0])]

        parts = {name: [WHOLE] for name in dice.sample(names, min(len(names), MOST_OF_DEAR if point.dear else MOST))}
        for name, some in parts.items():
            shape = instance.gradients[names.index(name)][1].shape
            some += [third(shape, dice) for _ in range(1 if point.dear else THIRDS)]
        for name, part in [(name, part) for name, some in parts.items() for part in some]:
            honest = followed(instance, leaves, state, functools.partial(theirs, seed), name, part)
            if not abs(honest - 1.0) < OFF:  # it passes gradients straight through a step, or there are none
                continue
            found = followed(instance, leaves, state, mine, name, part)
            if abs(found - honest) < OFF:
                continue
            others = (functools.partial(theirs, seed ^ number) for number in range(1, SEEDS + 1) if halves)
            more = [followed(instance, leaves, state, run, name, part) for run in others]
            if not (halves and abs(found - honest) < SCATTER * max(abs(one - 1.0) for one in (honest, *more))):
                said = f"along {'a part of ' if part else ''}it, an answer changes by {found:.3g} of what it says"
                raise Wrong("verify", f"the gradient of {name} is not of the numbers that it drew: moved {said}")
        program.seed(secrets.randbits(62))
        program.set_state(instance.first_state)

    def _moving(self, point: Point, seed: int) -> Any:
        """Weights of which each can be moved by a part of itself: others than the first, where some of these are zero.
        Of a low-rank adapter, whose second matrix begins at zero, the first has no gradient either."""
        first = point.instance.first_state
        zero = any(value.is_floating_point() and value.numel() and not value.any() for _, value in first or ())
        return self._fresh_state(point, seed) if zero and not self.bench.contract.frozen_parameters else first


def third(shape: Sequence[int], dice: random.Random) -> Part:
    """A third along an axis, by lot; all where none is long enough."""
    axes = [axis for axis, size in enumerate(shape) if size >= LEAST]
    if not axes:
        return WHOLE
    axis, which = dice.choice(axes), dice.randrange(3)
    return (*[slice(None)] * axis, slice(shape[axis] * which // 3, shape[axis] * (which + 1) // 3))


def followed(instance: Instance, leaves: calls.Given, state: Any, run: Run, name: str, part: Part = WHOLE) -> float:
    """How an answer changes where an input or parameter, or a part, is moved along its gradient, and back, over what
    that says: near 1 where it is the answer's own. NaN where there is none."""
    first, incoming = run(leaves, state), leaves.incoming or ()
    at = [known for known, _ in instance.gradients].index(name)
    whole = first[len(instance.out_specs) + at]
    gradient = torch.zeros_like(whole)
    gradient[part] = whole[part]
    change = said = 0.0
    for side in (1.0, -1.0):
        moved, others, gain = _along(instance, leaves, state, name, gradient, side * STEP)
        answers = run(moved, others)
        for output in instance.seeds:
            change += side * float((numerics.wide(answers[output]) * numerics.wide(incoming[output])).sum())
        said += side * gain
    return change / said if said else math.nan


def _along(
    instance: Instance, leaves: calls.Given, state: Any, name: str, gradient: torch.Tensor, step: float
) -> tuple[calls.Given, Any, float]:
    """Inputs and weights, the one of that name moved along its gradient by ``step`` of its own size, and what that
    comes to by the gradient."""
    made, (kind, _, which) = calls.Given(leaves), name.partition(":")
    made.incoming, values = leaves.incoming, dict(state or ())
    value = made[int(which)] if kind == "input" else values.get(which)
    if value is None or not (value.is_floating_point() and numerics.finite(gradient)):
        return made, state, 0.0
    size, steep = numerics.rms(numerics.wide(value)), numerics.rms(numerics.wide(gradient))
    if not (size and steep):
        return made, state, 0.0
    step = math.copysign(max(abs(step), COARSE * torch.finfo(value.dtype).eps), step)
    moved = (numerics.wide(value) + numerics.wide(gradient) * (step * size / steep)).to(value.dtype)
    gain = float((numerics.wide(gradient) * (numerics.wide(moved) - numerics.wide(value))).sum())
    if kind == "input":
        made[int(which)] = moved
    else:
        values |= dict.fromkeys(weights.tied(instance.model, which), moved)
    return made, [(key, values[key]) for key, _ in state or ()], gain
