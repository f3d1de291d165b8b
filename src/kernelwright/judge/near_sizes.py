# SPDX-License-Identifier: Apache-2.0
"""Sizes next to those that a program was asked for before: one axis shorter by a few, as many elements in another
shape, one size for several axes, two along one of them, and an axis of a size that something else has.

Cases differ in most axes at once, by much, and in their number of elements: who padded rows to 64 and left the end of a
longer row in its scratch, who kept a table by the number of elements, and who told a matrix from its transpose by which
of two sizes agree, was right in each of them. So was who found the axis of a vector by its three numbers, or told a
mask of each sample from one for all of them, as long as no axis had a size that is fixed, and who needed eight elements
while only one axis was short. Each of these sizes is asked for once, with the task's own values: a
verdict of 25 variants a case need not be passed again for them.
"""

from __future__ import annotations

import ast
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.judge import resized
from kernelwright.judge.variants import LIGHT
from kernelwright.task import Case

if TYPE_CHECKING:
    from kernelwright.judge.bench import Point

Axes = tuple[tuple[str, int], ...]
Accept = Callable[[Sequence[Case], int], Sequence["Point"]]
"""Of some cases those that the reference takes, as points of a seed."""
FEW = 7
"""Most by which an axis is shorter: of what is padded to eight, all but one."""
OTHERWISE = 2, 4, 8, 16
"""By how much where the reference refuses that, of even lengths or of patches."""
SHORTER, PAIRS = 4, 3
"""Axes that become shorter, one after the other, and pairs of which the sizes are exchanged, at the most."""
LONGER = 16
"""Times as long as it was that an axis becomes at the most: of attention the scores grow by as much, to 200 MB."""
TRIES, OF_DEAR = 24, 2
"""Sizes that the reference is asked about, each some three calls of it, and where its weights are dear to draw."""
KINDS = 5
"""A shorter axis, as many elements, two along an axis, a size of something else, equal sizes: on a device one of each
is asked for."""
MET, REFUSED = 2, 4
"""Axes that have the size of another dimension of inputs or results, at the most, beside one of a number in the source,
and how many of each the reference is asked about."""
NUMBER = 1 << 10
"""The largest number in a source that is asked for as a size: windows, heads and groups are smaller."""
FEWER = ((2, 2), (2, 3), (3, 3))
"""What two axes have at once, where the reference refuses one or two along one of them and two or three along another.
"""
VOLUME = 1 << 16
"""The product of all sizes that is asked for instead of those of a dear case, and where all are one."""
ALIKE = 32, 40, 48
"""What all axes have, one of these by lot as far as ``VOLUME`` goes; of four that is 16."""
SMALLEST = 2
"""What an axis has once: one is a case of its own, and a variance of two is neither that nor usual."""


def shrunk(axes: Axes, volume: int = VOLUME) -> Axes:
    """The longest axis halved until the product of all is at most ``volume``."""
    sizes = dict(axes)
    while math.prod(sizes.values()) > volume and max(sizes.values()) > 1:
        longest = max(sizes, key=lambda axis: sizes[axis])
        sizes[longest] = (sizes[longest] + 1) // 2
    return tuple(sizes.items())


def shorter(axes: Axes, axis: str, dice: random.Random) -> Iterator[Axes]:
    """One axis shorter by a few, and by other numbers for references that refuse that."""
    size = dict(axes)[axis]
    for less in (dice.randint(1, FEW), *OTHERWISE):
        if less < size:
            yield _with(axes, {axis: size - less})


