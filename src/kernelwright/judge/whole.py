# SPDX-License-Identifier: Apache-2.0
"""Changes of inputs that make no new numbers: whole numbers, and masks, out of the values that they hold anyway.

Nobody says which whole numbers a reference accepts, or whether they may repeat or must be in order. So no value comes
that was not drawn, none repeats that did not, and what is sorted stays (lengths, borders of segments), but for
0, 1, 2, ... (positions).
"""

from __future__ import annotations

import math

import torch

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
SKEWED = 7 / 8
"""Share of whole numbers that become one and the same: counters and buckets made for even shares overflow."""


def is_mask(leaf: torch.Tensor) -> bool:
    """Whether a floating tensor holds 0 and -inf alone, some of each: added to scores, it says which of them count."""
    if not leaf.is_floating_point() or leaf.dim() == 0 or not leaf.numel():
        return False
    hidden = leaf == -math.inf
    return bool(hidden.any()) and bool((hidden | (leaf == 0)).all()) and not bool(hidden.all())


def redrawn(mask: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Of every row of such a mask other elements count, as many as before: no row becomes empty."""
    order = torch.rand(mask.shape, generator=rng, device=mask.device).argsort(-1)
    return mask.gather(-1, order)


def redrawn_booleans(leaf: torch.Tensor, rng: torch.Generator, *, rows: bool) -> torch.Tensor:
    """A mask of the same density; with ``rows`` one row of it (along the last dimension) is empty, another full."""
    density = float(leaf.to(torch.float32).mean())
    made = torch.rand(leaf.shape, generator=rng, device=leaf.device) < density
    if rows and leaf.dim() > 0:
        flat = made.view(-1, leaf.shape[-1])
        first, last = torch.randint(flat.shape[0], (2,), generator=rng, device=leaf.device).tolist()
        flat[last] = True
        flat[first] = False
    return made


def swapped(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Two elements that differ have changed places."""
    flat = leaf.reshape(-1)
    if not _free(leaf) or flat.numel() < 2:
        return leaf
    one = int(torch.randint(flat.numel(), (), generator=rng, device=leaf.device))
    others = torch.nonzero(flat != flat[one]).reshape(-1)
    if not len(others):
        return leaf
    other = others[int(torch.randint(len(others), (), generator=rng, device=leaf.device))]
    flat = flat.clone()
    flat[one], flat[other] = leaf.reshape(-1)[other], leaf.reshape(-1)[one]
    return flat.reshape(leaf.shape)


def skewed(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Most elements are equal, where values repeat anyway."""
    flat = leaf.reshape(-1)
    if not _free(leaf) or len(flat.unique()) == flat.numel():
        return leaf
    one = flat[int(torch.randint(flat.numel(), (), generator=rng, device=leaf.device))]
    chosen = torch.rand(leaf.shape, generator=rng, device=leaf.device) < SKEWED
    return torch.where(chosen, one, leaf)


def moved(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """The same elements, moved on along one dimension."""
    long = [dim for dim, size in enumerate(leaf.shape) if size > 1]
    if not long or leaf.dtype in INTEGERS and not _free(leaf):
        return leaf
    dim = long[int(torch.randint(len(long), (), generator=rng, device=leaf.device))]
    return leaf.roll(int(torch.randint(leaf.shape[dim], (), generator=rng, device=leaf.device)), dim)


def _free(leaf: torch.Tensor) -> bool:
    """Whether whole numbers may come in another order: those that are in none, and 0, 1, 2, ..."""
    if leaf.dim() == 0 or not leaf.numel():
        return False
    steps = leaf.to(torch.int64).diff(dim=-1)
    return bool((steps < 0).any()) or bool((steps == 1).all())
