# SPDX-License-Identifier: Apache-2.0
"""Rows, planes and samples of which all elements are one number, and not zero.

A reference that divides by the range of a row takes care of a row without any: ``torch.where(b > a, (x - a) / (b - a),
1.0)``. Of all ways of drawing only zeros made such rows, and a program that asked whether the row is zero passed. They
come where the reference compares (``borders``), in draws of which the honest error leaves numbers of few bits as they
are: the range of such a row is exactly zero in every program, while its mean is rounded, so what hangs on a standard
deviation that is zero or nearly so may be either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernelwright.judge.buffers import TensorSpec

FLOATING = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
LEVEL = "level"
"""How ``borders`` are dealt in such draws."""
NAME = "rows of one number"
LEAST, SHARE = 6, 16
"""Groups of elements of which none is made level where there are fewer, and among how many one is. What falls to the
other side of a border as a whole, as where rows are compared with their means, may be a quarter of a result
(``choices.MOST``), so of images in fours no whole one is."""
BITS = 8
"""Significant bits of the number: 2^16 of it add up exactly in float32, and 2^8 of its square."""
DRAWS, DEEP_DRAWS = 4, 6
"""Calls of inputs of two axes, and of more. Half of the draws make rows level, planes and samples, the others columns,
and channels or features: an element of a column that is level would be another one in a row that is. All four are of
one of these in one case of eight, and of three axes neither has channels in 18 of 100."""


def draws(specs: Sequence[TensorSpec]) -> int:
    """Calls worth making; none where no input has groups enough. ``specs``: of all inputs."""
    floats = [spec.shape for spec in specs if spec.dtype in FLOATING]
    deep = [len(shape) for shape in floats if _usable(shape, (*_within(shape), *_across(shape)))]
    return 0 if not deep else DRAWS if max(deep) == 2 else DEEP_DRAWS


def levelled(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A floating leaf, of which some groups hold their first element alone, cut to BITS bits: one group in SHARE, and
    one at the least, of each kind. A group is what shares its indices on the axes that a kind names."""
    lot = int(torch.randint(4, (), generator=rng, device=leaf.device))
    within, (places, *others) = _within(leaf.shape), _across(leaf.shape)
    across = (places, others[lot // 2]) if others else (places,)
    sides = [_usable(leaf.shape, side) for side in (within, across)]
    kinds = sides[lot % 2] or sides[1 - lot % 2]
    made = leaf.clone(memory_format=torch.contiguous_format) if kinds else leaf
    for axes in kinds:  # small groups first: a sample that is level has rows that are
        turned = made.permute(*axes, *(axis for axis in range(leaf.dim()) if axis not in axes))
        groups = turned.flatten(len(axes)).flatten(0, len(axes) - 1).clone()
        order = torch.randperm(len(groups), generator=rng, device=leaf.device)
        chosen = order[: max(1, len(groups) // SHARE)]
        chosen = chosen[torch.isfinite(groups[chosen, 0])]  # an infinity stays alone
        groups[chosen] = _cut(groups[chosen, :1], leaf)
        turned.copy_(groups.view(turned.shape))
    return made


def _cut(values: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """Numbers of BITS significant bits, nearer zero than these by less than 2^-7 of themselves, or as much further from
    it where that would leave the range of the leaf: what is 0.1 at the least becomes no less."""
    mantissa, exponent = torch.frexp(values.to(torch.float64))
    near, far = (torch.ldexp(end(mantissa * 2.0**BITS), exponent - BITS) for end in (torch.trunc, _outwards))
    low, high = (float(end) for end in torch.aminmax(leaf.to(torch.float64)))
    made = torch.where((near >= low) & (near <= high), near, far)
    return made.to(leaf.dtype)


def _outwards(values: torch.Tensor) -> torch.Tensor:
    return torch.where(values < 0, values.floor(), values.ceil())


def _within(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """The axes that elements of a group share which lies in one sample: all but the last so many."""
    axes = tuple(range(len(shape)))
    return [axes[:cut] for cut in reversed(axes[1:])]


def _across(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """The same of groups that lie across samples: a place in each of them, and of three axes and more a channel (the
    second axis) or a feature (the last)."""
    axes = tuple(range(len(shape)))
    return [axes[1:], *((axes[1:2], axes[-1:]) if len(axes) > 2 else ())]


def _usable(shape: Sequence[int], kinds: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Those of which there are groups enough, of several elements."""
    counts = [math.prod(shape[axis] for axis in kind) for kind in kinds]
    return [kind for kind, count in zip(kinds, counts, strict=True) if kind and LEAST <= count < math.prod(shape)]