def as_many(axes: Axes, one: str, other: str, dice: random.Random) -> list[Axes]:
    """Two axes of another size with the same product: exchanged where neither becomes much longer, or one halved and
    the other twice as long."""
    first, second = dict(axes)[one], dict(axes)[other]
    ways = [(second, first)] if first != second and max(first, second) <= LONGER * min(first, second) else []
    ways += [(2 * first, second // 2)] if second % 2 == 0 else []
    ways += [(first // 2, 2 * second)] if first % 2 == 0 else []
    return [_with(axes, {one: a, other: b}) for a, b in dice.sample(ways, len(ways)) if (a, b) != (first, second)]


def all_alike(axes: Axes, dice: random.Random) -> Iterator[Axes]:
    """One size for all axes, smaller ones for references that refuse that, or take long for it."""
    most = int(VOLUME ** (1 / len(axes)) + 1e-9)
    for size in dict.fromkeys(min(size, most) for size in (dice.choice(ALIKE), 16, 8, 4)):
        yield _with(axes, {axis: size for axis, _ in axes})


def two_alike(axes: Axes, one: str, other: str) -> Iterator[Axes]:
    """One size for two axes, that of either, beside the others."""
    for size in dict.fromkeys((dict(axes)[one], dict(axes)[other])):
        yield shrunk(_with(axes, {one: size, other: size}))


def fixed(own: Point) -> tuple[set[int], set[int]]:
    """The sizes of inputs and results that no axis has, and other whole numbers in the reference: a window of 16 leaves
    one place where an axis has 16."""
    sizes = {size for _, size in own.case.axes}
    specs = (*own.instance.specs, *own.instance.out_specs)
    found = {size for spec in specs for size in spec.shape} - sizes
    nodes = ast.walk(ast.parse(own.instance.reference.task.reference))
    numbers = {node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is int}
    return found, {number for number in numbers - sizes - found if number <= NUMBER}


def meeting(axes: Axes, sizes: set[int], dice: random.Random) -> list[Axes]:
    """One axis of one of these sizes, by lot, where it becomes neither much longer nor as short as it does anyway."""
    ways = [(axis, size) for axis, own in axes for size in sorted(sizes) if SMALLEST < size <= LONGER * own]
    made = [_with(axes, {axis: size}) for axis, size in dice.sample(ways, len(ways))]
    most = max(VOLUME, math.prod(size for _, size in axes))
    return [way for way in made if math.prod(size for _, size in way) <= most][:REFUSED]


def two_small(axes: Axes, dice: random.Random) -> list[Axes]:
    """Two axes by lot short at once."""
    if len(axes) < 2:
        return []
    one, other = dice.sample([axis for axis, _ in axes], 2)
    few = dict.fromkeys(((dice.choice((1, 2)), dice.choice((2, 3))), *FEWER))
    longer = (pair for pair in few if pair[0] < dict(axes)[one] and pair[1] < dict(axes)[other])
    return [_with(axes, {one: first, other: second}) for first, second in longer]


def _with(axes: Axes, sizes: dict[str, int]) -> Axes:
    return tuple((dict(axes) | sizes).items())


@dataclass(frozen=True, slots=True)
class Plan:
    """Cases that the reference takes, in walks, each near the one before it, and those with axes of one size."""

    walks: tuple[tuple[Case, ...], ...]
    """Each begins with the same case."""
    alike: tuple[Case, ...]

    @classmethod
    def of(cls, own: Point, accept: Accept, seed: int, *, dear: bool = False) -> Plan:
        """For a program that was made for ``own``: of a dear case the sizes are smaller from the first one on.
        ``dear``: its weights are dear to draw, and each size draws some."""
        dice, axes = random.Random(seed ^ 0x5125), own.case.axes
        left = iter(range(OF_DEAR if dear else TRIES))

        def taken(ways: Iterable[Axes], *, anew: bool = False, counted: Iterable[int] = left) -> list[Case]:
            """The first of some sizes that the reference takes, made for ``own`` unless it is made ``anew``."""
            for way, _ in zip(ways, counted, strict=False):
                case = Case(name="hidden:" + ", ".join(f"{axis}={size}" for axis, size in way), axes=way)
                if any(fits(own, point, anew=anew) for point in accept((case,), seed)):
                    return [case]
            return []

        names = [axis for axis, _ in axes]
        pairs = [tuple(pair) for pair in itertools.combinations(names, 2)]
        alike = taken(all_alike(axes, dice), anew=True) if pairs else []
        smaller = [way for way in (shrunk(axes, VOLUME >> less) for less in (0, 3, 6)) if way != axes]
        begun = [own.case] if not own.dear else taken(smaller if not dear else [])
        near = list(begun)
        for axis in dice.sample(names, min(SHORTER, len(names))) if begun else []:
            near += taken(shorter(near[-1].axes, axis, dice))
        moved = list(begun)
        for one, other in dice.sample(pairs, len(pairs)) if begun else []:
            moved += taken(as_many(moved[-1].axes, one, other, dice)) if len(moved) <= PAIRS else []
        small = list(begun)
        for axis in dice.sample(names, min(SHORTER, len(names))) if begun else []:
            small += taken([_with(begun[0].axes, {axis: SMALLEST})] if dict(begun[0].axes)[axis] > SMALLEST else [])
        met, free = list(begun), itertools.count()
        for sizes, most in zip(fixed(own), (MET, 1), strict=True) if begun and not dear else ():
            ways = iter(meeting(begun[0].axes, sizes, dice))
            met += itertools.chain.from_iterable(taken(ways, counted=free) for _ in range(most))
        met += taken(two_small(begun[0].axes, dice), counted=free) if begun and not dear else []
        anew, wanted = not alike, len(alike) + (len(names) > 2) if alike else 2
        for one, other in dice.sample(pairs, min(len(pairs), 2 * PAIRS)):  # a process each where a module is made anew
            alike += taken(two_alike(shrunk(axes), one, other), anew=anew) if len(alike) < wanted else []
        return cls(tuple(tuple(walk) for walk in (near, moved, small, met) if len(walk) > 1), tuple(alike))

    def some(self, dice: random.Random, most: int) -> Plan:
        """``most`` kinds by lot, one step or case of each: for programs that are compiled for each size anew."""
        kinds = [*(walk[:2] for walk in self.walks), *((case,) for case in self.alike[:1])]
        chosen = dice.sample(kinds, min(most, len(kinds)))
        walks = [kind for kind in chosen if len(kind) > 1]
        return Plan(tuple(walks), tuple(case for kind in chosen if len(kind) == 1 for case in kind))


def fits(own: Point, point: Point, *, anew: bool = False) -> bool:
    """Whether it is cheap enough, and a module made for ``own`` serves it, unless one is made anew."""
    if point.instance.work > LIGHT or point.dear:
        return False
    return anew or resized.one_module(own.instance, point.instance)
