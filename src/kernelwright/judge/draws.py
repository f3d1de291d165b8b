# SPDX-License-Identifier: Apache-2.0
"""What one program's random outputs show only over several calls: numbers that repeat, and a law a little off."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge import agreement, atoms, calls, distribution, numerics, orders, repeats, seldom
from kernelwright.judge.inputs import generator, seeded
from kernelwright.judge.lasting import Lasting
from kernelwright.judge.patterns import Sign

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance, State

DRIFT = 8.0
"""Standard errors by which the mean rank over all calls may be off: of normal numbers one in 10^15 is, and of Student's
with RUNS + HELD_OUT - 1 degrees of freedom, as a first call's is, one in 10^9."""
MOST_TILT, FAR_TILT = 4.0, 6.0
"""One call counts for so many at the most. A row that is dropped once in a hundred calls, and in no run of the
reference, is any number of them off. From the latter on a call is doubtful for it: with repetition 32 numbers have the
law of a permutation one by one, and another sum."""
DOUBT = 1 / 8
"""How often an honest call may be doubtful: beyond the most of 36 runs, by a margin, it is once in 37 at the most for
each thing that is looked at, of which most go together."""
DOUBTS = 1e-8
"""How likely so many doubtful calls of an honest program must be, at the least: nine of nine are not, nor 20 of 40."""
FEW_DRIFT = 24.0
"""-log of how often an honest program's mean rank may be off by ``limit_of_few``, to one side: 4 in 10^11."""

SHAKEN, STRONGER = 12, 16.0
"""Runs of which it is asked how rounding moves them, and by how much more once again."""
GROWN = 2.0
"""Times as much as before that they change then, at the least."""
EXACT_RUNS, STILL, SOME = 16, 1 / 16, 1 / 64
"""Runs in float64 of what scatters little; what it scatters by there where it is rounding, of what it does in its own
type; and of how many elements of an output that is asked, at the least."""
NARROW, NOTHING = 2.0**-8, 2.0**-10
"""How little that is: of the size (RMS) of an element or the whole output, and of the largest input or parameter: an
ulp of a mean over 1 / sqrt(1e-5) made 3e-6 of it on two threads and 6e-4 on one."""
Rounding = tuple[torch.Tensor, torch.Tensor | None]
"""By how much it moves an output, and the range of what is random by it alone."""
FURTHER = 1 << 32
"""Numbers from which on runs are others than those that each call is compared with."""


class Draws:
    """The random outputs of one program so far. Not thread-safe."""

    def __init__(self) -> None:
        self._drawn: dict[int, list[distribution.Drawn]] = {}
        self._tilts: dict[int, list[tuple[float, ...]]] = {}
        self._doubts: dict[int, list[str]] = {}
        """Of every call what is doubtful about it, if anything."""
        self._seldom: dict[int, list[str]] = {}
        """The same of calls in which all runs of the reference gave the same."""
        self._lasting: dict[int, Lasting] = {}
        self._firsts: dict[int, distribution.Drawn] = {}
        """What the first process drew in its first call."""
        self._begun: set[int] = set()
        """Outputs of which this process's first call was seen."""

    def forget(self) -> None:
        """Another program answers from here on: what the last one drew is not held against it."""
        self._drawn.clear()
        self._tilts.clear()
        self._doubts.clear()
        self._seldom.clear()
        self._lasting.clear()
        self._firsts.clear()
        self._begun.clear()

    def another_process(self) -> None:
        """A second process of the program answers from here on. It was constructed under the seeds of the first, and
        given others after that: numbers that were made by its constructor are those of the first again."""
        self._begun.clear()

    def told(
        self,
        index: int,
        value: torch.Tensor,
        column: Sequence[torch.Tensor],
        rounding: Callable[[], Sequence[Rounding]] | None = None,
    ) -> str:
        """Empty where output ``index`` may be one more of ``column``, runs of the reference on equal inputs. What
        ``rounding`` does to its outputs is asked for where this one does not look like one."""
        look = distribution.look(value, column)
        if rounding is not None and (look.detail or look.doubt):
            noise, alone = rounding()[index]
            value, column = (value, column) if alone is None else without(value, column, alone)
            if settled([*column, value]):
                return _doubtful(self._doubts.setdefault(index, []), "")
            look = distribution.look(value, column, noise)
        if look.detail:
            return look.detail
        if look.tilts:
            self._tilts.setdefault(index, []).append(look.tilts)
        few, far = value.numel() < distribution.SLICE_LEAST, max(map(abs, look.tilts), default=0.0)
        same = self._repeats(index, look)
        if said := drifted(self._tilts.get(index, []), few) or next((sign.words for sign in same if sign.certain), ""):
            return said
        if look.slices is not None and (said := self._lasting.setdefault(index, Lasting()).told(look.slices)):
            return said
        doubt = look.doubt or next((sign.words for sign in same), "")
        if not doubt and far > FAR_TILT and not few:
            doubt = f"another distribution ({far:.1f} standard errors off)"
        return _doubtful(self._doubts.setdefault(index, []), doubt)

    def usual(
        self, index: int, value: torch.Tensor, usual: torch.Tensor, run: Callable[[int], Sequence[torch.Tensor]]
    ) -> tuple[torch.Tensor, str]:
        """An output that was the same in all runs, ``usual``, less what the reference itself is seen to draw seldom
        (``seldom``), and what is wrong with so many of these; further runs are made by ``run``."""
        before, found = self._seldom.setdefault(index, []), seldom.places(value, usual)
        if not seldom.drawn(found, value, lambda number: run(FURTHER + number)[index]):
            _doubtful(before, "")
            return value, ""
        return torch.where(found, usual, value), _doubtful(before, "it draws what the reference seldom does")

    def _repeats(self, index: int, look: distribution.Look) -> list[Sign]:
        """Which earlier calls this one repeats."""
        if look.mine is None:
            return []
        found = []
        if index not in self._begun:
            self._begun.add(index)
            first = self._firsts.setdefault(index, look.mine)
            said = "the random numbers of its first call are those of another process, which was seeded otherwise"
            if first is not look.mine and (sign := repeats.repeated(first, look.mine, look.theirs)):
                found.append(dataclasses.replace(sign, words=said))
        before = self._drawn.get(index, [])
        self._drawn[index] = [look.mine, *before[: distribution.REMEMBERED - 1]]
        return found + [sign for one in before if (sign := repeats.repeated(one, look.mine, look.theirs))]


