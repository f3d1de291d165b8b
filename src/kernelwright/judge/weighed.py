# SPDX-License-Identifier: Apache-2.0
"""Weights beside what a reference compares them with: a norm above which they are scaled down, a clamp; and near what
it takes from them.

Of constructors and of training by lot weights are of a size of their own, which no such number is near: who left out a
norm of 2000, or a clamp at 1000, passed, as inputs alone were scaled until the reference took another way. So did who
left out what is done above a mean of losses of 10,000, which a buffer holds, or a clamp of what comes of weights and a
norm of inputs, which no scale of inputs reaches.
"""

from __future__ import annotations

import functools
import math
import operator
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from kernelwright.judge import (
    borders,
    conditions,
    exponents,
    finite,
    fitted,
    inputs,
    numerics,
    solved,
    thresholds,
    weights,
)
from kernelwright.judge.kinds import Watching

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State

AMONG, NEAR, LARGE = "elements about numbers", "near other weights", "results beyond numbers"
PLACED = 1 / 2
"""Of new weights for a single call those that lie beside something, where there is anything."""
GATED = 3 / 4
"""Share of them where a single number of a buffer is compared: it lies on one of two sides, and not beyond each time;
one proof in ten granted who left out what is done above a mean of losses."""
WEIGHTS = 4
"""That are scaled in search of another way, the first."""
GATES = 4
"""Buffers of floats that are scaled so, the smallest."""
BEYOND = 2.0**-4
"""How far on either side of where the reference turns its answers with such a buffer have to be finite."""
AROUND = 1 / 32
"""Share of the elements of a weight that lie about what it is compared with, one at the least."""
CLEAR = 1.25
"""How many times as large results would be, at the least, for a number that they are compared with to be out of their
reach."""


def placed(instance: Instance, state: State, seed: int) -> State:
    """Weights for a single call, every second time: counters where the reference turns, a weight beside the size where
    it does, or such that results lie beyond what they are compared with, elements of one about what they are, or
    weights near what is taken from them, if there are any. Not for calls in turn: who copies a target now and then has
    other answers after that, and each call is checked by itself. A right program was refused in a race for it."""
    (names, found), (scales, limits, beyond) = thresholds.counters(instance), heavy(instance)
    dice, near = random.Random(seed), solved.of_weights(instance)
    known = {thresholds.AT: found, thresholds.BESIDE: scales, AMONG: limits, NEAR: near, LARGE: beyond}
    kinds = [kind for kind, fits in known.items() if fits]
    first = {name: value if value.numel() == 1 else None for name, value in instance.first_state}
    gated = limits.keys() - {name for name, _ in instance.model.named_parameters(remove_duplicate=False)}
    often = GATED if any(first[name] is not None for name in gated) else PLACED
    if not kinds or dice.random() >= often:
        return state
    kind = dice.choice(kinds)
    if kind == thresholds.AT:
        return thresholds.counted(state, dice.choice(thresholds.apart(names)), dice.choice(found))
    if kind == thresholds.BESIDE:
        return _beside(instance, state, dice.choice(scales), dice)
    if kind == NEAR:
        return _near(instance, dice.choice(near), dice)
    if kind == LARGE:
        name, reach = dice.choice(beyond)
        scale = reach * _ratio(instance, state, name) * 2.0 ** dice.uniform(-0.5, 2.0)
        return _weighed((), state, weights.tied(instance.model, name), 1.0, scale)[1] or state
    made = [(n, _among(value, first[n], limits[n], dice) if n in limits else value) for n, value in state]
    return made if not gated or _as_finite(instance, [made]) else state


def begun(instance: Instance, state: State) -> State:
    """Weights whose counters are where they begin, where the reference turns at some."""
    names, known = thresholds.counters(instance)[0], dict(instance.first_state)
    return [(name, known[name] if name in names else value) for name, value in state] if names else state


