# SPDX-License-Identifier: Apache-2.0
"""Whole numbers of which what a reference compares is equal: solved for, with the reference itself as the equation.

Of sums, remainders or running totals of numbers by lot hardly any two are ever equal, so a program that took ``<`` for
``<=``, or saw only the plainest of the cases in which they are, was right. What is compared is read off the operators;
how far apart both sides are is asked again with one number of each row moved by one, which tells how fast that changes,
and the number is moved by as much as is missing: Newton's step, exact for what is linear in a number, and tried for all
else. A row is kept where it came out, and is else as it was drawn.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge import near_numbers, whole
from kernelwright.judge.inputs import Variant
from kernelwright.judge.kinds import Watching

if TYPE_CHECKING:
    from kernelwright.judge.buffers import TensorSpec
    from kernelwright.judge.instance import Instance

MET = "comparisons met"
COMPARES = "compares whole numbers"
"""What is said of a reference that has one of OPERATORS, or of DIVIDES."""
OPERATORS = {f"aten::{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "sign", "sgn")}
DIVIDES = {f"aten::{name}" for name in ("floor_divide", "remainder", "fmod", "div")}
"""Operators that compare a number with the nearest multiple of another: a quotient by a reciprocal in float64 is wrong
at full hours alone."""
DRAWS, DRAWS_IF_DEARER = 8, 2
MOST = 32
"""Comparisons of one call that are looked at, the last ones: a loop has hundreds."""
PLACES, IN_TURN, TRIES = 48, 12, 3
"""Numbers of a row that are moved to see what it does, and to make one comparison equal; comparisons that are tried."""
WORK, LEAST = 7 * 10**7, 6
"""Multiply-adds of all runs of the reference for one try (30 ms), and how many runs there must be."""
CELLS = 1 << 16
"""Elements of a comparison that is looked at, and numbers of a row times those of them that are compared in one."""
LAST = 1 / 2
"""How often it is the last comparison: what else is compared is often one input with a constant, which come anyway."""
FEW = 8
"""Numbers from the least on, of which every third draw is made at first: of a row that doubles few have room."""
TOGETHER = 2
"""Comparisons that are met in one draw, at the most: two numbers are a pair only where both are."""
TRIPLE = (3, 4, 5)
"""Of which multiples are taken: the squares of the first two add up to that of the last."""
GROWTH = 4
"""Part of the range (one of so many) from which on a side of a triangle with the least area grows no further."""
SHARE = 3 / 4
"""Rows that are changed at all."""
ASIDE = (0, 0, 0, 1, -1)
"""How far apart both sides are in the end, at one place of a row: who sees no more than most of it is right else."""

Numbers = torch.Tensor


def compares(operator: Any) -> bool:
    """Whether an operator is one of OPERATORS, or of DIVIDES."""
    return operator._schema.name in OPERATORS | DIVIDES


class Compared(Watching):
    """Remembers how far apart both sides of each comparison of whole numbers are."""

    def __init__(self) -> None:
        super().__init__()
        self.apart: deque[Numbers] = deque(maxlen=MOST)

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Called by torch for every operator below autograd."""
        if compares(func) and all(map(_whole, args)):
            one, *other = args
            first, second = torch.as_tensor(one).to(torch.int64), other[0] if other else 0
            apart = _from_multiple(first, second) if func._schema.name in DIVIDES else first - second
            if 0 < apart.numel() <= CELLS:
                self.apart.append(apart)
        return func(*args, **(kwargs or {}))


def _from_multiple(one: Numbers, other: Numbers | int) -> Numbers:
    """How far numbers are from the nearest multiple; from zero, of zero."""
    size = torch.as_tensor(other).to(one.device, torch.int64).abs()
    half = size // 2
    return torch.where(size == 0, one, (one + half).remainder(size.clamp(min=1)) - half)


def _whole(side: Any) -> bool:
    number = isinstance(side, int) and not isinstance(side, bool)
    return number or (isinstance(side, torch.Tensor) and side.dtype in whole.INTEGERS)


def drawn(specs: Sequence[TensorSpec], traits: Collection[str], *, light: bool) -> list[Variant]:
    """Such draws, where a reference ``COMPARES`` and whole numbers come in."""
    if COMPARES not in traits or not any("int" in spec.dtype and len(spec.shape) for spec in specs):
        return []
    return [Variant(name=MET, required=True, change=MET, draws=DRAWS if light else DRAWS_IF_DEARER)]


