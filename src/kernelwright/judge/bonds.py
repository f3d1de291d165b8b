# SPDX-License-Identifier: Apache-2.0
"""What holds of the values of an input in every draw of a task, and stays so whatever is changed.

A mask or a label that is a float is 0 or 1 because somebody multiplies by it; of 0.001 or -1 of a label a reference
makes something all the same, and who asks ``label > 0.5`` was refused. So such an input changes as booleans do, one of
which is set along an axis as the whole numbers that it stands for, and a symmetric matrix as its half does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from kernelwright.judge import repeated, triangles, whole
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.inputs import FLOATS, OF_ONE, SPARSE_KEPT, Variant, change_leaves
from kernelwright.judge.layouts import EXPANDED
from kernelwright.judge.recombined import MOVED
from kernelwright.judge.symmetric import definite, enlarged, halved, kept_positive, mirrored, positive, words_of

Mix = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

LEAST = 8
"""Numbers of which fewer are zeros and ones in two draws by chance too often: normal ones, rounded, in 5 of 10^4."""
SIGNED = -2
"""Instead of an axis, of ones and minus ones."""
LEAST_ROWS = 4
"""Rows of which fewer have a single one each by chance too often."""
LOTS = 24
"""Draws in which a reference of symmetric matrices must accept a change: of such that have a larger element some are
positive definite. A change that 10 in 12 of them stayed so under was a variant in 2 proofs of 5, and ended the next
call; in 24 draws it is one in a hundred."""
THINNED = 12
"""The same where matrices are factored and an input, by lot, is thinned out: of two, 16 in 24 draws were taken."""
POWERS = 1.0, 4.0, 16.0
"""Of lengths that were changed, by lot: what they are shares of the whole by."""


def flags(leaf: torch.Tensor, no: float = 0.0) -> bool:
    """Whether these floats are ones, and zeros or what else says ``no``, alone."""
    return leaf.dtype in FLOATS and bool(((leaf == no) | (leaf == 1)).all())


def _mixed(leaf: torch.Tensor, no: float = 0.0) -> bool:
    """Whether they are, and some of each; almost all others are told by a few."""
    if leaf.dtype not in FLOATS or leaf.numel() < LEAST or not flags(leaf.reshape(-1)[:LEAST], no):
        return False
    return flags(leaf, no) and 0 < int((leaf == no).sum()) < leaf.numel()


def _lengths(leaves: Sequence[torch.Tensor]) -> dict[int, int]:
    """By input what whole numbers in a row add up to, where an axis of another input is as long."""
    rows = {i: x for i, x in enumerate(leaves) if x.dtype in whole.INTEGERS and x.dim() == 1 and len(x) > 1}
    found = {i: int(row.sum()) for i, row in rows.items() if int(row.min()) >= 0}
    return {i: n for i, n in found.items() if any(n in x.shape for j, x in enumerate(leaves) if j != i and n > 1)}


def _adding_up(made: torch.Tensor, before: torch.Tensor, total: int, seed: int) -> torch.Tensor:
    """Lengths that were changed, with the sum that they had: shares of it by what they are now, or, by lot, by a power
    of that, so that one has most. None is less than the least that there was. While such lengths were put back as they
    were, segments over a size that a program had room for were cut off by it."""
    if int(made.sum()) == total:
        return made
    least = int(before.min())
    above = (made - least).clamp_min(0).double() ** POWERS[seed % len(POWERS)]
    whole, rest = float(above.sum()), total - least * len(made)
    if not 0.0 < whole < math.inf:
        return before
    ends = (above.cumsum(0) * (rest / whole)).round().to(made.dtype)
    return least + ends.diff(prepend=ends.new_zeros(1))


def single(leaf: torch.Tensor) -> int:
    """The last axis along which one element of each row is a one, and the others are zeros; -1 where there is none."""
    axes = [axis for axis, size in enumerate(leaf.shape) if size > 1 and leaf.numel() // size >= LEAST_ROWS]
    return next((axis for axis in reversed(axes) if bool((leaf.count_nonzero(axis) == 1).all())), -1)


def symmetric(leaf: torch.Tensor) -> bool:
    """Whether all of its matrices (the last two dimensions) are, but for rounding, and not all are diagonal; of complex
    ones whether they are Hermitian."""
    return mirrored(leaf) and bool((leaf != leaf.triu().tril()).any())


def _alike(constant: torch.Tensor) -> bool:
    """Whether matrices that are the same in every draw are symmetric, or diagonal, by more than being of one number."""
    return mirrored(constant) and bool((constant != constant.reshape(-1)[0]).any())


@dataclass(frozen=True, slots=True)
class Bonds:
    """By input, what holds of it."""

    triangles: Mapping[int, str]
    flags: Mapping[int, int]
    """Zeros and ones, and the axis along which there is one of the latter; -1 for none. Or ones and minus ones.
    Numbers of few bits do not move beside them where honest error is drawn: a label moved by half an ulp is not equal
    to 1, and of a loss that asks for that any answer passed."""
    symmetric: frozenset[int]
    hermitian: frozenset[int]
    """Those of complex numbers, which are Hermitian."""
    definite: frozenset[int]
    """Symmetric ones that are positive definite."""
    semidefinite: frozenset[int]
    """Those that are so but for rounding, as Gram matrices and covariances of few samples: a reference adds a ridge."""
    positive: frozenset[int]
    """Diagonal ones of positive numbers, as variances: of half of them with another sign the determinant is finite."""
    far: Mapping[int, float]
    """Masks that are added, and the number that stands for -inf in them."""
    hidden: frozenset[int]
    """Masks that are added, of 0 and -inf."""
    twice: Mapping[int, str]
    """Those that hold every number twice along their last axis, and how (``repeated``)."""
    sums: Mapping[int, int]
    """Whole numbers that add up to the size of an axis of another input, as lengths of its parts do: of others a slice
    ends where there is no more, without a word, and who repeats each number so often raises."""

    @classmethod
    def of(
        cls,
        first: Sequence[torch.Tensor],
        second: Sequence[torch.Tensor],
        constant: set[int],
        timed: Bonds | None = None,
    ) -> Bonds:
        """Those of both of two draws; ``constant`` inputs are the same in every draw. ``timed``: those of the timed
        case, where this is another."""
        pairs = list(zip(first, second, strict=True))
        found = {i: (single(a), single(b)) for i, (a, b) in enumerate(pairs) if _mixed(a) and _mixed(b)}
        found |= {i: (SIGNED, SIGNED) for i, (a, b) in enumerate(pairs) if _mixed(a, -1.0) and _mixed(b, -1.0)}
        alike = frozenset(
            i for i, (a, b) in enumerate(pairs) if (_alike(a) if i in constant else symmetric(a) and symmetric(b))
        )
        found = {i: axes for i, axes in found.items() if i not in alike or symmetric(pairs[i][0])}  # else an identity
        lies = triangles.triangular(first, second, constant)
        sound = [i for i in alike if i not in found]
        full = frozenset(i for i in sound if all(map(definite, pairs[i])))
        semi = frozenset(i for i in sound if i not in full and all(definite(x, semi=True) for x in pairs[i]))
        twice = repeated.found(first, second, timed.twice if timed else None)
        return cls(
            lies,
            {index: axis if axis == other else -1 for index, (axis, other) in found.items()},
            alike,
            frozenset(index for index in alike if first[index].is_complex()),
            full,
            semi,
            frozenset(i for i, kind in lies.items() if kind == "diagonal" and all(map(positive, pairs[i]))),
            {i: low for i, (a, b) in enumerate(pairs) if (low := whole.far(a)) and whole.far(b) == low},
            frozenset(i for i, pair in enumerate(pairs) if all(map(whole.is_mask, pair))),
            {i: kind for i, kind in twice.items() if i not in lies and i not in found and i not in alike},
            {i: total for i, total in _lengths(first).items() if _lengths(second).get(i) == total},
        )

    def lots(self, variant: Variant, factors: bool) -> int:
        """In how many draws to ask whether a reference accepts one; ``factors``: it has operators that take no matrix
        which is singular."""
        thin = THINNED if factors and variant.change in SPARSE_KEPT else 1
        return max(
            variant.lots(), LOTS if self.symmetric - self.definite - self.semidefinite and variant.change else thin
        )

    def allowed(self, variants: list[Variant]) -> list[Variant]:
        """Those that leave it as it is: a matrix of one row for all is neither triangular nor symmetric, and has no
        single 1 in each column."""
        rows = self.triangles or self.symmetric or any(axis >= 0 for axis in self.flags.values())
        return [variant for variant in variants if not rows or variant.layout != EXPANDED]

    def specs(self, given: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """As what inputs are changed."""
        kinds = {index: "bool" if axis < 0 else "int64" for index, axis in self.flags.items()}
        return tuple(
            dataclasses.replace(spec, dtype=kinds[index]) if index in kinds else spec
            for index, spec in enumerate(given)
        )

    def changed(self, leaves: list[torch.Tensor], variant: Variant, seed: int, sorts: bool) -> list[torch.Tensor]:
        """A draw with the changes of a variant: what holds of it holds still, but of NaN where a reference looks for
        it, or the contract asks for it."""
        leaves = [repeated.again(leaf, self.twice[i]) if i in self.twice else leaf for i, leaf in enumerate(leaves)]
        odd = variant.special or variant.change == "marks"
        bare = {} if odd else {index: axis for index, axis in self.flags.items() if _bare(leaves[index], axis)}
        given = [_as_set(leaf, bare[index]) if index in bare else leaf for index, leaf in enumerate(leaves)]
        far = {index: low for index, low in self.far.items() if not odd and whole.far(leaves[index]) == low}
        for index, low in far.items():
            given[index] = leaves[index].masked_fill(leaves[index] == low, -math.inf)
        made = change_leaves(given, variant, seed, sorts)
        for index, low in far.items():  # where nothing counts, all count alike, to who adds them
            kept = made[index] is given[index] or variant.change in whole.ADDED
            made[index] = leaves[index] if kept else made[index].masked_fill(made[index] == -math.inf, low)
        for index, axis in bare.items():
            unchanged = made[index] is given[index]
            made[index] = leaves[index] if unchanged else _as_floats(made[index], axis, leaves[index])
        for index, kind in self.twice.items():
            made[index] = repeated.kept_so(leaves[index], made[index], kind)
        for index, total in self.sums.items():
            made[index] = _adding_up(made[index], leaves[index], total, seed)
        for index in self.symmetric:
            made[index] = halved(leaves[index], made[index])
        for index in self.definite:
            made[index] = enlarged(leaves[index], made[index], near=variant.change in OF_ONE)
        for index in self.semidefinite:
            made[index] = enlarged(leaves[index], made[index], near=variant.change in OF_ONE, semi=True)
        made = triangles.kept_so(made, self.triangles)
        return [kept_positive(leaves[i], leaf) if i in self.positive else leaf for i, leaf in enumerate(made)]

    def sound(self, index: int, made: torch.Tensor) -> bool:
        """Whether a symmetric input that was changed is as definite as it was."""
        semi = index in self.semidefinite
        return not semi and index not in self.definite or definite(made, semi=semi)

    def free(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Whether draws may be made of these at once: nothing holds of them, and they lie row by row."""
        held = self.flags or self.symmetric or self.far or self.twice or self.sums
        return not held and all(leaf.is_contiguous() and not _ascends(leaf) for leaf in leaves)

    def mixed(
        self, index: int, base: torch.Tensor, other: torch.Tensor, mix: Mix, dice: torch.Generator, sorts: bool
    ) -> torch.Tensor:
        """An input made of those of two draws by ``mix``. Symmetric ones have their rows and columns multiplied by the
        same factors instead, which leaves definite ones so."""
        if index in self.sums:
            return base.clone()
        axis = self.flags.get(index, -1)
        if index in self.flags and _bare(base, axis) and _bare(other, axis):
            made = _as_floats(mix(_as_set(base, axis), _as_set(other, axis)), axis, base)
            return halved(base, made) if index in self.symmetric else made
        if index in self.far and whole.far(base) and whole.far(other):
            return torch.where(mix(base == 0, other == 0), 0.0, self.far[index]).to(base.dtype)
        if index in self.symmetric:
            side = 1 + MOVED * (2 * torch.rand(base.shape[:-1], generator=dice) - 1).to(base.device, base.dtype)
            return base * (side[..., None] * side[..., None, :])
        made = whole.in_order(base, mix(base, other)) if sorts else mix(base, other)
        if _ascends(base) and _ascends(other):
            made = _ascending(made, base, other)
        return repeated.again(made, self.twice[index]) if index in self.twice else made

    def facts(self, index: int) -> dict[str, str]:
        """What of an input whoever uses a judged program must hold to, by kind."""
        found = {"triangle": self.triangles[index]} if index in self.triangles else {}
        if index in self.flags:
            axis = self.flags[index]
            usual = "1 and -1" if axis == SIGNED else "0 and 1"
            found["bond"] = usual if axis < 0 else f"a single 1 along axis {axis}"
        elif index in self.far:
            found["bond"] = f"0 and {self.far[index]!r}"
        elif index in self.hidden:
            found["bond"] = "0 and -inf"
        elif index in self.symmetric:
            found["bond"] = "Hermitian matrices" if index in self.hermitian else "symmetric matrices"
        elif index in self.twice:
            found["bond"] = f"equal {self.twice[index]} along its last axis"
        elif index in self.sums:
            found["bond"] = f"a sum of {self.sums[index]}"
        return found

    def words(self, names: Sequence[str], model: torch.nn.Module | None = None) -> list[str]:
        """What a proof says of them, and of the buffers of a model."""
        said = {index: "holds zeros and ones alone" for index in self.flags}
        said |= {index: "holds 1 and -1 alone" for index, axis in self.flags.items() if axis == SIGNED}
        said |= {index: f"has a single one along axis {axis}" for index, axis in self.flags.items() if axis >= 0}
        for index in self.symmetric:
            said[index] = "is Hermitian" if index in self.hermitian else "is symmetric"
            said[index] += " and positive definite" if index in self.definite else ""
            said[index] += " and positive semidefinite" if index in self.semidefinite else ""
        said |= {index: "has positive numbers on its diagonal" for index in self.positive}
        said |= {index: f"holds 0 and {low:.9g} alone" for index, low in self.far.items()}
        said |= {index: "holds 0 and -inf alone" for index in self.hidden}
        said |= {index: f"has equal {kind} along its last axis" for index, kind in self.twice.items()}
        said |= {index: f"adds up to {total}, the size of an axis," for index, total in self.sums.items()}
        held = triangles.words_of(self.triangles, names) + [
            f"input {names[index] or index} {words} in every draw, and stays so: programs may rely on that, and on "
            "others were not judged"
            for index, words in said.items()
        ]
        return held + words_of(model)