def _beside(instance: Instance, state: State, scale: tuple[str, float, bool], dice: random.Random) -> State:
    """A weight that is so large that the reference has just turned, or is about to; as it is where it does not."""
    name, near, alone = scale
    ratio = _ratio(instance, state, name)
    near, made = abs(near) * ratio, replace(_scaled(instance, state, name, math.copysign(1.0, near)), alone=alone)
    if not made.turns(near / 2, near * 2):
        return state
    return made.beside(near, dice.choice((-1, 1)), dice.choice(thresholds.MARGINS))[1] or state


def _ratio(instance: Instance, state: State, name: str) -> float:
    """How many times as large a weight was at first."""
    sizes = (inputs.size_of(dict(known)[name]) for known in (instance.first_state, state))
    return float(operator.truediv(*(max(size, 1e-30) for size in sizes)))


def _near(instance: Instance, made: Mapping[str, torch.Tensor], dice: random.Random) -> State:
    """The first weights, but those ``made`` so that a difference of theirs is small, a little off."""
    rng, share = inputs.generator(dice.getrandbits(62), instance.device), dice.choice(fitted.SHARES)
    moved = dict[str, torch.Tensor]()
    for name, value in made.items():
        moved |= dict.fromkeys(weights.tied(instance.model, name), solved.noisy(value, share, rng))
    return [(name, moved.get(name, value)) for name, value in instance.first_state]


def _among(value: torch.Tensor, first: torch.Tensor | None, reach: float, dice: random.Random) -> torch.Tensor:
    """A weight of which some elements are about so many times as large as its largest one, of either sign; or than the
    ``first`` one, where it is a single number, whose size is no law that a new one follows."""
    rng = inputs.generator(dice.getrandbits(62), value.device)
    if value.numel() == 0 or not numerics.finite(value):
        return value
    chance, side, share = torch.rand((3, *value.shape), generator=rng, device=value.device)
    far = (
        float((value if first is None else first).abs().max())
        * reach
        * torch.sign(side - 0.5)
        * 2.0 ** (2.0 * share - (0.5 if first is None else 0.25))
    )
    return torch.where(chance <= max(AROUND, float(chance.min())), far.to(value.dtype), value)