def run(
    instance: Instance, leaves: Sequence[torch.Tensor], state: State | None, seed: int, number: int
) -> list[torch.Tensor]:
    """One run of the reference of many on equal inputs."""
    with seeded(seed + number):
        return instance.eager(leaves, state)


def noise(
    instance: Instance, leaves: Sequence[torch.Tensor], state: State | None, seed: int, runs: Sequence[Any]
) -> list[torch.Tensor]:
    """By how much the first of ``runs`` (``run``) change where inputs are moved by half a rounding, float64, the most
    of SHAKEN: what is dropped in one of them shows nothing there. What changes by no more where they are moved by
    STRONGER times as much has jumped, and is no rounding; halves are not moved so far, where a softmax saturates."""
    found, halves = [], any(leaf.dtype in (torch.float16, torch.bfloat16) for leaf in leaves)
    for times in (1.0,) if halves else (1.0, STRONGER):
        found.append([torch.zeros(out.shape, dtype=torch.float64, device=out.device) for out in runs[0]])
        for number, before in enumerate(runs[:SHAKEN]):
            moved = calls.Given(orders.shaken(leaves, generator(seed + number, instance.device), times))
            moved.incoming = leaves.incoming if isinstance(leaves, calls.Given) else None
            for most, one, other in zip(found[-1], before, run(instance, moved, state, seed, number), strict=True):
                change = (other.to(torch.float64) - one.to(torch.float64)).abs_().nan_to_num_(0.0, 0.0, 0.0)
                most.copy_(torch.maximum(most, change))
    first, last = found[0], found[-1]
    return first if halves else [torch.where(b > GROWN * a, a, 0.0) for a, b in zip(first, last, strict=True)]


def rounding(
    instance: Instance, leaves: Sequence[torch.Tensor], state: State | None, seed: int, runs: Sequence[Any]
) -> list[Rounding]:
    """What rounding does to each output: ``noise``, and ``unlike_in_double``."""
    moved, alone = noise(instance, leaves, state, seed, runs), unlike_in_double(instance, leaves, state, seed, runs)
    return [(one, None if alone is None else alone[index]) for index, one in enumerate(moved)]


