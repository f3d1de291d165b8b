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
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from kernelwright.judge import codes, conditions, named, numerics, whole
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.inputs import Variant
from kernelwright.judge.kinds import Watching

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State

AT, BESIDE = "counts of its source", "sizes beside its conditions"
READS = "reads numbers out of tensors"
"""Said of a reference that has such an operator: where none does, Python decides by no number of a tensor."""
READING = "aten::_local_scalar_dense"
TIMES = (1, 3)
"""Multiples of them that are tried."""
ALONE = 3
"""How many times as often as others a count comes that has a way of its own."""
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
FURTHEST, STEP = 24, 4
"""Powers of two by which floats are scaled in search of one, up and down, and at a time."""
MARGINS = (2.0**-4, 2.0**-6)
"""How far from where it turns sizes lie: no honest sum errs by as much, in half precision by the first alone."""
HALVINGS = 10
"""Of the logarithm of what is between."""


def reads(operator_: Any) -> bool:
    """Whether an operator hands a number to Python."""
    return bool(operator_._schema.name == READING)


Call = tuple[Sequence[torch.Tensor], "State | None"]


class Way(NamedTuple):
    """How a reference goes: which operators run in their order and what the single flags are that they answer; and with
    which numbers of Python's. Those may be others in each call, where one is read out of a tensor and put in again."""

    operators: tuple[Any, ...]
    numbers: tuple[Any, ...]


class _Path(Watching):
    """Follows one."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Any] = []
        self.numbers: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        out = func(*args, **(kwargs or {}))
        flag = isinstance(out, torch.Tensor) and out.dtype is torch.bool and out.numel() == 1
        self.operators.append((func, bool(out)) if flag else (func,))
        self.numbers += [arg for arg in (*args, *(kwargs or {}).values()) if isinstance(arg, int | float)]
        return out


def way(instance: Instance, leaves: Sequence[torch.Tensor], state: State | None = None) -> Way | None:
    """How the reference goes with such inputs; None where it does not take them."""
    with (path := _Path()):
        taken = instance.accepted(instance.given(leaves, 1), state)
    return None if taken is None else Way(tuple(path.operators), tuple(path.numbers))


def _other(ways: Sequence[Way | None]) -> list[bool]:
    """Which of them are others than those before, but for the first; by operators alone where all are by numbers."""
    pairs = [(a, b) for a, b in zip(ways, ways[1:], strict=False)]
    known = [pair for pair in pairs if None not in pair]
    if all(a != b for a, b in known):
        return [a is not None and b is not None and a.operators != b.operators for a, b in pairs]
    return [a is not None and b is not None and a != b for a, b in pairs]


def at_turns(numbers: Sequence[int], most: int, way_of: Callable[[int], Way | None]) -> list[int]:
    """Counts up to ``most`` at which a reference turns: those beside which, one less or one more, it goes another way,
    such as have a way of their own more often. ``way_of``: how it goes with a count."""
    known = functools.cache(way_of)
    out = list[int]()
    for number in numbers:
        for times in TIMES:
            around = [c for c in range(number * times - 2, number * times + 3) if 0 <= c <= most]
            turned = [False, *_other([known(c) for c in around]), False]
            for count, before, after in zip(around, turned, turned[1:], strict=False):
                out += [count] * (ALONE if before and after else int(before or after))
    return out


_COUNTERS: WeakKeyDictionary[Instance, tuple[list[str], list[int]]] = WeakKeyDictionary()


def counters(instance: Instance) -> tuple[list[str], list[int]]:
    """Buffers that count something, and the counts at which the reference turns, both empty where it does at none;
    looked for once."""
    if instance not in _COUNTERS:
        names = [name for name, value in instance.first_state if codes.counter(name, value)]
        numbers = _numbers(instance) if names else []
        if not numbers or instance.contract.random or runs(instance) < LEAST:
            found = list[int]()
        else:
            leaves, first = instance._raw(instance.seed)[0], instance.first_state
            found = at_turns(numbers, conditions.LARGEST, lambda n: way(instance, leaves, counted(first, names, n)))
        _COUNTERS[instance] = (names, found) if found else ([], [])
    return _COUNTERS[instance]


def _numbers(instance: Instance) -> list[int]:
    reference, model = instance.reference, instance.model
    return conditions.counts(reference.task, model, named.names(reference.module, model))


def counted(state: State, names: Collection[str], count: int) -> State:
    return [(name, torch.full_like(value, count) if name in names else value) for name, value in state]


def each(instance: Instance, state: State, dice: random.Random) -> list[State]:
    """Weights with counters at a few of these, after which it is looked at what one call leaves."""
    names, found = counters(instance)
    often = sorted(set(found), key=lambda n: -found.count(n))[: 2 * LEFT]
    some = dice.sample(often, min(LEFT, len(often)))
    return [counted(state, names, count) for count in some]


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
    """What was found of an instance: by input the counts that turn, or all around its numbers where none does; by input
    of floats a scale near which it turns, and whether by operators alone."""

    counts: tuple[tuple[int, tuple[int, ...]], ...] = ()
    scales: tuple[tuple[int, float, bool], ...] = ()


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
        return _with(leaves, index, torch.full_like(leaves[index], dice.choice(able)))
    index, near, alone = dice.choice(of(instance).scales)
    margin = MARGINS[0] if leaves[index].itemsize == 2 else dice.choice(MARGINS)
    made = Scaled(instance, functools.partial(_enlarged, leaves, index), alone)
    return list(made.beside(near, 1 if seed % 2 else -1, margin)[0])  # of two draws in turn one lies on each side


def _with(leaves: Sequence[torch.Tensor], index: int, leaf: torch.Tensor) -> list[torch.Tensor]:
    return [leaf if at == index else one for at, one in enumerate(leaves)]


def _counting(instance: Instance) -> Iterator[tuple[int, tuple[int, ...]]]:
    first = instance._raw(instance.seed)[0]
    short = [i for i, x in enumerate(first) if x.dtype in whole.INTEGERS and 0 < x.numel() <= SHORT]
    short = [i for i in short if i not in instance.constant and i not in instance.bonds.sums]
    numbers = _numbers(instance) if short else []
    if not numbers or instance.contract.random or runs(instance) < LEAST:
        return
    draws = [first, *(instance._raw(instance.seed + number)[0] for number in range(1, SEEN))]
    for index in short:
        ends = min(int(draw[index].min()) for draw in draws), max(int(draw[index].max()) for draw in draws)
        if able := _within(instance, first, index, numbers, ends):
            yield index, able


def _within(
    instance: Instance, leaves: Sequence[torch.Tensor], index: int, numbers: Sequence[int], ends: tuple[int, int]
) -> tuple[int, ...]:
    """Counts between the ends of what an input is seen to hold. Who reads as many elements as a count says would read
    past the end of a row, where a slice of torch's ends."""
    low, high = ends

    def with_count(count: int) -> Way | None:
        return way(instance, _with(leaves, index, torch.full_like(leaves[index], count))) if low <= count else None

    plain = [number * times + aside for number in numbers for times in TIMES for aside in (-1, 0, 1)]
    return tuple(at_turns(numbers, high, with_count) or [count for count in plain if low <= count <= high])


