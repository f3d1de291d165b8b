# SPDX-License-Identifier: Apache-2.0
"""Factors that are not the same for all inputs at once, nor for all elements or directions of one.

A product, or a quotient, of two inputs stays what it is where both are negated, and a quotient where both are scaled:
who left out the ``abs`` of a product of probabilities, or the clamp of a quotient, passed.
"""

from __future__ import annotations

import math

import torch

from kernelwright.judge.dealing import below, few

SIGNS = "signs by lot"
"""The change that negates every second element, by lot: numbers that are never negative become such as any are."""
SIZES = "sizes by lot"
"""The change that scales each input by factors of its own."""
CONDITION = "sizes far apart"
"""The change that squeezes matrices along some of their directions."""
ALIKE = "sizes alike"
"""The change that makes all directions of a matrix but one, or all, count the same."""
SLICES = "slices of other sizes"
"""The change that makes slices along an axis smaller, each by a factor of its own."""
DEEPEST = 16
"""By how many powers of two, at the most: a channel of 1e-4 of the others' size was left out, and nobody asked for it,
since of rows alone each had a size of its own."""
BOTH = "far from zero both ways"
"""The change that moves lines of a tensor far up and down, as many of them each way."""
FAR = 24.0, 400.0
"""By how many sizes (RMS), at the least and the most. The mean of all stays what it was: a norm that took E[x^2] -
E[x]^2 for the variance where that was near zero passed."""
OUTLIERS = 1024
"""Elements among which one outlier lies at the most; a draw may hold as few as one."""
MILD = 16.0, 64.0
"""Times the end of all that every second draw's one outlier is, at the least and the most. Nothing else of such a draw
shows that it is there: of 16384 normal numbers one of 100 makes the mean square 1.6, and an exponential infinite. A
softmax that left out the maximum where the mean square was below 2 passed as long as outliers were of 1000 sizes."""
SHORT = 24
"""Slices of an axis of which groups of any kind lie far up and down."""
FAR_OUT = 1e6
"""Times from which on it is outliers of that size that are asked for."""
UP = 2 / 3
"""Of them those that are the largest of all, not the least."""
LEFT = 4.0, 40.0
"""How many times as large as what is lost in rounding the singular values of squeezed directions are. Pivots are as
small there: of 24 columns 1e-5 to 1e-4 of the largest."""
WHOLE = 1 / 2
"""Of the inputs those that have one factor; the others have one for each row, or for each element of a vector."""


