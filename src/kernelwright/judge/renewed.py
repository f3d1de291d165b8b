# SPDX-License-Identifier: Apache-2.0
"""Values that a task never changes, inputs and weights, made others of their own kind."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernelwright.judge import numerics, triangles
from kernelwright.judge.inputs import FLOATS
from kernelwright.judge.slices import again, real
from kernelwright.judge.symmetric import mirrored
from kernelwright.judge.whole import far

FACTORS = ("weight", "gamma")
"""Names of buffers that are trained elsewhere: a pool before a norm's negative factors passed where those were one. A
``scale`` is one beside its SUMMANDS: alone it may be a quantiser's, which is never negative."""
SUMMANDS = ("shift", "beta")


def rerandomise(values: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A floating tensor that never changes between draws gets values of its own kind.

    All equal: scattered by a half around the constant (normal where it is zero). Sorted: sorted again within the range.
    Symmetric matrices: see ``_congruent``. Triangular ones: see ``triangles.scaled``. Zeros and ones: the same density.
    Anything else: its own values permuted, scaled by 0.5 to 1.5. Tensors that hold NaN or Inf, and masks that are
    added, are kept.
    """
    if values.numel() == 0 or not numerics.finite(values) or far(values):
        return values.clone()
    flat = values.detach().reshape(-1).to(torch.float64)
    noise = torch.rand(flat.shape, generator=rng, dtype=torch.float64, device=flat.device)
    low, high = float(flat.min()), float(flat.max())
    if low == high:
        new = flat * (0.5 + noise) if low != 0.0 else _normal(flat, rng)
    elif values.dim() == 1 and flat.numel() > 2 and bool((flat[1:] > flat[:-1]).all()):
        new = torch.sort(low + (high - low) * noise).values
    elif mirrored(values):
        new = _congruent(values.detach().to(torch.float64), noise.reshape(values.shape), rng)
    elif triangles.factor(values):
        new = triangles.scaled(values.detach().to(torch.float64), rng)
    elif bool(((flat == 0) | (flat == 1)).all()):
        new = (noise < flat.mean()).to(torch.float64)
    else:
        order = torch.randperm(flat.numel(), generator=rng, device=flat.device)
        new = flat[order] * (0.5 + noise)
    return new.to(values.dtype).reshape(values.shape)


def permuted(values: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """The same numbers in another order: what holds of each, as what an arccosine takes, holds still. What is sorted
    has its meaning by that, and a mask by where it lies: both stay. Of symmetric matrices rows and columns change
    places alike, and what is in a triangle stays there."""
    flat = values.detach().reshape(-1)
    in_order = values.dim() == 1 and bool((flat[1:] >= flat[:-1]).all())
    if values.numel() < 2 or in_order or not numerics.finite(values) or far(values):
        return values.clone()
    if mirrored(values):
        return _exchanged(values.detach(), rng)
    if triangles.factor(values):
        return triangles.exchanged(values.detach(), rng)
    return flat[torch.randperm(flat.numel(), generator=rng, device=flat.device)].reshape(values.shape)


def _congruent(values: torch.Tensor, noise: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Others that are symmetric, and definite where these are: rows and columns times the same factors, and in another
    order. Of zeros and ones that are not on the diagonal alone, as of the edges of a graph: others, as many, beside the
    same diagonal. An identity that became any zeros and ones left who factors a covariance nothing to factor, and
    honest filters, regressions and densities were refused."""
    off = values - values.diagonal(dim1=-2, dim2=-1).diag_embed()
    if bool(((values == 0) | (values == 1)).all()) and bool(off.any()):
        edges = (noise < off.mean() * values.shape[-1] / (values.shape[-1] - 1)).to(values.dtype).tril(-1)
        return values - off + edges + edges.mT
    side = 0.5 + noise[..., 0]
    return _exchanged(values, rng) * side[..., None] * side[..., None, :]


def _exchanged(values: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    order = torch.randperm(values.shape[-1], generator=rng, device=values.device)
    return values[..., order, :][..., order]


def _normal(like: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, generator=rng, dtype=like.dtype, device=like.device)


def fresh_weight(name: str, seen: torch.Tensor, redrawn: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """One parameter or buffer, randomised at its own scale.

    A weight that the constructor draws at random takes the redrawn values, of any dtype: a permutation, flags and
    packed words too (and see ``codes``). Of the others integers, booleans and masks (only 0, 1 or non-finite values,
    not all equal) are structure and stay, constants are scattered by a half, zeros become normal with standard
    deviation 0.1. Variances stay positive. Complex numbers are changed as the two they are made of. Infinities stay
    where they are, beside others: with one of them in it a weight was the same in every draw, and who kept what it was
    at the first call passed.
    """
    if seen.is_complex():
        return again(seen, fresh_weight(name, real(seen), real(redrawn), rng))
    if seen.numel() == 0:
        return seen.clone()
    if seen.shape == redrawn.shape and not same(seen, redrawn):
        return redrawn.clone()
    if seen.dtype not in FLOATS:
        return seen.clone()
    flat = seen.to(torch.float64)
    noise = torch.rand(flat.shape, generator=rng, dtype=torch.float64, device=flat.device)
    if not numerics.finite(seen):
        masks = bool(((flat == 0) | ~flat.isfinite()).all())
        return seen.clone() if masks else torch.where(flat.isfinite(), flat * (0.5 + noise), flat).to(seen.dtype)
    if float(flat.min()) == float(flat.max()):
        new = 0.1 * _normal(flat, rng) if float(flat.min()) == 0.0 else flat * (0.5 + noise)
        return (new.abs() if "var" in name and float(flat.min()) == 0.0 else new).to(seen.dtype)
    if bool(((flat == 0) | (flat == 1)).all()):
        return seen.clone()
    return (flat * (0.5 + noise)).to(seen.dtype)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two of one shape hold the same, NaN where the other has NaN."""
    if torch.equal(one, other):
        return True
    odd = one.dtype in FLOATS and one.itemsize > 1 and not numerics.finite(one)
    return odd and torch.equal(one.nan_to_num(0.0), other.nan_to_num(0.0))


def divisible(values: torch.Tensor) -> bool:
    """Whether each element may change for itself: floats, and codes of a byte. A permutation with one element of
    another is none, and a word that is packed holds several."""
    return values.is_floating_point() or values.is_complex() or values.dtype in (torch.int8, torch.uint8)


def in_order(values: torch.Tensor, *like: torch.Tensor) -> torch.Tensor:
    """Sorted as all of ``like`` are, where these are vectors that rise, or fall, from end to end: edges of buckets,
    levels of a quantiser, tables of time. A reference compares with each of them, a program may search."""
    ways = {_way(one) for one in like}
    return values.sort(descending=-1 in ways).values if ways in ({1}, {-1}) else values


def _way(values: torch.Tensor) -> int:
    """1 for a vector that rises, -1 for one that falls, 0 for all others."""
    if values.dtype not in FLOATS or values.dim() != 1 or values.numel() < 3 or values[0] == values[-1]:
        return 0
    up = bool(values[-1] > values[0])
    low, high = (values[:-1], values[1:]) if up else (values[1:], values[:-1])
    return (1 if up else -1) * bool((low <= high).all())


def affine(name: str, live: Mapping[str, torch.Tensor]) -> bool:
    """Whether it is a factor by its name, or by that and what is added beside it."""
    whose, _, last = name.rpartition(".")
    beside = [live.get(f"{whose}.{other}".lstrip(".")) for other in SUMMANDS] if last == "scale" else []
    return last in FACTORS or any(other is not None and other.shape == live[name].shape for other in beside)