def _bare(leaf: torch.Tensor, axis: int) -> bool:
    """Whether a draw is what others were."""
    return flags(leaf, -1.0 if axis == SIGNED else 0.0) and (axis < 0 or bool((leaf.count_nonzero(axis) == 1).all()))


def _as_set(leaf: torch.Tensor, axis: int) -> torch.Tensor:
    """As booleans, or the places of the ones along an axis."""
    return leaf > 0 if axis < 0 else leaf.argmax(axis)


def _as_floats(made: torch.Tensor, axis: int, like: torch.Tensor) -> torch.Tensor:
    if axis == SIGNED:
        return made.to(like.dtype) * 2 - 1
    return made.to(like.dtype) if axis < 0 else torch.zeros_like(like).scatter_(axis, made.unsqueeze(axis), 1.0)


def _ascends(values: torch.Tensor) -> bool:
    """Whether these are whole numbers of one row in order: where segments begin, or places."""
    if values.dim() != 1 or values.numel() < 2 or values.dtype not in whole.INTEGERS:
        return False
    return bool((values[1:] >= values[:-1]).all())


def _ascending(made: torch.Tensor, base: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """What was made of two in order, in order: of offsets in none ``embedding_bag`` raises, or gives anything. Where
    neither had a number twice, nor has it, or it is ``base``."""
    made = made.sort().values
    strict = bool((base[1:] > base[:-1]).all() & (other[1:] > other[:-1]).all())
    return base.clone() if strict and bool((made[1:] == made[:-1]).any()) else made