def met(instance: Instance, leaves: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """The leaves with inputs of whole numbers changed so that comparisons by lot have equal sides, or are one off, in
    most rows: in one place, or in all. None leaves the range of what it was. Where nothing came out, ``_squares``."""
    dice = random.Random(seed)
    free = [i for i, leaf in enumerate(leaves) if near_numbers.dense(leaf)]
    runs = min(2 * PLACES, WORK // max(instance.work, 1))
    if not free or runs < LEAST or instance.contract.random or not instance.bonds.free(leaves):
        return leaves
    done = set[int]()
    for _ in range(TRIES):
        one = _Try(instance, leaves, dice.choice(free), dice, runs)
        if (found := one.made(done)) is not None:
            leaves = found
            done.add(one.place)
        if len(done) == TOGETHER:
            break
    return leaves if done else dice.choice((_squares, _corners))(leaves, free, dice)


def _three(leaves: Sequence[torch.Tensor], free: Sequence[int], dice: random.Random) -> list[int]:
    """Three inputs of one shape, by lot where there are more; none where there are fewer."""
    shape = leaves[dice.choice(free)].shape
    alike = [i for i in free if leaves[i].shape == shape]
    if len(alike) < len(TRIPLE):
        return []
    return alike if len(alike) == len(TRIPLE) else dice.sample(alike, len(TRIPLE))


def _squares(leaves: list[torch.Tensor], free: Sequence[int], dice: random.Random) -> list[torch.Tensor]:
    """Three inputs of one shape of which the squares of two add up to that of the third, or of which the square of one
    is four times the product of the others, each element in another order: what is no line in any number is not solved
    for, and one order for all left out the right one in 23 proofs of 100."""
    if not (chosen := _three(leaves, free, dice)):
        return leaves
    first, high = leaves[chosen[0]], min(int(leaves[i].max()) for i in chosen)
    rng = torch.Generator(first.device).manual_seed(dice.getrandbits(60))

    def below(most: int) -> Numbers:
        return torch.randint(max(1, most), first.shape, generator=rng, device=first.device) + 1

    one, other, by = (below(most) for most in (math.isqrt(max(high, 0) // 4), math.isqrt(max(high, 0) // 4), 4))
    each, squares = below(high // TRIPLE[-1]), below(2) == 1
    made = (by * one * one, 2 * by * one * other, by * other * other)
    numbers = torch.stack([torch.where(squares, n * each, m) for n, m in zip(TRIPLE, made, strict=True)])
    turned = torch.rand(numbers.shape, generator=rng, device=first.device).argsort(0)
    out = list(leaves)
    for at, value in zip(chosen, numbers.gather(0, turned), strict=True):
        out[at] = near_numbers.kept(leaves[at], value)
    return out


def _corners(leaves: list[torch.Tensor], free: Sequence[int], dice: random.Random) -> list[torch.Tensor]:
    """Three inputs of points whose triangles have no area, or the least there is, in most rows; as ``_squares`` where
    there are none: of corners by lot in a range of 10^5 float32 errs in the sign of hardly any."""
    chosen = _three(leaves, free, dice)
    shape = leaves[chosen[0]].shape if chosen else ()
    if len(shape) < 2 or shape[-1] != 2:
        return _squares(leaves, free, dice)
    first = leaves[chosen[0]]
    low, high = max(int(leaves[i].min()) for i in chosen), min(int(leaves[i].max()) for i in chosen)
    rng = torch.Generator(first.device).manual_seed(dice.getrandbits(60))

    def below(most: int) -> Numbers:
        return torch.randint(max(1, most), shape[:-1], generator=rng, device=first.device)[..., None]

    side, other = (torch.tensor(edge, device=first.device).expand(shape).clone() for edge in ([1, 0], [0, 1]))
    while int(side.max()) < (high - low) // GROWTH:  # the determinant of both stays 1 or -1
        side, other = side * (1 + below(2)) + other, side
    flat = below(2) == 1
    corner = torch.stack([below(max(1, high - low - int(side.max()))) + low for _ in range(2)], -1).reshape(shape)
    made = [corner, corner + torch.where(flat, 2 * other, side), corner + other]
    changed = below(4) > 0
    out = list(leaves)
    for at, value in zip(chosen, made, strict=True):
        out[at] = near_numbers.kept(leaves[at], torch.where(changed, value, leaves[at].to(value.dtype)))
    return out


@dataclass(slots=True)
class _Try:
    """One input, one comparison."""

    instance: Instance
    leaves: list[torch.Tensor]
    at: int
    dice: random.Random
    runs: int
    rows: int = 1
    place: int = -1
    """Which comparison, counted from the last."""

    def made(self, done: set[int]) -> list[torch.Tensor] | None:
        """All leaves, that one changed; None where nothing came out. ``done``: comparisons that are met."""
        leaf = self.leaves[self.at]
        apart = self._apart(leaf)
        self.place = -1 if self.dice.random() < LAST else -1 - self.dice.randrange(max(1, len(apart)))
        if not apart or self.place in done:
            return None
        first = apart[self.place]
        aligned = leaf.dim() > 0 and first.dim() > 0 and len(leaf) == len(first)
        self.rows = len(leaf) if aligned else 1
        values, missing = self._flat(leaf), self._flat(first)
        slopes = self._slopes(values, missing)
        if slopes is None or not bool(slopes.any()):
            return None
        solved = self._solved(values, slopes, self._pairs(slopes))
        return None if solved is None else [solved if i == self.at else one for i, one in enumerate(self.leaves)]

    def _flat(self, leaf: torch.Tensor) -> Numbers:
        return leaf.reshape(self.rows, -1).to(torch.int64)

    def _apart(self, leaf: torch.Tensor) -> list[Numbers]:
        """What a call has of comparisons with such an input; none where the reference refuses it."""
        given = self.instance.given([leaf if i == self.at else one for i, one in enumerate(self.leaves)], 1)
        with Compared() as seen:
            taken = self.instance.accepted(given)
        return [] if taken is None else list(seen.apart)

    def _missing(self, values: Numbers) -> Numbers | None:
        leaf = self.leaves[self.at]
        apart = self._apart(values.reshape(leaf.shape).to(leaf.dtype))
        found = apart[self.place] if len(apart) >= -self.place else None
        return None if found is None or found.numel() % self.rows else self._flat(found)

    def _slopes(self, values: Numbers, missing: Numbers) -> Numbers | None:
        """[places, comparisons of a row]: what one more of a number adds, as the rows say in which it was moved."""
        size, count = values.shape[1], missing.shape[1]
        if size * count > CELLS:
            return None
        places = torch.arange(size) if size <= PLACES else torch.tensor(self.dice.sample(range(size), PLACES))
        found = torch.zeros(size, count, dtype=torch.int64, device=values.device)
        low, high = values.min(), values.max()
        for start in range(0, len(places), self.rows):
            some = places[start : start + self.rows].to(values.device)
            if start // self.rows >= max(1, self.runs // 2):
                break
            rows = torch.arange(len(some), device=values.device)
            moved = values.clone()
            up = torch.where(moved[rows, some] < high, 1, -1) * int(low < high)
            moved[rows, some] += up
            other = self._missing(moved)
            if other is None or other.shape != missing.shape:
                return None
            found[some] = (other - missing)[rows] * up[:, None]
        return found

    def _pairs(self, slopes: Numbers) -> list[tuple[list[int], int]]:
        """(places that are moved in turn, a comparison): one by lot, or each with a place of its own, the last there is
        that changes it by one."""
        steps = slopes.abs().tolist()
        columns = [c for c in range(slopes.shape[1]) if any(row[c] for row in steps)]
        if len(columns) == 1 or self.dice.random() < 1 / 3:
            column = self.dice.choice(columns)
            able = [place for place, row in enumerate(steps) if row[column]]
            return [(self.dice.sample(able, min(len(able), IN_TURN)), column)]
        used, pairs = set[int](), list[tuple[list[int], int]]()
        for column in columns:
            able = [place for place, row in enumerate(steps) if row[column] == 1 and place not in used]
            if able:
                used.add(able[-1])
                pairs.append(([able[-1]], column))
        return pairs or [([next(p for p, row in enumerate(steps) if row[columns[0]])], columns[0])]

    def _solved(self, values: Numbers, slopes: Numbers, pairs: list[tuple[list[int], int]]) -> torch.Tensor | None:
        """The input with the rows that came out; None where none did, or all were so before."""
        low, high = values.min(), values.max()
        columns = [column for _, column in pairs]
        aside = torch.zeros(self.rows, len(columns), dtype=torch.int64, device=values.device)
        one = torch.tensor(self.dice.choices(range(len(columns)), k=self.rows), device=values.device)[:, None]
        aside.scatter_(1, one, torch.tensor(self.dice.choices(ASIDE, k=self.rows), device=values.device)[:, None])
        small = whole.repeats(self.leaves[self.at]) and self.dice.random() < 1 / 3
        made = low + (values - low) % FEW if small else values.clone()
        missing = self._missing(made)
        for step in range(min(self.runs, 2 + sum(len(places) for places, _ in pairs))):
            if missing is None:
                return None
            left = missing[:, columns] - aside
            if not bool(left.any()):
                break
            before = made.clone()
            for number, (places, column) in enumerate(pairs):
                place = places[step % len(places)]
                move = torch.div(-left[:, number], int(slopes[place, column]), rounding_mode="floor")
                made[:, place] = self._towards(made[:, place], made[:, place] + move, int(low), int(high))
            if bool((before == made).all()) and all(len(places) == 1 for places, _ in pairs):
                break
            missing = self._missing(made)
        if missing is None or missing.shape[1] <= max(columns):
            return None
        out = ((missing[:, columns] - aside) == 0).all(1) & (made != values).any(1)
        out &= torch.tensor([self.dice.random() < SHARE for _ in range(self.rows)], device=out.device)
        leaf = self.leaves[self.at]
        changed = torch.where(out[:, None], made, values).reshape(leaf.shape)
        return near_numbers.kept(leaf, changed) if bool(out.any()) else None

    def _towards(self, values: Numbers, wanted: Numbers, low: int, high: int) -> Numbers:
        """What is wanted, or where that is out of range some of the way to its end: the ends themselves would come
        twice."""
        rng = torch.Generator(values.device).manual_seed(self.dice.getrandbits(60))
        part = 0.5 + 0.5 * torch.rand(values.shape, generator=rng, device=values.device, dtype=torch.float64)
        end = torch.where(wanted > high, high, low)
        return torch.where((wanted < low) | (wanted > high), values + (part * (end - values)).long(), wanted)
