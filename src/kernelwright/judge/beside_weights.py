# SPDX-License-Identifier: Apache-2.0
"""Inputs of which some rows are rows of weights: points that are the centres they were chosen from, vectors that are in
a codebook, prototypes of a class that is asked for itself. And both far from zero, where what is computed is how far
they lie from one another.

The distance is zero of equal ones, or what rounding leaves of it on either side: who takes the root of squares that
were multiplied out had NaN in one place of a table, and numbers by lot never showed it. Far from zero such squares
cancel: of centres at 100 distances were off by 7e-4, and at 1000 one nearest centre in six was another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernelwright.judge import (
    calls,
    comparisons,
    derived,
    fitted,
    health,
    held_borders,
    inputs,
    labelled,
    slices,
    solved,
    thresholds,
    weights,
)
from kernelwright.judge.dealing import below
from kernelwright.judge.oracle import Float64Trace

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

ROWS, BOTH_FAR = "rows of weights", "inputs and weights far from zero"
SAME = 1e-2
"""By how much of their size (RMS) answers differ at the most that are the same wherever the origin lies; as many of
whole numbers are others."""


def by_reference(
    instance: Instance,
    variant: inputs.Variant,
    leaves: list[torch.Tensor],
    seed: int,
    state: weights.State | None = None,
) -> list[torch.Tensor]:
    """The changes of a draw for which one has to know the reference, or its weights; ``state``: those it has then."""
    if variant.change == comparisons.MET:
        return comparisons.met(instance, leaves, seed)
    if variant.change in fitted.DRAWS:
        return fitted.fitted(instance, leaves, variant, seed)
    if variant.change in solved.CHANGES:
        return solved.solved(instance, leaves, seed, variant.change)
    if variant.change in (thresholds.AT, thresholds.BESIDE):
        return thresholds.changed(instance, variant.change, leaves, seed)
    if variant.change in labelled.CHANGES:
        return labelled.changed(instance, variant.change, leaves, seed, state)
    if variant.change in derived.CHANGES:
        return derived.changed(instance, variant.change, leaves, seed, state)
    if variant.strewn == held_borders.HELD:
        return held_borders.planted(instance, leaves, seed, state)
    if variant.change == BOTH_FAR:
        return [leaf + weights.offset(tables[0]) if (tables := _tables(instance, leaf)) else leaf for leaf in leaves]
    return _planted(instance, leaves, seed) if variant.change == ROWS else leaves


def _planted(instance: Instance, leaves: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Of each input of floats some rows are, exactly or nearly, rows of a weight of its type that is as long."""
    rng, out = inputs.generator(seed, instance.device), list(leaves)
    for index, leaf in enumerate(leaves):
        if index not in instance.bonds.symmetric and (fits := _tables(instance, leaf)):
            table = fits[below(len(fits), rng)].reshape(-1, leaf.shape[-1])
            out[index] = slices.alike([table, leaf], rng)[1]
    return out


def _tables(instance: Instance, leaf: torch.Tensor) -> list[torch.Tensor]:
    """Weights whose rows an input's may be."""
    if not weights.tabular(leaf):
        return []
    fits = [value for _, value in instance.first_state if weights.tabular(value) and value.device == leaf.device]
    return [value for value in fits if value.shape[-1] == leaf.shape[-1] and value.dtype is leaf.dtype]


def apart(instance: Instance, variant: inputs.Variant, seed: int) -> bool:
    """Whether such a draw means something: of BOTH_FAR, whether answers stay as they are when all is moved as far.
    Elsewhere that is another task than anybody has: sums of large numbers, a softmax of one weight. Of others, whether
    the reference has what they are about."""
    if variant.change in (thresholds.AT, thresholds.BESIDE):
        return thresholds.met(instance, variant.change)
    if variant.change in (*fitted.DRAWS, *solved.CHANGES) and not instance.settled:
        return False  # what is all by lot is compared otherwise
    if variant.change in solved.CHANGES and not solved.of(instance, variant.change):
        return False
    if variant.change in labelled.CHANGES:
        return labelled.met(instance, instance.draw(inputs.Variant(name="", required=True), seed))
    if variant.change != BOTH_FAR:
        return variant.change not in derived.CHANGES or derived.met(instance, variant)
    given = instance.draw(inputs.Variant(name="", required=True), seed)
    trained = {name for name, value in instance.model.named_parameters(remove_duplicate=False) if value.requires_grad}
    tables = {name: value for name, value in instance.first_state if weights.tabular(value)}
    if tables.keys() - trained:  # centres that are drawn are moved with them
        other = dict(weights.read(instance._construct(seed)))
        drawn = {name for name, value in tables.items() if not torch.equal(value, other.get(name, value))}
        tables = {name: value for name, value in tables.items() if name in trained | drawn}
    if not tables or not any(_tables(instance, leaf) for leaf in given) or instance.without_double:
        return False
    moved = calls.Given(by_reference(instance, variant, list(given), seed))
    moved.incoming = given.incoming if isinstance(given, calls.Given) else None
    state = [(n, v + weights.offset(v) if n in tables else v) for n, v in instance.first_state]
    try:
        here = instance.doubled(given, instance.first_state, Float64Trace())
        there = instance.doubled(moved, state, Float64Trace())
    except calls.CAUGHT as error:
        health.pass_on(error)
        return False
    return len(here) == len(there) and all(map(_same, here, there))


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return float((one != other).double().mean()) <= SAME if one.numel() else True
    return float((one - other).square().mean().sqrt()) <= SAME * inputs.size_of(one) if one.numel() else True
