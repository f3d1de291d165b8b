# SPDX-License-Identifier: Apache-2.0
"""Numbers that the source of a reference compares with, or takes rests by, and where it takes another way at them.

A target is copied in every 10000th call, a schedule ends at a step, a gradient whose norm is above 3e7 is dropped: such
a number stands in Python alone, no operator has it, and counters and steps by lot hardly ever lie on it. So the source
is read for numbers, and the reference is called with a few counts around their multiples: where the operators that it
runs are others than one count further on, states and inputs come to lie, and floats are scaled until they are:
inputs here, weights in ``weighed``.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from kernelwright.judge import codes, conditions, inputs, named, numerics, ways, whole
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.host_copy import on_host
from kernelwright.judge.inputs import Variant
from kernelwright.judge.ways import Way, way

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State

AT, BESIDE = "counts of its source", "sizes beside its conditions"
READS = "reads numbers out of tensors"
"""Said of a reference that has such an operator: where none does, Python decides by no number of a tensor."""
READING = "aten::_local_scalar_dense"
COUNTING = (torch.int16, torch.int32, torch.int64, torch.float32, torch.float64)
"""Types that hold such counts."""
FINEST = 2.0**-20
"""Part of one that a count moves by, at the least."""
APART = 3
"""Counters at the most of which each moves alone too."""
LEFT = 2
"""How many counts are looked at after a call."""
SHORT = 8
"""Elements of whole numbers that an input has at the most whose numbers are all one."""
SEEN = 8
"""Draws of a task in which it is seen from where to where its counts go."""
DRAWS, DRAWS_IF_DEARER = 6, 2
WORK, LEAST, EACH = 4 * 10**9, 40, 16
"""Multiply-adds of all runs of the reference in search of other ways, how many runs there must be, and how many there
are for each input or weight that is scaled: who could pay for two looks at two. At a tenth of it a norm above which
2.1e7 multiply-adds were left out was never looked for."""
FURTHEST, STEP, LOWEST = 24, 4, 48
"""Powers of two by which floats are scaled in search of one, up and down, and at a time; and inputs down, twice as many
at a time, as far as squares hold in single precision: a norm below 1e-8, where all is zero, was never met."""
MARGINS = (2.0**-4, 2.0**-6)
"""How far from where it turns sizes lie: no honest sum errs by as much, in half precision by the first alone."""
HALVINGS = 10
"""Of the logarithm of what is between."""
CLEAR = 1.0 + 2 * MARGINS[0]
"""How many times as far as a turn it is looked for the next one."""
TURNS = 3
"""Scales on one side, up or down, at which it turns, at the most: each norm is looked at above the last one alone."""


def reads(operator_: Any) -> bool:
    """Whether an operator hands a number to Python."""
    return bool(operator_._schema.name == READING)


Call = tuple[Sequence[torch.Tensor], "State | None"]
_COUNTERS: WeakKeyDictionary[Instance, tuple[dict[str, int], list[float]]] = WeakKeyDictionary()


def counters(instance: Instance) -> tuple[dict[str, int], list[float]]:
    """Buffers that count something, each with what it holds at the most, and the counts at which the reference turns,
    both empty where it does at none; looked for once, on the host: there a count that is a place out of range is an
    error, and on a device the end of all that is there."""
    if instance not in _COUNTERS:
        able = not instance.contract.random and runs(instance) >= LEAST
        _COUNTERS[instance] = _counters(instance) if able else ({}, [])
    return _COUNTERS[instance]


def _counters(given: Instance) -> tuple[dict[str, int], list[float]]:
    if not any(v.numel() == 1 and v.dtype in COUNTING for _, v in given.first_state):
        return {}, []
    instance = on_host(given)
    if instance is None:
        return {}, []
    counting = _counting_buffers(instance)
    names = _most(instance.first_state, counting)
    if not names:
        return {}, []
    parts = max((round(1 / abs(step)) for step in counting.values() if 0 < abs(step) < 1), default=1)
    short = {0, *(int(step * parts) for step in counting.values() if abs(step) > 2)}
    found = [count for some in apart(names) for count in _turning(instance, names, some, parts, sorted(short))]
    return (names, found) if found else ({}, [])


def apart(names: Mapping[str, int]) -> list[dict[str, int]]:
    """Counters that move together: all of them, and where there are several each of a few, the others as they were. Who
    never looked at what is done after 1,000 bad rounds, but for a time after that, passed while both stood at one."""
    alone = [{name: names[name]} for name in list(names)[:APART]] if len(names) > 1 else []
    return [dict(names), *alone]


def _turning(
    instance: Instance, names: Mapping[str, int], some: Mapping[str, int], parts: int, short: Sequence[int]
) -> list[float]:
    """Counts at which the reference turns with some of its counters there."""
    leaves, first = instance._raw(instance.seed)[0], instance.first_state
    with_count = functools.cache(lambda count: way(instance, leaves, counted(first, some, count)))
    most = conditions.LARGEST
    if max(some.values()) > most and ways.steady(with_count(most), with_count(most // 2)):
        most = max(some.values())
    numbers = [number * parts for number in _numbers(instance, names)]
    there = functools.cache(lambda number: with_count(_whole(number / parts)))
    turned = ways.at_turns(numbers, most * parts, there, short)
    turned += ways.at_turns(ways.together(numbers), most * parts, there, short, times=(1,))
    found = [_whole(count / parts) for count in turned]
    return found + (ways.between(most, with_count) if READS in instance.met["traits"] else [])


def _whole(count: float) -> float:
    return int(count) if count == int(count) else count


def _counting_buffers(instance: Instance) -> dict[str, float]:
    """Those that begin with zero, and single numbers, floats too, to which a call adds a whole one: who counts calls
    from one on has copied a target at the same ones. And how much a call adds, the samples of a batch in one, or
    takes away: a countdown that begins at 20000 was at its end in no call. A half, or another such part that floats add
    up without error, is one too, as of an epoch."""
    first = instance.first_state
    trained = {name for name, _ in instance.model.named_parameters(remove_duplicate=False)}
    zeros = {name for name, value in first if codes.counter(name, value)}
    single = [(n, v) for n, v in first if v.numel() == 1 and v.dtype in COUNTING and n not in trained]
    leaves = instance.given(instance._raw(instance.seed)[0], 1)
    if not single or instance.accepted(leaves, first) is None:
        return dict.fromkeys(zeros, 0.0)
    after = dict(instance.state_after([leaves], first))
    instance._restore()
    added = {name: float(after[name]) - float(value) for name, value in single}
    parted = {name for name, step in added.items() if abs(step) > FINEST and abs(math.frexp(step)[0]) == 0.5}
    exact = {name: step for name, step in added.items() if name in parted or step.is_integer()}
    return dict.fromkeys(zeros, 0.0) | {name: step for name, step in exact.items() if step}


def _most(first: State, counting: Mapping[str, float]) -> dict[str, int]:
    """By counter the largest count: where one begins that counts down, and what has room in 32 bits."""
    ends = {torch.int16: 2**14, torch.int32: 2**30}
    usual = {name: ends.get(value.dtype, conditions.FARTHEST) for name, value in first if name in counting}
    return usual | {name: max(int(value), 0) for name, value in first if counting.get(name, 0) < 0}


def _numbers(instance: Instance, counting: Collection[str]) -> list[int]:
    reference, model = instance.reference, instance.model
    names = {name.rpartition(".")[2] for name in counting}
    return conditions.counts(reference.task, model, named.names(reference.module, model), names)


def counted(state: State, names: Mapping[str, int], count: float) -> State:
    """Weights with counters there, each as far as it goes."""
    return [(n, torch.full_like(value, min(count, names[n])) if n in names else value) for n, value in state]


def each(instance: Instance, state: State, dice: random.Random) -> list[State]:
    """Weights with counters at a few of these, after which it is looked at what one call leaves."""
    names, found = counters(instance)
    often = sorted(set(found), key=lambda n: -found.count(n))[: 2 * LEFT]
    some = dice.sample(often, min(LEFT, len(often)))
    return [counted(state, dice.choice(apart(names)), count) for count in some]


def runs(instance: Instance) -> int:
    return WORK // max(instance.work, 1)


# -- inputs -------------------------------------------------------------------------------------------------------


def drawn(specs: Sequence[TensorSpec], traits: Collection[str], *, light: bool) -> list[Variant]:
    """Such draws, where a reference ``READS``."""
    if READS not in traits:
        return []
    short = any("int" in spec.dtype and math.prod(spec.shape) <= SHORT for spec in specs)
    floats = any(spec.dtype.startswith(("float", "bfloat")) for spec in specs)
    made = Variant(name="", required=True, draws=DRAWS if light else DRAWS_IF_DEARER)
    wanted = {AT: short, BESIDE: floats}
    return [replace(made, name=name, change=name) for name, fits in wanted.items() if fits]


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of an instance: by input the counts that turn, or all around its numbers where none does; by one
    or all inputs of floats scales near which it turns, and whether by operators alone."""

    counts: tuple[tuple[int, tuple[int, ...]], ...] = ()
    scales: tuple[tuple[tuple[int, ...], float, bool | None], ...] = ()


