# SPDX-License-Identifier: Apache-2.0
"""What the addends of a sum do to the rounding of its running sum, and what is lost of those that vanish beside it."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernelwright.judge import lanes
from kernelwright.judge.noise import AT_ONCE, STRETCH, parted

LONGEST = 2048
"""Additions in one running sum of a reduction before a sensible program starts another (16384 in LANES)."""
LOST = 0.125
"""Share left out of addends that vanish beside a running sum: what made it large comes anywhere, and larger ones are
rounded up. 0.16 (RMS) of 6144 squares, 6 of them a million times as large."""
GONE = 3.0**-0.5
"""The same of those so small that one addend alone swallows them wherever the sum stands: all that come after it, which
lies anywhere (RMS of a uniform number). With LOST for these too, the row of a softmax of 256 in which one element is 1
and the others are 1e-8 decided the RMS of 64 rows, and one running sum was refused in 22 of 160 draws."""
FEW_PLACES, NEAR = 1 / 8, 8
"""Share of the terms of a product at which the larger factor is looked at alone, and zeros before one that are walked
over: of 16 rows of 4096 numbers one pair is equal by chance, and beside it all of 16 Mi weights were looked at, in each
draw of an honest error, half of what a proof of two such layers computed."""
_LEAST = torch.finfo(torch.float64).tiny


def _addends(values: torch.Tensor, dims: list[int], unit: float) -> tuple[torch.Tensor, ...]:
    """Of each sum: the squares of the addends, how many carry it, how many equal their neighbour, and which part of the
    sum of all sizes the others make it lose (kept dimensions).

    All carry it but those that vanish beside the sum of all sizes: each other one rounds a partial sum, which a few
    large addends may have made large early on. Equal are those other than zero that do so to within the rounding of a
    partial sum; zeros between them round nothing.
    """
    size = values.abs()
    alike = equal(values, size, dims[-1], unit).sum(dims, keepdim=True).to(torch.float64)
    squares = values.square().sum(dims, keepdim=True)
    whole = size.sum(dims, keepdim=True)
    carries = size > whole * unit
    terms = carries.sum(dims, keepdim=True).to(torch.float64)
    largest = size.amax(dims, keepdim=True)
    beside = size.masked_fill_(carries, 0.0)
    return squares, terms, alike, _lost(values, beside, largest, dims, unit) / whole.clamp_min(_LEAST)


def equal(values: torch.Tensor, size: torch.Tensor, dim: int, unit: float) -> torch.Tensor:
    """Which addends along ``dim``, whose sizes are ``size``, equal the one before them."""
    gap = (values - _before(values, size, dim)).abs_()
    return (gap <= size * (LONGEST / 4 * unit)) & (size > 0)


def equal_terms(func: Any, left: torch.Tensor, right: torch.Tensor, unit: float) -> Any:
    """Of each sum of a product of matrices (``func``) how many terms equal the one before them: those of which both
    factors do. Rows that are zero but in few places, and then centred, are equal everywhere else: of their covariances
    over 200 places one running sum was refused in each sparse draw or two. 0.0 where neighbours are equal on one side
    at the most; the smaller one is looked at first."""
    (dim, small), (other, large) = sorted(((-1, left), (-2, right)), key=lambda pair: pair[1].numel())
    found = {dim: equal(small, small.abs(), dim, unit)}
    if not bool(found[dim].any()):
        return 0.0
    places = found[dim].movedim(dim, 0).flatten(1).any(1).nonzero().squeeze(1)
    some = _equal_at(large, other, places, unit) if len(places) <= large.shape[other] * FEW_PLACES else None
    if some is not None:
        found[dim] = found[dim].index_select(dim, places)
    found[other] = equal(large, large.abs(), other, unit) if some is None else some
    if not bool(found[other].any()):
        return 0.0
    return func(found[-1].to(torch.float64), found[-2].to(torch.float64))


def _equal_at(values: torch.Tensor, dim: int, places: torch.Tensor, unit: float) -> torch.Tensor | None:
    """``equal`` at a few places along ``dim``; None where more than NEAR zeros lie before one of these."""
    these = values.index_select(dim, places)
    size = these.abs()
    before = torch.zeros_like(these)
    for step in range(1, NEAR + 2):
        blank = (before == 0) & (size > 0)
        if not bool(blank.any()):
            return ((these - before).abs_() <= size * (LONGEST / 4 * unit)) & (size > 0)
        before = torch.where(blank, values.index_select(dim, (places - step) % values.shape[dim]), before)
    return None


def _before(values: torch.Tensor, size: torch.Tensor, dim: int) -> torch.Tensor:
    """Of each addend the one before it along ``dim`` that is not zero (of the first the last one). A masked sum has
    zeros between: of a loss of 64 rows of 96, on logits near zero and so with equal addends of which a mask let half
    through, one running sum erred by 2.8 times what may be and was refused in each of 18 draws."""
    before, blank = values.roll(1, dim), size.roll(1, dim) == 0
    if not bool(blank.any()):
        return before
    places = torch.arange(values.shape[dim], device=values.device)
    places = places.reshape([-1 if axis == dim % values.dim() else 1 for axis in range(values.dim())])
    last = places.expand(values.shape).masked_fill(blank, 0).cummax(dim).values
    return before.gather(dim, last)


def _lost(
    values: torch.Tensor, beside: torch.Tensor, largest: torch.Tensor, dims: list[int], unit: float
) -> torch.Tensor:
    """How much of each sum is lost of the addends that vanish beside it, whose sizes are ``beside`` (0.0: it carries).

    Those below half a step of the ``largest`` one vanish as they are, so what is lost of them adds up with their signs.
    """
    whole = beside.sum(dims, keepdim=True)
    if not bool(whole.any()):
        return whole
    half = largest / (2.0 * torch.frexp(largest).mantissa) * unit
    gone = beside.masked_fill(beside >= half, 0.0)
    swallowed = gone.copysign(values).sum(dims, keepdim=True).abs()
    return LOST * whole + (GONE - LOST) * swallowed


def by_row(values: torch.Tensor, dims: list[int], unit: float) -> tuple[torch.Tensor, ...]:
    """The same; many rows that lie one after the other a few at a time: each is read from memory once.

    Fewer than ``STRETCH`` elements, so that torch adds them up in one thread; on a device, where all that is made on
    the way took nine times the addends, at most AT_ONCE of as many sums as come to that.
    """
    row = values.shape[-1]
    if values.device.type != "cpu" and values.numel() > AT_ONCE:
        return _in_parts(values, [dim % values.dim() for dim in dims], unit)
    if (
        values.numel() <= STRETCH
        or dims not in ([-1], [values.dim() - 1])
        or row >= STRETCH
        or not (values.is_contiguous() and values.device.type == "cpu")
    ):
        return _addends(values, dims, unit)
    parts = lanes.each(lambda part: _addends(part, [1], unit), values.view(-1, row).split((STRETCH - 1) // row))
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def _in_parts(values: torch.Tensor, dims: list[int], unit: float) -> tuple[torch.Tensor, ...]:
    """Some sums after the other, and of one that is too large itself one stretch of its addends after the other."""
    if (found := parted(values, dims, AT_ONCE)) is None:
        return _of_stretches(values, dims, unit)
    parts = [by_row(part, dims, unit) for part in found[1]]
    return tuple(torch.cat(column, found[0]) for column in zip(*parts, strict=True))


def _of_stretches(values: torch.Tensor, dims: list[int], unit: float) -> tuple[torch.Tensor, ...]:
    """Of one sum whose addends are looked at stretch by stretch, each beside the whole; neighbours are those within a
    stretch, in memory."""
    flat = values.reshape(-1)
    parts = flat.split(AT_ONCE)
    whole = torch.stack([torch.linalg.vector_norm(part, 1) for part in parts]).sum()
    largest = torch.stack([part.abs().amax() for part in parts]).amax()
    squares, terms, alike, beside, gone = (whole.new_zeros(()) for _ in range(5))
    half = largest / (2.0 * torch.frexp(largest).mantissa) * unit
    for part in parts:
        size = part.abs()
        squares += torch.dot(part, part)
        alike += equal(part, size, 0, unit).sum()
        carries = size > whole * unit
        terms += carries.sum()
        small = size.masked_fill_(carries, 0.0)
        beside += small.sum()
        gone += small.masked_fill_(small >= half, 0.0).copysign_(part).sum()
    lost = (LOST * beside + (GONE - LOST) * gone.abs()) / whole.clamp_min(_LEAST)
    shape = [1 if dim in dims else count for dim, count in enumerate(values.shape)]
    assert math.prod(shape) == 1, "one sum at a time"
    return tuple(number.reshape(shape) for number in (squares, terms, alike, lost))