def signed(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """The same sizes, of either sign."""
    return torch.where(torch.rand(leaf.shape, generator=rng, device=leaf.device) < 0.5, -leaf, leaf)


def sized(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """As it is, or ``factor`` times as large, or as small."""
    whole = leaf.dim() == 0 or float(torch.rand((), generator=rng, device=leaf.device)) < WHOLE
    shape = () if whole else (*leaf.shape[:-1], 1) if leaf.dim() > 1 else leaf.shape
    which = torch.randint(3, shape, generator=rng, device=leaf.device)
    return leaf * torch.tensor([1.0 / factor, 1.0, factor], dtype=leaf.dtype, device=leaf.device)[which]


def squeezed(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """Matrices with the singular vectors that they have, but half of them, those of the least singular values, count
    for hardly anything, in each by a lot of its own. Symmetric where they were, with positive eigenvalues where they
    had such. By one lot for eight matrices a draw in four left all pivots of a Cholesky above 1e-4 of the largest."""
    if leaf.dim() < 2 or min(leaf.shape[-2:]) < 2 or leaf.itemsize < 4 or not bool(torch.isfinite(leaf).all()):
        return leaf
    lot = torch.rand((*leaf.shape[:-2], 1), generator=rng, device=leaf.device, dtype=torch.float64) ** 2
    left, sizes, right = torch.linalg.svd(leaf.double(), full_matrices=False)
    count = sizes.shape[-1]
    least = torch.finfo(leaf.dtype).eps * count * LEFT[0] * (LEFT[1] / LEFT[0]) ** lot * sizes[..., :1]
    few = torch.arange(count, device=leaf.device) >= (count + 1) // 2
    made = (left * torch.where(few, least, sizes)[..., None, :]) @ right
    if torch.equal(leaf, leaf.mT):
        made = (made + made.mT) / 2
    return made.to(leaf.dtype)


def alike(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """Symmetric matrices of the size that they have, whose eigenvalues are positive and equal but for one, or for none
    in one of four: turned, so that nobody finds the same vectors to them twice."""
    square = leaf.dim() > 1 and leaf.shape[-1] == leaf.shape[-2] > 1
    if not square or leaf.itemsize < 4 or leaf.is_complex() or not bool(torch.isfinite(leaf).all()):
        return leaf
    size, lines = leaf.shape[-1], (*leaf.shape[:-2], 1)
    turned = torch.linalg.qr(torch.randn(leaf.shape, generator=rng, device=leaf.device, dtype=torch.float64)).Q
    sizes = 1.0 + torch.rand(lines, generator=rng, device=leaf.device, dtype=torch.float64).expand(*lines[:-1], size)
    other = 4.0 * torch.rand(lines, generator=rng, device=leaf.device, dtype=torch.float64)
    first = torch.arange(size, device=leaf.device) == 0
    sizes = torch.where(first & (other > 1.0), other, sizes) * leaf.double().square().mean().sqrt()
    made = (turned * sizes[..., None, :]) @ turned.mT
    return ((made + made.mT) / 2).to(leaf.dtype)


def sliced(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """Some slices along an axis (mostly that of channels), or groups of slices, by lot, are up to 2^DEEPEST times
    smaller; one at the least is as it was. In a third of the draws where those of another axis are, too: tiles."""
    axes = [axis for axis, size in enumerate(leaf.shape) if size > 1]
    if not axes:
        return leaf
    first = _axis(axes, rng)
    chosen, powers = _blocks(leaf, first, rng)
    others = [axis for axis in axes if axis != first]
    if others and below(3, rng) == 0:
        chosen = chosen & _blocks(leaf, others[below(len(others), rng)], rng)[0]
    return (leaf * smaller(chosen, powers)).to(leaf.dtype)


def _axis(axes: list[int], rng: torch.Generator) -> int:
    """One of them; of several every second time that of channels."""
    return axes[below(len(axes), rng)] if len(axes) < 3 or below(2, rng) else 1 if 1 in axes else axes[-1]


def _groups(size: int, rng: torch.Generator) -> torch.Tensor:
    """To which group each slice belongs, from zero on. Every third time each is one; else there are two, or so many as
    hold a power of two of them, or few. Every second time these are neighbours, else each so manieth slice, as of
    channels that were shuffled. While only such powers were made as divide an axis, a variance of nine channels passed,
    and rows in chunks of eight of 63."""
    places, most, lot = torch.arange(size), size // 2, below(4, rng)
    if most < 2 or below(3, rng) == 0:
        return places
    power, share = 2 << below(most.bit_length() - 1, rng), -(-size // (1 + few(most - 1, rng)))
    block = (-(-size // 2), share, power, power)[lot]
    return places // block if below(2, rng) else places % -(-size // block)


def _halves(size: int, rng: torch.Generator) -> torch.Tensor:
    """The same for lines that lie far up and down. Of SHORT axes groups are halves as often as not, neighbours or each
    second slice. Along a longer one that is summed what is left of those is the rounding of the order in which somebody
    sums: of 64 channels, one half up and one down, two sums of every second one erred 2.5 times as much as eager, and
    with stretches of 32 and 64 of 192 a sum from left to right 4.4 times, in 2 of 40 draws. So there single ones are
    moved, or up to eight neighbours: 1.0 times at the most."""
    if size <= SHORT and below(2, rng):
        return torch.arange(size) // -(-size // 2) if below(2, rng) else torch.arange(size) % 2
    if size <= SHORT:
        return _groups(size, rng)
    return torch.arange(size) // (2 << below(3, rng) if below(2, rng) else 1)


def _blocks(leaf: torch.Tensor, axis: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Which slices along an axis are chosen, half of their groups or as few as one, and a number from 0 to 1 for each.
    Of half of all chunks the median is small as well: who left out what is small beside that passed."""
    groups = _groups(leaf.shape[axis], rng)
    chosen, numbers = some(int(groups.max()) + 1, rng)
    lines, groups = [size if dim == axis else 1 for dim, size in enumerate(leaf.shape)], groups.to(leaf.device)
    return chosen[groups].view(lines), numbers[groups].view(lines)


def some(count: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Which of so many are chosen, half of them or as few as one, and a number from 0 to 1 for each."""
    most = max(1, count // 2)
    taken = most if below(2, rng) else few(most, rng)
    lots = torch.rand((2, count), generator=rng, device=rng.device, dtype=torch.float64)
    return lots[0].argsort().argsort() < taken, lots[1]


def smaller(chosen: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """By what is multiplied, which is up to 2^DEEPEST times smaller where it is chosen."""
    return torch.where(chosen, torch.exp2(-DEEPEST * numbers), 1.0)


def distance(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """How far what lies FAR is moved, of numbers of the size of these."""
    low, high = map(math.log, FAR)
    far = math.exp(low + (high - low) * float(torch.rand((), generator=rng, device=leaf.device)))
    return far * leaf.double().square().mean().sqrt()


def both_ways(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """Rows, or slices along an axis, or groups of slices, by lot, as many of them up as down, and what is left over as
    it is."""
    axes = [axis for axis, size in enumerate(leaf.shape) if size > 1]
    rows = [axis for axis in axes if axis < leaf.dim() - 1]
    if not axes:
        return leaf
    chosen = rows if rows and below(4, rng) == 0 else [_axis(axes, rng)]
    lines = [size if dim in chosen else 1 for dim, size in enumerate(leaf.shape)]
    groups = _halves(math.prod(lines), rng) if len(chosen) == 1 else torch.arange(math.prod(lines))
    sizes = torch.bincount(groups)
    if int((sizes == sizes.max()).sum()) < 2:  # one, and a smaller one
        groups, sizes = torch.arange(len(groups)), torch.ones(len(groups))
    whole = torch.nonzero(sizes == sizes.max()).reshape(-1)
    half = whole[torch.randperm(len(whole), generator=rng, device=leaf.device).to(whole.device)].tensor_split(2)
    sign = torch.zeros(len(sizes), dtype=torch.float64)
    sign[half[1]], sign[half[0][: len(half[1])]] = -1.0, 1.0
    return (leaf + distance(leaf, rng) * sign[groups].to(leaf.device).view(lines)).to(leaf.dtype)


def outlying(leaf: torch.Tensor, factor: float, rng: torch.Generator) -> torch.Tensor:
    """One element, or up to one in OUTLIERS (any number of digits as likely), is larger: whoever judges by a sample of
    them sees none. Even half of all elements, as a sample, shows one that is alone every second time only."""
    if MILD[1] < factor < FAR_OUT and below(2, rng):
        return outlier(leaf, rng)
    share = few(max(1, leaf.numel() // OUTLIERS), rng) / max(1, leaf.numel())
    chance = torch.rand(leaf.shape, generator=rng, device=leaf.device)
    return torch.where(chance <= max(share, float(chance.min())), leaf * factor, leaf)


def outlier(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """One element is MILD times the largest, or the least."""
    lots = torch.rand(2, generator=rng, device=leaf.device).tolist()
    least, most = torch.aminmax(leaf)
    if not bool(torch.isfinite(most - least)):
        return leaf
    end = most if lots[0] < UP else least
    low, high = map(math.log, MILD)
    made = leaf.clone(memory_format=torch.contiguous_format)
    made.view(-1)[below(leaf.numel(), rng)] = end * math.exp(low + (high - low) * lots[1])
    return made
