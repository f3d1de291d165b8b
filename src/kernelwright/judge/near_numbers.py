# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that are nearly those of another input, or one another: one apart, or alike in their low or high bits,
pairs that add up to the same or take longest to divide by each other, one below a square, a power or a sum of all
numbers before.

Numbers by lot from a wide range are none of this. A program that compared them in float64 or by 32 bits of them, kept
eight in each bucket of a table, carried over a few places alone or ended Euclid's algorithm early was right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from kernelwright.judge import whole
from kernelwright.judge.dealing import below

NEAR = "numbers nearly alike"
SHARE, MOST = 1 / 2, 7 / 8
"""Of the numbers those that change, about: where others stay to be found among them, and where none need to."""
FEWEST = 8
"""Numbers that are left of the range, at the least, where the low bits of all are the same."""
BASES, OTHERS = (3, 5, 6, 7, 10), 1 / 3
"""Of which there are powers, and the share of those beside the rest: of a loop that divides by 3 or 10 a logarithm in
float64 errs at some of them alone."""
BASES_BELOW = 64
"""Of bases by lot, two of which there are powers in each draw."""
WORD = 32
"""Bits that a program may look at alone."""

Numbers = torch.Tensor
Change = Callable[[Numbers, Numbers, int, int, torch.Generator], Numbers]


