# SPDX-License-Identifier: Apache-2.0
"""Classes and masks that a reference makes of floats itself, and other floats that differ by them.

An expert is the largest of a row of logits, a side of a split is where a feature lies: ``selected`` moves numbers by
what whole numbers and flags say that come in, and knew nothing of these. A variance as E[c^2] - E[c]^2 of the rows of
each expert passed, off by 0.2 in answers of size one where the experts' rows lie 300 apart.

So the reference is watched for flags and places that it makes of floats, twice per input with that input rolled along,
and negated too: what becomes another one by that is decided by it. Inputs that do not decide a class, and have an axis
of its, are moved by it, while those that decide stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from kernelwright.judge import inputs, numerics, selected
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.dealing import below
from kernelwright.judge.kinds import Watching

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

DERIVES = "chooses or compares floats"
"""What is said of a reference that does."""
FAR_BY, SIZED_BY = "far apart by derived class", "of other sizes by derived class"
CHANGES = {FAR_BY: selected.CHANGES[selected.FAR_BY], SIZED_BY: selected.CHANGES[selected.SIZED_BY]}
"""Named as what ``selected`` does with classes that come in."""
DRAWS, DRAWS_IF_DEARER = {FAR_BY: 4, SIZED_BY: 2}, 1
MOST, CELLS = 24, 1 << 20
"""Classes of one call that are looked at, the first ones, and elements of one."""
LEAVES = 6
"""Inputs of floats at the most of which it is asked what they decide."""
WORK, LEAST = 3 * 10**8, 8
"""Multiply-adds of all runs of the reference in search of classes, and how many runs there must be."""
LOGICAL = {f"aten::{kind}_{how}" for kind in ("logical", "bitwise") for how in ("and", "or", "xor", "not")}
ROUNDED = {f"aten::{name}" for name in ("floor", "ceil", "round", "trunc", "sign", "sgn", "floor_divide")}
"""Operators whose answers are classes although they are floats."""
PLACES = (torch.bool, torch.int32, torch.int64)

Classes = list[torch.Tensor]


class _Derived(Watching):
    """Remembers classes that operators make of floats, or of such."""

    def __init__(self, shapes: Collection[Sequence[int]]) -> None:
        super().__init__()
        self.found: Classes = []
        self._shapes = shapes

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        out = func(*args, **(kwargs or {}))
        floats = any(isinstance(arg, torch.Tensor) and arg.is_floating_point() for arg in args)
        for part in out if isinstance(out, tuple | list) else (out,):
            if isinstance(part, torch.Tensor) and self._is_class(func, part, floats):
                self.found.append(part.detach().clone())
        return out

    def _is_class(self, func: Any, part: torch.Tensor, floats: bool) -> bool:
        name = func._schema.name
        known = (floats and part.dtype in PLACES) or name in ROUNDED or (name in LOGICAL and part.dtype is torch.bool)
        if not known or len(self.found) >= MOST or not 1 < part.numel() <= CELLS:
            return False
        return any(_axes(part.shape, shape) for shape in self._shapes)


def _axes(selector: Sequence[int], leaf: Sequence[int]) -> dict[int, int]:
    """By axis of a selector that of a leaf it stands for, in their order, the first that is as long; others have none,
    and of those one place says the class."""
    found: dict[int, int] = {}
    for axis, size in enumerate(selector):
        start = max(found.values(), default=-1) + 1
        place = next((at for at in range(start, len(leaf)) if leaf[at] == size), None)
        if size > 1 and place is not None:
            found[axis] = place
    return found


def drawn(specs: Sequence[TensorSpec], traits: Collection[str], *, light: bool) -> list[inputs.Variant]:
    """Such draws, where several inputs of floats have an axis in common that is as long."""
    floats = [spec.shape for spec in specs if spec.dtype.startswith(("float", "bfloat"))]
    pairs = (_axes(one, other) for at, one in enumerate(floats) for other in floats[:at])
    if DERIVES not in traits or not any(pairs):
        return []
    draws = DRAWS if light else dict.fromkeys(DRAWS, DRAWS_IF_DEARER)
    return [inputs.Variant(name=name, required=True, change=name, draws=count) for name, count in draws.items()]


class Pair(NamedTuple):
    """One class, by its number in a call, the inputs that may be moved by it, and those that decide it."""

    place: int
    fit: tuple[int, ...]
    deciding: tuple[int, ...]


_FOUND: WeakKeyDictionary[Instance, tuple[Pair, ...]] = WeakKeyDictionary()


def of(instance: Instance) -> tuple[Pair, ...]:
    """The classes that there are; looked for once."""
    if instance not in _FOUND:
        _FOUND[instance] = tuple(_pairs(instance))
    return _FOUND[instance]


def _able(instance: Instance, leaves: Sequence[torch.Tensor]) -> list[int]:
    """Inputs of floats of which nothing holds that a move would end."""
    bonds = instance.bonds
    held = {*bonds.flags, *bonds.symmetric, *bonds.far, *bonds.hidden, *bonds.twice, *bonds.triangles}
    floats = [i for i, x in enumerate(leaves) if x.is_floating_point() and x.dim() and x.numel() > 1]
    return [i for i in floats if i not in held and leaves[i].itemsize > 1 and numerics.finite(leaves[i])]


def _seen(instance: Instance, leaves: Sequence[torch.Tensor]) -> Classes:
    """The classes of a call; none where the reference does not take it."""
    with _Derived({tuple(leaf.shape) for leaf in leaves if leaf.is_floating_point()}) as seen:
        taken = instance.accepted(instance.given(leaves, 1))
    return [] if taken is None else seen.found


def _pairs(instance: Instance) -> Iterator[Pair]:
    if instance.contract.random or WORK // max(instance.work, 1) < LEAST:
        return
    leaves = instance._raw(instance.seed)[0]
    usual = _seen(instance, leaves)
    decided = dict[int, set[int]]()
    able = _able(instance, leaves)[:LEAVES] if usual else []
    for index in able:
        axes = tuple(range(leaves[index].dim()))
        rolled = leaves[index].roll((1,) * len(axes), axes)
        others = [_seen(instance, _with(leaves, index, turned)) for turned in (rolled, -rolled)]
        known = [other for other in others if len(other) == len(usual)]  # else it goes another way, or takes none
        if known:
            pairs = [pair for other in known for pair in enumerate(zip(usual, other, strict=True))]
            decided[index] = {at for at, (one, other) in pairs if not _equal(one, other)}
    for at, classes in enumerate(usual):
        deciding = tuple(i for i in decided if at in decided[i])
        fit = tuple(i for i in decided if i not in deciding and _axes(classes.shape, leaves[i].shape))
        if deciding and fit:
            yield Pair(at, fit, deciding)


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype is other.dtype and torch.equal(one, other)


def _with(leaves: Sequence[torch.Tensor], index: int, leaf: torch.Tensor) -> list[torch.Tensor]:
    return [leaf if at == index else one for at, one in enumerate(leaves)]


def changed(instance: Instance, change: str, leaves: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """A draw with one input moved by one class, as it is where that class is another one after it."""
    if not (pairs := of(instance)):
        return leaves
    rng = inputs.generator(seed, leaves[0].device)
    pair = pairs[below(len(pairs), rng)]
    index = pair.fit[below(len(pair.fit), rng)]
    given = _alike(leaves, pair, _seen(instance, leaves), index, rng) if below(4, rng) else leaves
    usual, leaf = _seen(instance, given), leaves[index]
    if pair.place >= len(usual) or index not in _able(instance, leaves):
        return leaves
    classes, axes = usual[pair.place], _axes(usual[pair.place].shape, leaf.shape)
    for axis in reversed(range(classes.dim())):
        if axis not in axes:
            classes = classes.select(axis, below(classes.shape[axis], rng))
    lines = [size if at in axes.values() else 1 for at, size in enumerate(leaf.shape)]
    numbers = torch.unique(classes, return_inverse=True)[1].view(lines)
    made = _with(given, index, CHANGES[change]([leaf, numbers], rng)[0])
    again = _seen(instance, made)
    return made if len(again) == len(usual) and _equal(again[pair.place], usual[pair.place]) else leaves


def _alike(
    leaves: list[torch.Tensor], pair: Pair, usual: Classes, index: int, rng: torch.Generator
) -> list[torch.Tensor]:
    """The same, but inputs that decide are one for all along axes that a class has and what is moved has not: of 64
    thresholds all are one of them. Where they are not what lies apart on the sides of one is far on both of others, and
    one answer in 64 is small, the others are a million times as large."""
    if pair.place >= len(usual):
        return leaves
    classes, out = usual[pair.place], list(leaves)
    axes = _axes(classes.shape, leaves[index].shape)
    left = {size for axis, size in enumerate(classes.shape) if axis not in axes and size > 1}
    left -= {classes.shape[axis] for axis in axes}
    for other in pair.deciding:
        leaf = out[other]
        for axis, size in enumerate(leaf.shape):
            if size in left:
                leaf = leaf.narrow(axis, below(size, rng), 1).expand_as(leaf)
        out[other] = leaf.contiguous()
    return out