_FOUND: WeakKeyDictionary[Instance, _Found] = WeakKeyDictionary()


def of(instance: Instance) -> _Found:
    """The same, looked for once."""
    if instance not in _FOUND:
        _FOUND[instance] = _Found(tuple(_counting(instance)), tuple(_scaling(instance)))
    return _FOUND[instance]


def met(instance: Instance, change: str) -> bool:
    """Whether there is anything to draw."""
    return bool(of(instance).counts if change == AT else of(instance).scales)


def changed(instance: Instance, change: str, leaves: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """A draw with one count that turns, or floats so large that the reference has just turned, or is about to."""
    if not met(instance, change):
        return leaves
    dice = random.Random(seed)
    if change == AT:
        index, able = dice.choice(of(instance).counts)
        return ways.with_number(leaves, index, dice.choice(able))
    scales = of(instance).scales
    which, near, alone = scales[seed // 2 % len(scales)]  # in turn
    if alone is None:  # a temperature of zero, an order of one
        return ways.with_number(leaves, which[0], near)
    margin = MARGINS[0] if any(leaves[index].itemsize == 2 for index in which) else dice.choice(MARGINS)
    made = Scaled(instance, functools.partial(_enlarged, leaves, which), alone)
    return list(made.beside(near, 1 if seed % 2 else -1, margin)[0])  # of two draws in turn one lies on each side


def _counting(instance: Instance) -> Iterator[tuple[int, tuple[int, ...]]]:
    first = instance._raw(instance.seed)[0]
    short = [i for i, x in enumerate(first) if x.dtype in whole.INTEGERS and 0 < x.numel() <= SHORT]
    short = [i for i in short if i not in instance.bonds.sums]
    if not short or instance.contract.random or runs(instance) < LEAST:
        return
    draws = [first, *(instance._raw(instance.seed + number)[0] for number in range(1, SEEN))]
    for index in short:
        if index in instance.constant:
            yield from [(index, able) for able in [ways.modes(instance, first, index)] if able]
            continue
        ends = min(int(draw[index].min()) for draw in draws), max(int(draw[index].max()) for draw in draws)
        if able := _within(instance, first, index, ends):
            yield index, able


def _argument(instance: Instance, index: int, count: int) -> list[str]:
    """The name of this one of so many inputs; of all where there are others beside tensors."""
    try:
        names = list(inspect.signature(instance.model.forward).parameters)
    except (TypeError, ValueError):  # one that is no function of Python's
        return []
    return [names[index]] if len(names) == count else names


def _within(instance: Instance, leaves: Sequence[torch.Tensor], index: int, ends: tuple[int, int]) -> tuple[int, ...]:
    """Counts between the ends of what an input is seen to hold. Who reads as many elements as a count says would read
    past the end of a row, where a slice of torch's ends."""
    low, high = ends

    def with_count(count: int) -> Way | None:
        return way(instance, ways.with_number(leaves, index, count)) if low <= count else None

    known, named_so = functools.cache(with_count), _argument(instance, index, len(leaves))
    turned = [*ways.at_turns(_numbers(instance, named_so), high, known), *ways.between(high, known)]
    plain = [
        number * times + aside for number in _numbers(instance, ()) for times in ways.TIMES for aside in (-1, 0, 1)
    ]
    return tuple(turned or [count for count in plain if low <= count <= high])


def _scaling(instance: Instance) -> Iterator[tuple[tuple[int, ...], float, bool | None]]:
    """By input of floats, and for all of them at once, scales next to their own size at which the reference turns; of a
    single number zero and numbers of its source instead (None) with which it does. None where it goes two ways on draws
    of the task's own."""
    if not conditions.source(instance.reference.task).turns or instance.contract.random or runs(instance) < LEAST:
        return
    first, second = (instance._raw(instance.seed + number)[0] for number in range(2))
    usual, again = way(instance, first), way(instance, second)
    if usual is None or again is None or usual.operators != again.operators:
        return
    held = {*instance.bonds.flags, *instance.bonds.far}
    floats = [i for i, x in enumerate(first) if x.is_floating_point() and x.itemsize > 1 and i not in held]
    floats = [index for index in floats if numerics.finite(first[index])]
    sets = [*([tuple(floats)] if len(floats) > 1 else []), *((index,) for index in floats)]
    for which in sets[: runs(instance) // EACH]:
        down = _down([first[index] for index in which])
        made = Scaled(instance, functools.partial(_enlarged, first, which), usual != again, down)
        yield from ((which, scale, alone) for scale, alone in made.found())
    live, parts = named.names(instance.reference.module, instance.model), named.parts_of(instance.model)
    numbers = conditions.source(instance.reference.task).numbers(live, parts)
    for index in [index for index in floats if first[index].numel() == 1 and bool(first[index].any())]:
        some = ways.other_numbers(instance, first, index, sorted({0.0, *map(float, numbers)})[:SHORT])
        yield from (((index,), number, None) for number in some)


def _down(leaves: Sequence[torch.Tensor]) -> int:
    """Powers of two by which these are scaled down: until elements are 2^-48, whose squares single precision holds."""
    if any(leaf.dtype is torch.float16 for leaf in leaves):
        return FURTHEST
    least = max(min(inputs.size_of(leaf) for leaf in leaves), 2.0**-LOWEST)
    return max(FURTHEST, min(LOWEST, LOWEST + int(math.log2(least))))


def _enlarged(leaves: Sequence[torch.Tensor], which: Collection[int], scale: float) -> Call:
    """A call with some inputs scaled."""
    return [(leaf * scale).to(leaf.dtype) if at in which else leaf for at, leaf in enumerate(leaves)], None


@dataclass(frozen=True, slots=True)
class Scaled:
    """A call in which an input, or a weight, is scaled."""

    instance: Instance
    made: Callable[[float], Call]
    """The call by the scale."""
    alone: bool = False
    """Ways are told by operators alone."""
    down: int = FURTHEST
    """Powers of two by which it is scaled down at the most."""
    known: dict[float, Way | None] = field(default_factory=dict)

    def _way(self, scale: float) -> Way | None:
        if scale not in self.known:
            self.known[scale] = way(self.instance, *self.made(scale))
        return self.known[scale]

    def found(self) -> Iterator[tuple[float, bool]]:
        """Scales next to those at which the reference turns, if there are any, up and down; and whether by operators
        alone, as behind the first one where a number is another at each scale."""
        for side in (1, -1):
            alone, left = self.alone, TURNS
            powers = [*range(0, FURTHEST + 1, STEP), *range(FURTHEST + 2 * STEP, self.down + 1, 2 * STEP)]
            ends = [2.0 ** (side * power) for power in powers if side < 0 or power <= FURTHEST]
            for near, far in itertools.pairwise(ends):
                made = replace(self, alone=alone)
                while left and (far - near) * side > 0 and made.turns(near, far):
                    yield (scale := made.at((near, far))), alone
                    near, left = scale * CLEAR**side, left - 1
                    alone = alone or made.turns(near, near * CLEAR**side)
                    made = replace(self, alone=alone)
            if self.alone and left == TURNS and (scale := self._settled(*ends[-2:])):
                yield scale, False

    def _settled(self, near: float, far: float) -> float:
        """Where numbers become the same whatever the scale that are others at each, if they do so up to ``near``: a
        norm that is kept off zero by the larger of two, or below an end by the less; else 0."""
        made = replace(self, alone=False)
        if not ways.steady(self._way(near), self._way(far)) or not made.turns(1.0, far):
            return 0.0
        return made.at((far, 1.0))

    def turns(self, near: float, far: float) -> bool:
        """Whether the reference goes two ways at two scales, and takes both."""
        return ways.differ(self._way(near), self._way(far), alone=self.alone)

    def at(self, ends: tuple[float, float]) -> float:
        """The scale between two at which it leaves the way of the first, to 2^-8 of it."""
        near, far = ends
        for _ in range(HALVINGS):
            middle = math.sqrt(near * far)
            left = self._way(middle) is None or self.turns(ends[0], middle)
            near, far = (near, middle) if left else (middle, far)
        return math.sqrt(near * far)

    def beside(self, near: float, side: int, margin: float) -> Call:
        """A little more, or less, than where the reference turns with these; as they are where it does not within a
        factor of two."""
        ends = near / 2, near * 2
        if not self.turns(*ends):
            return self.made(1.0)
        if not self.alone and self.turns(near / 4, near / 2):  # numbers are others at each scale there
            ends = ends[::-1]
        return self.made(self.at(ends) * (1.0 + side * margin))