class _Limits(Watching):
    """Notes the weights that operators compare with numbers, and how many times as large they would be as those."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.followed, self.found = exponents.Followed(model, gates=True), dict[str, float]()

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        names = self.followed.names(args[0]) if args and isinstance(args[0], torch.Tensor) else ()
        if names and (reach := borders.reach(func, args, kwargs or {})):
            self.found |= {name: max(reach, self.found.get(name, 0.0)) for name in names}
        out = func(*args, **(kwargs or {}))
        self.followed.note(func, args, out)
        return out


class _Reaches(Watching):
    """Notes how many times as large all would be that operators compare with numbers, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        if borders.named(func) in borders.COMPARED:
            self.found.append(borders.reach(func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


_Found = tuple[list[tuple[str, float, bool]], dict[str, float], list[tuple[str, float]]]
_HEAVY: WeakKeyDictionary[Instance, _Found] = WeakKeyDictionary()


def heavy(instance: Instance) -> _Found:
    """Weights of floats with a scale near which the reference turns; those that it compares with numbers, and how far
    from them these lie; and those by which results come to lie beyond numbers that inputs do not reach, and how many
    times as large they are then. Looked for once."""
    if instance not in _HEAVY:
        leaves, able = (
            instance._raw(instance.seed)[0],
            thresholds.runs(instance) >= thresholds.LEAST and not instance.contract.random,
        )
        limits = _Limits(instance.model)
        if able and instance.first_state:
            with limits:
                instance.accepted(instance.given(leaves, 1), instance.first_state)
        scales = list(_weighing(instance, leaves)) if able and thresholds.READS in instance.met["traits"] else []
        beyond = list(_beyond(instance, leaves, limits.found)) if able and instance.met["reach"] > CLEAR else []
        _HEAVY[instance] = scales, limits.found, beyond
    return _HEAVY[instance]


def _weighing(instance: Instance, leaves: Sequence[torch.Tensor]) -> Iterator[tuple[str, float, bool]]:
    if not conditions.source(instance.reference.task).turns:
        return
    trained = [name for name, value in instance.model.named_parameters() if value.numel()]
    known, able = dict(instance.first_state), thresholds.runs(instance) // thresholds.EACH
    for name in [*trained[: min(WEIGHTS, able)], *_gates(instance)[:able]]:
        if known[name].is_floating_point() and known[name].itemsize > 1 and numerics.finite(known[name]):
            for side in (1.0, -1.0) if known[name].numel() == 1 and name not in trained else (1.0,):
                made = _scaled(instance, instance.first_state, name, side)
                found = (turn for turn in made.found() if _holds(made, turn[0], name in trained))
                yield from ((name, scale * side, alone) for scale, alone in found)


def _beyond(instance: Instance, leaves: Sequence[torch.Tensor], known: Collection[str]) -> Iterator[tuple[str, float]]:
    """By weight how many times as large it has to be for a result to reach a number that no scale of inputs does. Not
    those that are ``known`` to be compared themselves."""
    usual = _reaches(instance, leaves, instance.first_state)
    most = 2.0 * max((reach for reach in usual if reach > CLEAR), default=0.0)
    large = [(leaf * most).to(leaf.dtype) if leaf.is_floating_point() else leaf for leaf in leaves]
    scaled = _reaches(instance, large, instance.first_state) if most else []
    out = {at: reach for at, reach in enumerate(usual) if len(scaled) == len(usual) and CLEAR < min(reach, scaled[at])}
    trained = [name for name, value in instance.model.named_parameters() if value.numel()] if out else []
    for name in (name for name in trained[:WEIGHTS] if name not in known):
        made = _weighed(leaves, instance.first_state, weights.tied(instance.model, name), 1.0, 2.0 * max(out.values()))
        found = _reaches(instance, *made)
        near = [reach for at, reach in out.items() if len(found) == len(usual) and 0.0 < found[at] < CLEAR]
        if near:
            yield name, min(near)


def _reaches(instance: Instance, leaves: Sequence[torch.Tensor], state: State | None) -> list[float]:
    """What operators of one call compare is so far from numbers; nothing where the reference does not take it."""
    with (mode := _Reaches()):
        taken = instance.accepted(instance.given(leaves, 1), state)
    return mode.found if taken is not None else []


def _gates(instance: Instance) -> list[str]:
    """Buffers that may be one, the smallest first: a mean of losses, a scale that says when to skip. Those that begin
    with zero too."""
    trained = {name for name, _ in instance.model.named_parameters(remove_duplicate=False)}
    held = [(value.numel(), name) for name, value in instance.first_state if name not in trained and value.numel()]
    floats = {name for name, value in instance.first_state if value.is_floating_point()}
    return [name for _, name in sorted(held) if name in floats][:GATES]


def _holds(made: thresholds.Scaled, scale: float, trained: bool) -> bool:
    """Whether the answers with a buffer that is so large are as finite as ever: below zero there may be no root."""
    if trained:
        return True
    states = [made.made(scale * times)[1] or [] for times in (1 - BEYOND, 1 + BEYOND)]
    return _as_finite(made.instance, states)


def _as_finite(instance: Instance, states: Sequence[State]) -> bool:
    leaves = instance._raw(instance.seed)[0]
    usual, *others = (
        finite.pattern(instance.accepted(instance.given(leaves, 1), state)) for state in (instance.first_state, *states)
    )
    return usual is not None and all(other == usual for other in others)


def _scaled(instance: Instance, state: State, name: str, side: float) -> thresholds.Scaled:
    leaves, tied = instance._raw(instance.seed)[0], weights.tied(instance.model, name)
    return thresholds.Scaled(instance, functools.partial(_weighed, leaves, state, tied, side))


def _weighed(
    leaves: Sequence[torch.Tensor], state: State, names: Collection[str], side: float, scale: float
) -> thresholds.Call:
    """A call with weights by these names scaled: zeros as if they were ones, and below zero (``side``) by sizes."""
    return leaves, [(n, _times(value, side, scale) if n in names else value) for n, value in state]


def _times(value: torch.Tensor, side: float, scale: float) -> torch.Tensor:
    base = value if bool(value.any()) else torch.ones_like(value)
    return ((base.abs() if side < 0 else base) * (side * scale)).to(value.dtype)