def near(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """One of these by lot, for all inputs of whole numbers. None leaves the range of what it was, what lies in order
    stays, and numbers that are all different stay so. Where few of a range are there, the others may have no meaning:
    those stay as they are."""
    out = list(leaves)
    some = [index for index, leaf in enumerate(leaves) if dense(leaf)]
    twins = {i: next((j for j in some if j < i and leaves[j].shape == leaves[i].shape), None) for i in some}
    halves = {i: leaves[i].shape.index(2) for i in some if leaves[i].dim() > 1 and 2 in leaves[i].shape}
    pairs = [i for i in some if twins[i] is not None or i in halves]
    kind = below(len(CHANGES) + (len(PAIRS) if pairs else 0), rng)
    if kind >= len(CHANGES):
        join = PAIRS[kind - len(CHANGES)]
        for index in pairs:
            twin = twins[index]
            if twin is not None:
                out[twin], out[index] = join(leaves[twin], leaves[index], rng)
            else:
                first, second = leaves[index].unbind(halves[index])
                out[index] = torch.stack(join(first, second, rng), halves[index])
        return out
    for number, index in enumerate(some):
        other = out[some[below(number, rng)]] if number and below(2, rng) else leaves[index]
        out[index] = _changed(leaves[index], other, CHANGES[kind], rng)
    return out


def dense(leaf: torch.Tensor) -> bool:
    """Whether it holds whole numbers, of whose range any may come: most was drawn, or hardly any number twice."""
    if leaf.dtype not in whole.INTEGERS or leaf.numel() < 2 or not whole.may_move(leaf):
        return False
    count = len(leaf.unique())
    low, high = (int(end) for end in torch.aminmax(leaf))
    return high - low >= FEWEST and (2 * count >= high - low + 1 or 2 * count >= leaf.numel())


def _changed(leaf: torch.Tensor, other: torch.Tensor, change: Change, rng: torch.Generator) -> torch.Tensor:
    low, high = (int(end) for end in torch.aminmax(leaf))
    flat = other.reshape(-1).to(torch.int64)
    if other.shape == leaf.shape and other is not leaf:
        theirs = flat.reshape(leaf.shape)
    else:
        theirs = flat[torch.randint(len(flat), leaf.shape, generator=rng, device=leaf.device)]
    return kept(leaf, change(leaf.to(torch.int64), theirs, low, high, rng))


def kept(leaf: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """What was ``made``, where that is in the range, and no number twice where none was."""
    low, high = torch.aminmax(leaf)
    fits = (made >= low) & (made <= high)
    if not whole.repeats(leaf):
        fits &= ~torch.isin(made, leaf.to(made.dtype)) & whole.first_of_each(made)
    return whole.kept_apart(leaf, torch.where(fits, made.to(leaf.dtype), leaf))


def _some(leaf: Numbers, made: Numbers, share: float, rng: torch.Generator) -> Numbers:
    return torch.where(torch.rand(leaf.shape, generator=rng, device=leaf.device) < share, made, leaf)


def _powers(leaf: Numbers, bits: int, rng: torch.Generator) -> Numbers:
    """Powers of two below 2^bits, by lot."""
    return torch.ones_like(leaf) << torch.randint(max(1, bits), leaf.shape, generator=rng, device=leaf.device)


def _apart(leaf: Numbers, theirs: Numbers, low: int, high: int, rng: torch.Generator) -> Numbers:
    """Another, and one more or less, or another power of two, or, where all have that room, what has its low word."""
    step = _powers(leaf, (high - low).bit_length(), rng)
    step = _some(step, torch.ones_like(step), SHARE, rng)
    if (high - low) >> WORD and below(2, rng):
        step = torch.full_like(step, 1 << WORD)
    sign = 1 - 2 * torch.randint(2, leaf.shape, generator=rng, device=leaf.device)
    return _some(leaf, theirs + sign * step, SHARE, rng)


def _in_buckets(leaf: Numbers, theirs: Numbers, low: int, high: int, rng: torch.Generator) -> Numbers:
    """The low bits of most are the same."""
    size = 1 << (1 + below(max(1, ((high - low + 1) // FEWEST).bit_length() - 1), rng))
    return _some(leaf, torch.div(leaf, size, rounding_mode="floor") * size + below(size, rng), MOST, rng)


def _beside(leaf: Numbers, theirs: Numbers, low: int, high: int, rng: torch.Generator) -> Numbers:
    """Squares, triangular numbers and powers of two and of others of all sizes, and those one less."""
    bits = min(62, max(1, high.bit_length()))
    root = torch.rand(leaf.shape, generator=rng, device=leaf.device, dtype=torch.float64) * (bits / 2)
    roots = torch.exp2(root).long().clamp(max=math.isqrt(max(high, 1)))
    above = torch.where(roots % 2 == 0, roots // 2 * (roots + 1), (roots + 1) // 2 * roots)
    made = _some(_some(roots.square(), above, SHARE, rng), _figures(roots, bits), OTHERS, rng)
    made = _some(made, _powers(leaf, bits, rng), SHARE, rng)
    bases = (*BASES, *torch.randint(2, 1 + BASES_BELOW, (2,), generator=rng, device=leaf.device).tolist())
    known = [base**power for base in bases for power in range(1, 1 + int(math.log(max(high, base), base)))]
    others = torch.tensor([one for one in known if one < 1 << 62], device=leaf.device)
    chosen = torch.randint(len(others), leaf.shape, generator=rng, device=leaf.device)
    made = _some(made, others[chosen], OTHERS, rng)
    return _some(leaf, made - torch.randint(2, leaf.shape, generator=rng, device=leaf.device), MOST, rng)


def _figures(roots: Numbers, bits: int) -> Numbers:
    """Of roots by lot the pentagonal number, or the cube, or the tetrahedral number, of which a triple is unranked."""
    small = roots.clamp(max=1 << bits // 3)
    solid = small * (small + 1) // 2 * (small + 2) // 3
    return torch.where(roots % 3 == 0, roots * (3 * roots - 1) // 2, torch.where(roots % 3 == 1, small**3, solid))


CHANGES: tuple[Change, ...] = (_apart, _in_buckets, _beside, _beside)
"""What becomes of one input, given numbers of another, or of itself; twice as often what has most kinds."""


def _complement(first: Numbers, second: Numbers, rng: torch.Generator) -> tuple[Numbers, Numbers]:
    """Along a part of each row the second is what is left of both ends of its range together: a carry goes on there."""
    size = second.shape[-1] if second.dim() else 1
    lines = (*second.shape[:-1], 1)
    start, end = (torch.randint(size + 1, lines, generator=rng, device=second.device) for _ in range(2))
    places = torch.arange(size, device=second.device)
    there = (places >= torch.minimum(start, end)) & (places < torch.maximum(start, end))
    low, high = torch.aminmax(second.to(torch.int64))
    made = torch.where(there, low + high - first.to(torch.int64), second.to(torch.int64))
    return first, kept(second, made)


def _euclid(first: Numbers, second: Numbers, rng: torch.Generator) -> tuple[Numbers, Numbers]:
    """Two of Fibonacci's numbers, one after the other, times the same: Euclid's algorithm takes as many steps as it can
    (G. Lame, Note sur la limite du nombre des divisions, 1844)."""
    most = min(int(first.max()), int(second.max()))
    known = [1, 1]
    while known[-1] + known[-2] <= most:
        known.append(known[-1] + known[-2])
    numbers = torch.tensor(known, dtype=torch.int64, device=first.device)
    late = torch.rand(first.shape, generator=rng, device=first.device).sqrt() * (len(known) - 1)
    at = late.long() + 1
    room = torch.div(max(most, 1), numbers[at], rounding_mode="floor")
    share = torch.rand(first.shape, generator=rng, device=first.device, dtype=torch.float64)
    times = (share * room).long().clamp(min=1)
    chosen = torch.rand(first.shape, generator=rng, device=first.device) < MOST
    upper, lower = (torch.where(chosen, numbers[at - back] * times, one) for back, one in ((0, first), (1, second)))
    return kept(first, upper), kept(second, lower)


PAIRS = (_complement, _euclid)
"""What becomes of two of one shape."""