def without(
    value: torch.Tensor, column: Sequence[torch.Tensor], alone: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """An output and runs of it, with one number for all of an element that is random by rounding ``alone``, where the
    output is as near to the runs as rounding explains."""
    off = (value.to(torch.float64) - column[0].to(torch.float64)).abs()
    there = (alone > 0.0) & (off <= atoms.NOISE * alone)
    return torch.where(there, column[0], value), [torch.where(there, column[0], one) for one in column]


def unlike_in_double(
    instance: Instance, leaves: Sequence[torch.Tensor], state: State | None, seed: int, runs: Sequence[Any]
) -> list[torch.Tensor] | None:
    """The range of ``runs`` of elements that are random by rounding alone, 0 of others: none of EXACT_RUNS in float64
    lies by STILL of it from another. None where no output has some that scatter so little.

    A batch norm of equal numbers, all inputs zero, gives its bias. torch's mean of 64 of them is an ulp off, times
    1 / sqrt(eps): what a dropout before the next layer made of that scattered by 3e-6 of it, and who computes the bias
    itself had another law. Half of the runs must lie apart for it: what is drawn seldom is in few.
    """
    ranges, given = [], [*leaves, *(value for _, value in state or instance.first_state or ())]
    largest = max((numerics.rms(value.float()) for value in given if value.is_floating_point()), default=0.0)
    for column in zip(*runs, strict=True):
        stacked = torch.stack(list(column)).to(torch.float64).nan_to_num(0.0, 0.0, 0.0)
        width, sizes = stacked.amax(0) - stacked.amin(0), stacked.abs().amax(0)
        usual = (stacked - stacked.median(0).values).abs().median(0).values
        little = (NARROW * sizes.clamp_min(numerics.rms(stacked))).clamp_min(NOTHING * largest)
        narrow = (usual > 0.0) & (width < little)
        few = int(narrow.sum()) < max(distribution.SLICE_LEAST, SOME * width.numel())
        ranges.append((torch.zeros_like(width) if few else torch.where(narrow, width, 0.0), usual))
    if instance.without_double or not any(bool(width.any()) for width, _ in ranges):
        return None
    exact = []
    for number in range(EXACT_RUNS):
        with seeded(seed + number):
            answers, kind = instance.oracle(leaves, state)
        if kind == "orders-of-summation":
            return None
        exact.append([one.to(torch.float64) for one in answers])
    found = []
    for (width, usual), column in zip(ranges, zip(*exact, strict=True), strict=True):
        stacked = torch.stack(list(column)).nan_to_num(0.0, 0.0, 0.0).to(width.device)
        found.append(torch.where(stacked.amax(0) - stacked.amin(0) < STILL * usual, width, 0.0))
    return found


def _doubtful(calls: list[str], doubt: str) -> str:
    """Add what is doubtful of a call, if anything, to what is of others; in words, where that is too much."""
    calls.append(doubt)
    if doubt and unlikely(many := sum(map(bool, calls)), len(calls)):
        return f"{doubt}, and the like in {many} of {len(calls)} calls"
    return ""


def settled(column: Sequence[torch.Tensor]) -> bool:
    """Whether all runs of the reference gave the same: such an output is as little random as any other task's."""
    return all(agreement.same_bits(column[0], one) for one in column[1:])


def unlikely(doubtful: int, calls: int) -> bool:
    """Whether an honest program has so many doubtful calls too seldom (DOUBTS): the tail of a binomial law."""
    terms = (math.comb(calls, k) * DOUBT**k * (1 - DOUBT) ** (calls - k) for k in range(doubtful, calls + 1))
    return sum(terms) < DOUBTS


def drifted(calls: Sequence[Sequence[float]], few: bool) -> str:
    """Empty unless the ``tilts`` of all calls together lie further from 0 than chance explains."""
    limit = limit_of_few(len(calls)) if few else DRIFT
    for name, column in zip(("value", "size", "scatter"), zip(*calls, strict=True), strict=bool(calls)):
        kept = column if few else [max(-MOST_TILT, min(MOST_TILT, tilt)) for tilt in column]
        off = sum(kept) / math.sqrt(len(column))
        if abs(off) > limit:
            return f"another distribution ({name}: {abs(off):.1f} standard errors off over {len(column)} calls)"
    return ""


def limit_of_few(calls: int) -> float:
    """Bernstein's: standard errors by which the mean rank of an output of few elements may be off.

    Among RUNS + HELD_OUT + 1 runs one lies sqrt(RUNS + HELD_OUT) deviations from their mean at the most, and is as
    likely to be any of them. A rank that is always the first shows after 80 calls or so.
    """
    reach = FEW_DRIFT * math.sqrt(distribution.RUNS + distribution.HELD_OUT) / (3 * math.sqrt(max(calls, 1)))
    return reach + math.sqrt(reach * reach + 2 * FEW_DRIFT)