def _scaling(instance: Instance) -> Iterator[tuple[int, float, bool]]:
    """By input of floats, the scale next to its own size at which the reference turns. None where it goes two ways on
    draws of the task's own."""
    if not conditions.source(instance.reference.task).turns or instance.contract.random or runs(instance) < LEAST:
        return
    first, second = (instance._raw(instance.seed + number)[0] for number in range(2))
    usual, again = way(instance, first), way(instance, second)
    if usual is None or again is None or usual.operators != again.operators:
        return
    held = {*instance.bonds.flags, *instance.bonds.far}
    floats = [i for i, x in enumerate(first) if x.is_floating_point() and x.itemsize > 1 and i not in held]
    for index in floats[: runs(instance) // EACH]:
        if numerics.finite(first[index]):
            made = Scaled(instance, functools.partial(_enlarged, first, index), usual != again)
            yield from ((index, scale, made.alone) for scale in made.found())


def _enlarged(leaves: Sequence[torch.Tensor], index: int, scale: float) -> Call:
    """A call with one input scaled."""
    return _with(leaves, index, (leaves[index] * scale).to(leaves[index].dtype)), None


@dataclass(frozen=True, slots=True)
class Scaled:
    """A call in which an input, or a weight, is scaled."""

    instance: Instance
    made: Callable[[float], Call]
    """The call by the scale."""
    alone: bool = False
    """Ways are told by operators alone."""
    known: dict[float, Any] = field(default_factory=dict)

    def _way(self, scale: float) -> Any:
        if scale not in self.known:
            found = way(self.instance, *self.made(scale))
            self.known[scale] = found.operators if found is not None and self.alone else found
        return self.known[scale]

    def found(self) -> Iterator[float]:
        """The scale next to one at which the reference turns, if there is any."""
        for power in sorted((p for p in range(-FURTHEST, FURTHEST + 1, STEP) if p), key=abs):
            ends = 2.0 ** (power - math.copysign(STEP, power)), 2.0**power
            if self.turns(*ends):
                yield self.at(ends)
                return

    def turns(self, near: float, far: float) -> bool:
        """Whether the reference goes two ways at two scales, and takes both."""
        here, there = self._way(near), self._way(far)
        return here is not None and there is not None and bool(here != there)

    def at(self, ends: tuple[float, float]) -> float:
        """The scale between two at which it leaves the way of the first, to 2^-8 of it."""
        near, far = ends
        usual = self._way(near)
        for _ in range(HALVINGS):
            middle = math.sqrt(near * far)
            near, far = (middle, far) if self._way(middle) == usual else (near, middle)
        return math.sqrt(near * far)

    def beside(self, near: float, side: int, margin: float) -> Call:
        """A little more, or less, than where the reference turns with these; as they are where it does not within a
        factor of two."""
        if not self.turns(near / 2, near * 2):
            return self.made(1.0)
        return self.made(self.at((near / 2, near * 2)) * (1.0 + side * margin))
