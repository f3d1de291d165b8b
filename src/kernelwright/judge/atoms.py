# SPDX-License-Identifier: Apache-2.0
"""Random outputs in which values that differ by rounding are one: a dropout keeps x / 0.75 or gives 0, honest programs
round what is kept differently, and a rank among ties tells one ulp from none.

All runs are treated alike, those of the reference too: a value moved onto one of few numbers in half precision is at
distance 0 from it, and a reference of which only the candidate's runs were moved was refused as its own replacement.
"""

from __future__ import annotations

import numpy as np
import torch

FEW, MANY = 4.0, 64.0
"""Roundings up to which values are one: of the type and the element's own size; and of float32, or float64, and the
size (RMS) of all, for sums: of 1024 products in another order near zero lie hundreds of their own roundings apart."""
SHARE = 1 / 32
"""The same in parts of the element's range over the runs of the reference: noise of a few roundings is still noise, and
what is kept is told from what is a 32nd larger."""
NOISE = 4.0
"""Times what runs were seen to change by: a norm of numbers that are nearly alike is rounding, each program's own."""


def close(runs: torch.Tensor, dtype: torch.dtype, noise: torch.Tensor | None = None) -> torch.Tensor:
    """Distance of each element (float64) up to which two of its values are the same number, rounded to ``dtype``.

    Of the size of all where the element varies, or is nothing beside that. A number that is the same in all runs is a
    sum perhaps: it is held to the size of all such, and SHARE of its own, beside however large ones. Zeros of all runs
    may be rounding: a GELU's slope below -7 is 0 by erf and -4e-14 by erfc. ``noise``: by how much a run changes where
    inputs are moved by half a rounding; NOISE times that is one number, however little the element varies.
    """
    if not dtype.is_floating_point:
        return torch.zeros_like(runs[0])
    low, high = runs.amin(0), runs.amax(0)
    largest, eps = torch.maximum(low.abs(), high.abs()), torch.finfo(dtype).eps
    unit = _unit(runs, eps)
    own = FEW * eps * largest
    wide = own.clamp_min(MANY * unit)
    settled = largest[high == low]
    if settled.numel():
        sums = MANY * _unit(settled, eps)
        own = torch.maximum(own, (SHARE * largest).clamp_max(sums))
    own = torch.where(largest <= FEW * unit, own.clamp_min(FEW * unit), own)
    near = torch.where(high > low, torch.minimum(wide, SHARE * (high - low)), own)
    return near if noise is None else torch.maximum(near, NOISE * noise)


def _unit(values: torch.Tensor, eps: float) -> float:
    """A rounding of float32, or of a finer type, of the size (RMS) of all."""
    return min(eps, torch.finfo(torch.float32).eps) * float(values.square().mean().sqrt())


def snapped(value: torch.Tensor, base: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
    """``value`` with the elements that lie within ``near`` of a run's moved onto it."""
    nearest, least = base[0], (base[0] - value).abs()
    for row in base[1:]:  # a sixth of the time that argmin over the first dimension takes
        distance = (row - value).abs()
        nearest, least = torch.where(distance < least, row, nearest), torch.minimum(distance, least)
    return torch.where(least <= near, nearest, value)


def leveled(everyone: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
    """All runs, with each element's values the same that lie within ``near`` above the least of them, of the others
    above the least of those, and so on: never further, however many lie close to each other."""
    if not bool(near.any()):
        return everyone
    # By numpy with an element's values side by side: a ninth of the time of torch's sort over the first dimension.
    columns = np.ascontiguousarray(everyone.reshape(len(everyone), -1).cpu().numpy().T)
    order = np.argsort(columns, axis=1)
    ordered = np.ascontiguousarray(np.take_along_axis(columns, order, axis=1).T)
    limit, least = near.reshape(-1).cpu().numpy(), ordered[0].copy()
    for row in ordered[1:]:
        least = np.where(row - least > limit, row, least)
        row[:] = least
    np.put_along_axis(columns, order, ordered.T, axis=1)
    return torch.from_numpy(np.ascontiguousarray(columns.T)).to(everyone.device).reshape(everyone.shape)
