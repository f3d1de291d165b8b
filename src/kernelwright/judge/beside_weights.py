# SPDX-License-Identifier: Apache-2.0
"""Inputs of which some rows are rows of weights: points that are the centres they were chosen from, vectors that are in
a codebook, prototypes of a class that is asked for itself.

The distance is zero there, or what rounding leaves of it on either side: who takes the root of squares that were
multiplied out had NaN in one place of a table, and numbers by lot never showed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernelwright.judge import comparisons, inputs, slices
from kernelwright.judge.dealing import below

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

ROWS = "rows of weights"


def by_reference(
    instance: Instance, variant: inputs.Variant, leaves: list[torch.Tensor], seed: int
) -> list[torch.Tensor]:
    """The changes of a draw for which one has to know the reference, or its weights."""
    if variant.change == comparisons.MET:
        return comparisons.met(instance, leaves, seed)
    return _planted(instance, leaves, seed) if variant.change == ROWS else leaves


def _planted(instance: Instance, leaves: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Of each input of floats some rows are, exactly or nearly, rows of a weight of its type that is as long."""
    rng = inputs.generator(seed, instance.device)
    tables = [value for _, value in instance.first_state if value.dim() > 1 and value.is_floating_point()]
    out = list(leaves)
    for index, leaf in enumerate(leaves):
        fits = [table for table in tables if leaf.dim() > 1 and _as_long(table, leaf)]
        if fits:
            table = fits[below(len(fits), rng)].reshape(-1, leaf.shape[-1])
            out[index] = slices.alike([table, leaf], rng)[1]
    return out


def _as_long(table: torch.Tensor, leaf: torch.Tensor) -> bool:
    return table.shape[-1] == leaf.shape[-1] > 1 and table.dtype is leaf.dtype and table.device == leaf.device
