# SPDX-License-Identifier: Apache-2.0
"""Weights that hold what no constructor gives and a checkpoint does: a parameter of zeros, finite statistics for those
that were infinite, another mask.

No draw had a whole parameter of zeros, as LoRA's second matrix is, and programs without the clamp of a quantiser's
scale passed, which answered NaN there. Buffers with infinities or NaN, as an observer has before it is calibrated, were
the same in every draw, and so were masks and tables: programs that never looked at them passed, off by half the answer.
The reference is asked first, and what it does not take is not drawn. Causal masks stay, and those of two halves or one
in two: a program may know these by rule.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

from kernelwright.judge import codes, finite, inputs, numerics, renewed, solved, weights, whole
from kernelwright.judge.other_ways import Way, numbers

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State

MOVED = (weights.ZEROED, weights.REPLACED, solved.TRAINED)
"""Ways of having other weights that are answered here."""
ASKED = 4
"""Parameters at the most of which each is asked for with zeros in its place, by lot."""
WORK = 10**10
"""Multiply-adds of all calls of the reference that are made for this; fewer are made where a call costs more."""
DEAR_BYTES = 8 << 20
"""Weights of more than that are not replaced: they are drawn once."""
BEYOND = (0.0, 5.25, -5.25)
"""By how much a least and a largest value are moved, of one to five below zero and above: all that was seen is positive
then, or negative."""
RANGE = 1 << 20
"""Numbers at the most of which those of a table in order are some."""
DEAD = 1 / 4
"""Share of the elements of a buffer that become zero, where they are compared with a number."""

Make = Callable[[torch.Generator], Mapping[str, torch.Tensor]]
_FOUND: WeakKeyDictionary[Instance, dict[str, list[Make]]] = WeakKeyDictionary()


def drawn(instance: Instance, moved: str, seed: int) -> State:
    """New weights, of which some are replaced; the first ones where there is nothing to replace."""
    if moved == solved.TRAINED:
        return solved.trained(instance)
    if not (able := found(instance)[moved]):
        return instance.first_state
    made = random.Random(seed).choice(able)(inputs.generator(seed % 2**63, instance.device))
    return [(name, made.get(name, value)) for name, value in instance.draw_state(seed)]


def nothing(instance: Instance, moved: str) -> bool:
    """Whether weights would be replaced, and there are none to be."""
    return moved in (weights.ZEROED, weights.REPLACED) and not found(instance)[moved]


def found(instance: Instance) -> dict[str, list[Make]]:
    """What the reference takes in the place of weights; looked for once. Nothing where results are random, and no zeros
    beside gradients: there are kinks, and programs that are right may have another slope."""
    if instance not in _FOUND:
        _FOUND[instance] = {weights.ZEROED: [], weights.REPLACED: []}
        if not instance.contract.random:
            size = sum(value.nbytes for _, value in instance.first_state)
            if WORK // max(instance.work, 1) >= 2 * ASKED and size <= DEAR_BYTES:
                _FOUND[instance] = _asked(instance)
    return _FOUND[instance]


def _asked(instance: Instance) -> dict[str, list[Make]]:
    leaves, first = instance._raw(instance.seed)[0], instance.first_state
    with (usual := Way()):
        outputs = instance.accepted(instance.given(leaves, 1), first)
    answers = finite.pattern(outputs)

    def takes(make: Make, *, otherwise: bool = False) -> bool:
        """Whether the reference answers as finitely as ever; ``otherwise``: by other operators."""
        made = make(inputs.generator(instance.seed % 2**63, instance.device))
        with (way := Way()):
            outs = instance.accepted(instance.given(leaves, 1), [(n, made.get(n, v)) for n, v in first])
        return answers is not None and finite.pattern(outs) == answers and (way.names != usual.names or not otherwise)

    trained = dict(instance.model.named_parameters())
    held = {name: value for name, value in first if name not in trained and value.numel() and not numerics.tiny(value)}
    same = dict(weights.read(instance._construct(instance.seed + 1)))
    held = {name: value for name, value in held.items() if _still(value, same.get(name))}
    if instance.giver.keeps is False and usual.names:  # what a call writes to itself stays
        after = dict(instance.state_after([instance.given(leaves, 1)], first))
        instance._restore()
        held = {name: value for name, value in held.items() if _still(value, after[name])}
    kinks = instance.contract.gradients
    zeros = [] if instance.sorts or kinks else [_zeros(instance, name) for name in _some(instance, trained)]
    others = [make for make in _infinite(held, usual) if takes(make)]
    if not kinks:
        others += [make for make in _dead(held, usual) if takes(make)]
        others += [make for make in _off(held) if takes(make, otherwise=True)]
    others += [make for make in _tables(held, {value.shape for value in trained.values()}) if takes(make)]
    others += [functools.partial(_each, made, _as_is) for made in numbers(instance)]
    return {weights.ZEROED: [make for make in zeros if takes(make)], weights.REPLACED: others}


def _still(value: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Whether another construction has the same."""
    return other is not None and other.shape == value.shape and renewed.same(value, other)


def _some(instance: Instance, trained: Mapping[str, torch.Tensor]) -> list[str]:
    able = [name for name, value in trained.items() if value.numel() and value.is_floating_point()]
    return random.Random(instance.seed).sample(able, min(ASKED, len(able)))


def _zeros(instance: Instance, name: str) -> Make:
    known = dict(instance.first_state)
    return functools.partial(_each, {other: known[other] for other in weights.tied(instance.model, name)}, _zero)


