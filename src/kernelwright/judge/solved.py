# SPDX-License-Identifier: Apache-2.0
"""Inputs for which a difference of two results is small, solved for: both sides are computed, so neither can be put in.

Predictions and targets that are both normalised, the embeddings of two towers, a Gram matrix less the identity, a norm
less one: ``fitted`` wants an input itself on one side, and expanded squares of these passed on all draws, off by 0.1 in
one where a model is trained. A square matrix is so beside its diagonal, less the identity or with its transpose
(``squares``), and weights come near weights, or such matrices, where they are taken from each other: an anchor of a
penalty was 1e-4 off, 2.5e-7 was right, and expanded it was 1.9e-6. Weights and inputs are moved together where inputs
alone make nothing small, an autoencoder, a teacher and its student: expanded squares of these were 4 % to 100 % off.
``approach`` looks for them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from kernelwright.judge import approach, calls, fitted, health, inputs
from kernelwright.judge import weights as state
from kernelwright.judge.approach import LEAST, WORK, OfWeights, Search, Solution, Trained, mirrored
from kernelwright.judge.dealing import below
from kernelwright.judge.inputs import Variant

if TYPE_CHECKING:
    from kernelwright.judge.buffers import TensorSpec
    from kernelwright.judge.instance import Instance

CHANGES = SOLVED, TOGETHER, TRAINED = "small differences", "small differences at once", "trained on its inputs"
DRAWS = 5
"""Draws of each: of two, one proof in eight granted a norm of all less that of a diagonal."""
TINY = 64
"""Times less than others elements are tiny of which no ratio is near a number."""


def small_differences(
    specs: Sequence[TensorSpec], traits: Collection[str], work: int, *, weights: bool = False
) -> list[Variant]:
    """Such draws, where a call is cheap enough to be made some dozens of times; ``weights``: these may change."""
    moves = any("float" in spec.dtype or "complex" in spec.dtype for spec in specs)
    if fitted.DIFFERS not in traits or work > approach.DEAREST:
        return []
    cheap = WORK // max(work, 1) >= LEAST
    names = [*([SOLVED] if moves else []), *([TOGETHER] if moves and cheap else [])]
    draws = [Variant(name=name, required=True, change=name, draws=DRAWS if cheap else 1) for name in names]
    trained = Variant(name=TRAINED, required=True, change=TRAINED, fresh_weights=True, moved=TRAINED, draws=DRAWS)
    return [*draws, *([trained] if weights and cheap else [])]


_FOUND: WeakKeyDictionary[Instance, dict[str, list[Solution]]] = WeakKeyDictionary()
_WEIGHTS: WeakKeyDictionary[Instance, list[dict[str, torch.Tensor]]] = WeakKeyDictionary()


def of(instance: Instance, change: str = SOLVED) -> list[Solution]:
    """Differences that were solved, or all of them at once; looked for once."""
    known = _FOUND.setdefault(instance, {})
    if change not in known:
        found = (_looked_for(instance, search) for search in _searches(instance, change))
        known[change] = next(filter(None, found), [])
    return known[change]


def _searches(instance: Instance, change: str) -> Iterator[Callable[[], Iterator[Solution]]]:
    """Inputs without negative elements are moved where others alone make nothing small, and weights where none do."""
    if change == TRAINED:
        yield lambda: iter(()) if of(instance) else itertools.islice(Trained(instance, ranged=True).solutions(), 1)
        return
    for ranged in (False, True):
        search = functools.partial(Search, instance, ranged=ranged)
        yield functools.partial(_of_one, search, change)


def _of_one(search: Callable[[], Search], change: str) -> Iterator[Solution]:
    return search().solutions() if change == SOLVED else search().together()


def trained(instance: Instance) -> list[tuple[str, torch.Tensor]]:
    """The first weights, but those that were moved with the inputs so that a difference is small."""
    moved = dict[str, torch.Tensor]()
    for name, value in of(instance, TRAINED)[0].weights.items() if of(instance, TRAINED) else ():
        moved |= dict.fromkeys(state.tied(instance.model, name), value)
    return [(name, moved.get(name, value)) for name, value in instance.first_state]


def of_weights(instance: Instance) -> list[dict[str, torch.Tensor]]:
    """First weights, by name, of which differences of weights alone are small; looked for once."""
    if instance not in _WEIGHTS:
        able = fitted.WEIGHS in instance.met["traits"] and WORK // max(instance.work, 1) >= LEAST
        able = able and not instance.contract.random
        _WEIGHTS[instance] = _looked_for(instance, lambda: OfWeights(instance).found()) if able else []
    return _WEIGHTS[instance]


def _looked_for(instance: Instance, search: Callable[[], Iterator[Any]]) -> list[Any]:
    instance.giver.give(instance.model, instance.first_state)
    try:
        return list(search())
    except calls.CAUGHT as error:
        health.pass_on(error)
        return []
    finally:
        instance.giver.give(instance.model, instance.first_state)


def solved(instance: Instance, leaves: list[torch.Tensor], seed: int, change: str = SOLVED) -> list[torch.Tensor]:
    """Leaves of which one difference, by lot of several, or all are small but for a little noise of theirs; those that
    take no part in it are another draw's."""
    if not (found := of(instance, change)):
        return leaves
    rng, out = inputs.generator(seed, instance.device), list(leaves)
    one = found[below(len(found), rng)]
    share = fitted.SHARES[below(len(fitted.SHARES), rng) if change == SOLVED else fitted.lesser(rng)]
    for index, value in one.leaves.items():
        out[index] = calls.copied(leaves[index])
        near = value if one.ratio is not None else noisy(value, share, rng)
        near = _rated(value, one.ratio[1], share, rng) if one.ratio is not None and index == one.ratio[0] else near
        near = near if index not in one.within else near.clamp(*one.within[index])
        made = mirrored(instance, index, near)
        out[index].copy_(value if made is None else made)
    for index, value in one.beside.items():
        out[index] = value.clone()
    return out


def noisy(value: torch.Tensor, share: float, rng: torch.Generator) -> torch.Tensor:
    """A little off, by a share of its size."""
    noise = torch.randn(value.shape, generator=rng, device=value.device, dtype=value.dtype)
    return value + share * inputs.size_of(value) * noise


def _rated(value: torch.Tensor, size: float, share: float, rng: torch.Generator) -> torch.Tensor:
    """Off by a share of each element, for what it divides has its own relative error; of tiny ones that is so large
    that it hid all others', so a ratio is near zero there."""
    tiny = value.abs() < inputs.size_of(value) / TINY
    return torch.where(tiny, size * inputs.size_of(value), value * noisy(torch.ones_like(value), share, rng))
