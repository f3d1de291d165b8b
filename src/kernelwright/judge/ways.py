# SPDX-License-Identifier: Apache-2.0
"""Which way a reference goes, and the counts at which it turns: around numbers that its source has, and where it goes
two ways with counts a power of two apart, by halving.

Numbers are found as far as the source tells them. What is reckoned out of a counter, ``(100000 / n) ** 0.5`` where
that is below one, or a share of all steps that is above a half, turns where no number stands: there the halves find it.
Behind a turn by numbers alone answers change slowly, by 5e-6 at the next count: some counts are four times as far.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch.utils.weak import WeakIdKeyDictionary

from kernelwright.judge.host_copy import on_host
from kernelwright.judge.kinds import Watching

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State

TIMES = (1, 3)
"""Multiples of them that are tried."""
Number = TypeVar("Number", int, float)

MODES = 4
"""Numbers that are tried where a task has a single one that never changes."""
PAIRED = 4
"""Numbers of which each two are."""
ALONE = 3
"""How many times as often as others a count comes that has a way of its own."""
FURTHER = 4
"""How many times as far, or as near, counts are beside which each has numbers of its own."""
HALVED = 4
"""Pairs of powers of two between which a turn is looked for, at the most."""


class Way(NamedTuple):
    """How a reference goes: which operators run in their order, on which tensors, and what the single flags are that
    they answer; and with which numbers of Python's. Those may be others in each call, where one is read out of a tensor
    and put in again."""

    operators: tuple[Any, ...]
    numbers: tuple[Any, ...]
    cells: int = 0
    """Elements of all that operators make: no part of the way."""


class _Path(Watching):
    """Follows one. Tensors are told from one another: a product with one weight or another, by what a norm is, runs the
    same operators."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.operators: list[Any] = []
        self.numbers: list[Any] = []
        self.cells = 0
        self._marks, self._next = WeakIdKeyDictionary(), itertools.count()
        for value in (*model.parameters(), *model.buffers()):
            self._mark(value)

    def _mark(self, value: torch.Tensor) -> int:
        """The number of a tensor, in the order they come."""
        if (known := self._marks.get(value)) is None:
            known = self._marks[value] = next(self._next)
        return int(known)

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        given = [*args, *(kwargs or {}).values()]
        given += [one for arg in args if isinstance(arg, list | tuple) for one in arg]
        marks = [self._mark(arg) for arg in given if isinstance(arg, torch.Tensor)]
        out = func(*args, **(kwargs or {}))
        flag = isinstance(out, torch.Tensor) and out.dtype is torch.bool and out.numel() == 1
        self.operators.append((func, *marks, bool(out)) if flag else (func, *marks))
        self.numbers += [arg for arg in (*args, *(kwargs or {}).values()) if isinstance(arg, int | float)]
        if isinstance(out, torch.Tensor):
            self._mark(out)
            self.cells += out.numel()
        return out


def way(instance: Instance, leaves: Sequence[torch.Tensor], state: State | None = None) -> Way | None:
    """How the reference goes with such inputs; None where it does not take them."""
    with (path := _Path(instance.model)):
        taken = instance.accepted(instance.given(leaves, 1), state)
    return None if taken is None else Way(tuple(path.operators), tuple(path.numbers), path.cells)


def modes(instance: Instance, leaves: Sequence[torch.Tensor], index: int) -> tuple[int, ...]:
    """Small numbers with which the reference takes another way, in the place of a single one that is always the same: a
    third mode, that a program without it passed as long as zero and one came alone."""
    there = on_host(instance)
    return () if there is None else other_numbers(there, [leaf.cpu() for leaf in leaves], index, range(MODES))


def other_numbers(
    instance: Instance, leaves: Sequence[torch.Tensor], index: int, numbers: Iterable[Number]
) -> tuple[Number, ...]:
    """Those in the place of a single one with which the reference takes another way."""
    usual = way(instance, leaves) if leaves[index].numel() == 1 else None
    if usual is None:
        return ()
    found = {number: way(instance, with_number(leaves, index, number)) for number in numbers}
    return tuple(n for n, other in found.items() if other is not None and other.operators != usual.operators)


def with_number(leaves: Sequence[torch.Tensor], index: int, number: float) -> list[torch.Tensor]:
    """A call in which one input is this number throughout."""
    return [torch.full_like(leaf, number) if at == index else leaf for at, leaf in enumerate(leaves)]