def _each(
    known: Mapping[str, torch.Tensor],
    change: Callable[[torch.Tensor, torch.Generator], torch.Tensor],
    rng: torch.Generator,
) -> dict[str, torch.Tensor]:
    return {name: change(value, rng) for name, value in known.items()}


def _zero(value: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    return torch.zeros_like(value)


def _as_is(value: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    return value


def _line(value: torch.Tensor) -> bool:
    return value.numel() == max(value.shape, default=1)


def _infinite(held: Mapping[str, torch.Tensor], usual: Way) -> Iterator[Make]:
    """Finite numbers, or in lines other places, in buffers. Who has none but minus infinity, and is not asked whether
    it has, is a number to mask with, that programs may have in their source."""
    odd = {n: v for n, v in held.items() if v.is_floating_point() and not numerics.finite(v)}
    full = {name: value for name, value in odd.items() if not bool(value.isfinite().any())}
    below = {name for name, value in full.items() if bool((value == -torch.inf).all())}
    if len(below) < len(full) or any(full[name].numel() in usual.compared for name in below):
        pair = 0 < len(below) < len(full)  # a least and a largest value that nothing was seen of yet
        yield functools.partial(_each, full, functools.partial(_filled, pair=pair))
    for name, value in odd.items():
        if name not in full and _line(value):
            yield functools.partial(_each, {name: value}, _shuffled)


def _filled(value: torch.Tensor, rng: torch.Generator, *, pair: bool) -> torch.Tensor:
    size = 0.25 + torch.rand(value.shape, generator=rng, device=value.device, dtype=torch.float64)
    if not pair:  # of what is unknown either sign, of a bound the positive one
        sign = 2 * torch.randint(2, value.shape, generator=rng, device=value.device) - 1
        return torch.where(value.isnan(), size * sign, size).to(value.dtype)
    beyond = BEYOND[rng.initial_seed() % len(BEYOND)]  # the same for both
    return (torch.sign(value.nan_to_num(1.0)) * -4.0 * size + beyond).to(value.dtype)


def _shuffled(value: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    order = torch.randperm(value.numel(), generator=rng, device=value.device)
    return value.reshape(-1)[order].reshape(value.shape)


def _off(held: Mapping[str, torch.Tensor]) -> Iterator[Make]:
    """Zero, and minus one, for a single float, one for a negative one."""
    for name, value in held.items():
        if value.is_floating_point() and value.numel() == 1 and numerics.finite(value) and bool(value.any()):
            yield functools.partial(_each, {name: value}, _zero)
            yield functools.partial(_each, {name: torch.full_like(value, -1.0 if float(value) > 0 else 1.0)}, _as_is)


def _dead(held: Mapping[str, torch.Tensor], usual: Way) -> Iterator[Make]:
    """Zeros here and there in a vector that is compared with a number, and in some rows of ones that are a mask."""
    for name, value in held.items():
        if value.dim() > 1 and value.is_floating_point() and bool((value == 1).all()):
            yield functools.partial(_each, {name: value}, _without_rows)
        fits = value.is_floating_point() and value.numel() > 1 and _line(value)
        if fits and value.numel() in usual.compared and bool((value > 0).all()) and numerics.finite(value):
            yield functools.partial(_each, {name: value}, _holed)


def _without_rows(value: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    chance = torch.rand(value.shape[:1], generator=rng, device=value.device)
    kept = (chance > max(DEAD, float(chance.min()))).to(value.dtype)
    return value * kept.view(-1, *[1] * (value.dim() - 1))


def _holed(value: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    noise, scale = torch.rand((2, *value.shape), generator=rng, device=value.device)
    return torch.where(noise <= max(DEAD, float(noise.min())), 0.0, value * (0.5 + scale)).to(value.dtype)


def _tables(held: Mapping[str, torch.Tensor], shapes: set[torch.Size]) -> Iterator[Make]:
    """The elements of a mask or a table of whole numbers in another order: of lines, and of masks of a parameter's
    shape. What rises from end to end has its meaning by that (places, ends of rows): others in order, between its
    ends."""
    for name, value in held.items():
        flags = value.dtype is torch.bool or value.is_floating_point() and bool(((value == 0) | (value == 1)).all())
        integers = value.dtype in whole.INTEGERS
        if not (flags or integers) or value.numel() < 3 or bool((value == value.reshape(-1)[0]).all()):
            continue
        flat = value.reshape(-1)
        if integers and bool((flat[1:] > flat[:-1]).all()):
            if _line(value) and bool((flat[1:] - flat[:-1] > 1).any()):
                yield functools.partial(_each, {name: value}, _others_in_order)
            continue
        if codes.constant(value) or flags and _by_rule(flat):
            continue
        if _line(value) or flags and value.shape in shapes and not _triangular(value):
            yield functools.partial(_each, {name: value}, _shuffled)


def _others_in_order(value: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """As many from the same range, with the first and the last one."""
    low, high = int(value.reshape(-1)[0]), int(value.reshape(-1)[-1])
    if value.numel() < 3 or high - low > RANGE:
        return value
    inner = torch.randperm(high - low - 1, generator=rng, device=value.device)[: value.numel() - 2] + low + 1
    made = value.clone(memory_format=torch.contiguous_format)
    made.view(-1)[1:-1] = inner.sort().values.to(value.dtype)
    return made


def _by_rule(flat: torch.Tensor) -> bool:
    """Whether it has two halves, or one in two, as the masks of a coupling do."""
    return torch.equal(flat[2:], flat[:-2]) or int((flat[1:] != flat[:-1]).sum()) == 1


def _triangular(value: torch.Tensor) -> bool:
    return value.dim() > 1 and (torch.equal(value, value.tril()) or torch.equal(value, value.triu()))