def differ(one: Way | None, other: Way | None, *, alone: bool = False) -> bool:
    """Whether the reference takes both and goes two ways; ``alone``: by operators."""
    if one is None or other is None:
        return False
    return one.operators != other.operators or not alone and one.numbers != other.numbers


def steady(one: Way | None, other: Way | None) -> bool:
    """Whether the reference takes both, in one way, and makes as much: a count that differs is no size to it."""
    return one is not None and other is not None and not differ(one, other) and one.cells == other.cells


def _other(ways: Sequence[Way | None]) -> list[bool]:
    """Which of them are others than those before, but for the first; by operators alone where all are by numbers."""
    pairs = list(zip(ways, ways[1:], strict=False))
    alone = all(a != b for a, b in pairs if a is not None and b is not None)
    return [differ(a, b, alone=alone) for a, b in pairs]


def at_turns(
    numbers: Sequence[int],
    most: int,
    way_of: Callable[[int], Way | None],
    short: Collection[int] = (0,),
    times: Sequence[int] = TIMES,
) -> list[int]:
    """Counts up to ``most`` at which a reference turns: those beside which, one less or one more, it goes another way,
    such as have a way of their own more often. ``way_of``: how it goes with a count. Looked for so far ``short``
    of each number: what counts samples comes to it by a whole batch before it is looked at."""
    known = functools.cache(way_of)
    out = list[int]()
    for number in numbers:
        for often, off in itertools.product(times, short):
            middle = number * often - off
            around = [c for c in range(middle - 2, middle + 3) if 0 <= c <= most]
            turned = [False, *_other([known(c) for c in around]), False]
            for count, before, after in zip(around, turned, turned[1:], strict=False):
                out += [count] * (ALONE if before and after else int(before or after))
    return out


def together(numbers: Sequence[int]) -> list[int]:
    """Counts at which two of them meet, of the largest few: products, as of steps of so many batches, and the multiple
    of one from the other on, as where each 1000th copies a target but for the first 12500."""
    pairs = [sorted(pair) for pair in itertools.combinations(numbers[:PAIRED], 2)]
    found = [n for less, more in pairs for n in (less * more, -(-more // less) * less)]
    return sorted(set(found).difference(numbers))


def between(most: int, way_of: Callable[[int], Way | None]) -> list[int]:
    """Counts up to ``most`` on both sides of a turn between two powers of two, and some that are further from it where
    each count there has numbers of its own."""
    known = functools.cache(way_of)
    powers = [2**power - 1 for power in range(most.bit_length() + 1) if 2**power - 1 <= most]
    out = list[int]()
    for low, high in itertools.islice(_turning(powers, known), HALVED):
        out += [low, high]
        before, after = low // FURTHER, high * FURTHER
        out += [before] if low > 1 and differ(known(low - 1), known(low)) and known(before) is not None else []
        out += [after] if after <= most and differ(known(high), known(high + 1)) and known(after) is not None else []
    return out


def _turning(counts: Sequence[int], known: Callable[[int], Way | None]) -> Iterator[tuple[int, int]]:
    """The neighbours between which the reference turns, one pair for two of these counts between which it does: it
    leaves the way of one, where the count before had the same, or comes to that of the other."""
    ways = [known(count) for count in counts]
    turned = _other(ways)
    for at, other in enumerate(turned):
        stays = at > 0 and not turned[at - 1] and ways[at - 1] is not None
        comes = at + 1 < len(turned) and not turned[at + 1] and ways[at + 2] is not None
        alone = differ(ways[at], ways[at + 1], alone=True)
        if other and (alone or stays or comes):  # not amid a ramp, whose numbers are others at each count
            usual = ways[at if alone or stays else at + 1]
            low, high = _halved(counts[at], counts[at + 1], known, usual, alone=alone)
            if differ(known(low), known(high)):
                yield low, high


def _halved(
    low: int, high: int, known: Callable[[int], Way | None], usual: Way | None, *, alone: bool = False
) -> tuple[int, int]:
    """Neighbours between two counts of which one goes the ``usual`` way, and the other does not."""
    first = not differ(known(low), usual, alone=alone)
    while high - low > 1:
        middle = (low + high) // 2
        like_low = (not differ(known(middle), usual, alone=alone)) is first
        low, high = (middle, high) if like_low else (low, middle)
    return low, high
