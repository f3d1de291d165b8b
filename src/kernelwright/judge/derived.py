# SPDX-License-Identifier: Apache-2.0
"""Classes and masks that a reference makes of floats itself, and other floats that differ by them.

An expert is the largest of a row of logits, a side of a split is where a feature lies: ``selected`` moves numbers by
what whole numbers and flags say that come in, and knew nothing of these. A variance as E[c^2] - E[c]^2 of the rows of
each expert passed, off by 0.2 in answers of size one where the experts' rows lie 300 apart.

So the reference is watched for flags and places that it makes of floats, twice per input with that input rolled along,
and negated too: what becomes another one by that is decided by it. Inputs that do not decide a class, and have an axis
of its, are moved by it, while those that decide stay.

Classes that are made of whole numbers are found in the same way: every sixteenth of the ids that come in, by way of
floats too, what a map in a buffer says of them, places before a length. Variances by squares around one centre passed
there too (0.25 off in answers of size one, of 1000 apart), as half of the ids up are half of each class. And places
that a buffer of indices takes are a class beside those that it leaves, or one by each of its rows; such draws come
beside new buffers as well.
Flags that a buffer holds are two classes, and so are its zeros and ones: a variance by squares of columns that they
select passed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from kernelwright.judge import inputs, numerics, selected, whole
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.dealing import below
from kernelwright.judge.kinds import Watching

if TYPE_CHECKING:
    from kernelwright.judge import weights
    from kernelwright.judge.instance import Instance

DERIVES = "chooses or compares floats"
"""What is said of a reference that does."""
GROUPS = "groups by whole numbers"
"""The same of one that computes whole numbers or flags of such, or takes places by them."""
FAR_BY, SIZED_BY = "far apart by derived class", "of other sizes by derived class"
CHANGES = {FAR_BY: selected.CHANGES[selected.FAR_BY], SIZED_BY: selected.CHANGES[selected.SIZED_BY]}
"""Named as what ``selected`` does with classes that come in."""
DRAWS, DRAWS_IF_DEARER = {FAR_BY: 4, SIZED_BY: 2}, 2
ANEW = tuple(f"{FAR_BY}, {which} buffers" for which in ("other", "third", "fourth", "fifth", "sixth", "seventh"))
"""Beside new weights, where there are whole numbers among them: which side of a group a centre lies on is one lot for
each buffer of indices, and no more of one for several draws beside it. With two such buffers one proof in four granted
squares about a column."""
FOUND, WHOLE, HELD = "found", "whole", "held"
"""Kinds of classes: made of floats, made of whole numbers alone, and held by buffers."""
MOST, CELLS = 24, 1 << 20
"""Classes of one call that are looked at, the first ones, and elements of one."""
LEAVES = 6
"""Inputs of floats at the most of which it is asked what they decide."""
WORK, LEAST = 3 * 10**9, 8
"""Multiply-adds of all runs of the reference in search of classes, and how many runs there must be: some ten of the
hundreds of runs that a case has. At a tenth of it classes in a case of 4.4e7 were not looked for."""
LOGICAL = {f"aten::{kind}_{how}" for kind in ("logical", "bitwise") for how in ("and", "or", "xor", "not")}
ROUNDED = {f"aten::{name}" for name in ("floor", "ceil", "round", "trunc", "sign", "sgn", "floor_divide")}
"""Operators whose answers are classes although they are floats."""
PLACES = (torch.bool, torch.int32, torch.int64)
SMALL = (torch.uint8, torch.int8, torch.int16)
"""Types of whole numbers besides whose classes may be made of such."""
TAKING = {"aten::index", "aten::index_select", "aten::gather", "aten::take"}
MADE = TAKING | LOGICAL | ROUNDED | {
    *(f"aten::{name}" for name in ("div", "remainder", "fmod", "searchsorted", "bucketize", "isin", "where")),
    *(f"aten::{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge", "__rshift__", "bitwise_right_shift")),
}  # fmt: skip
"""Operators that make classes of whole numbers."""

Classes = list[torch.Tensor]


def groups(func: Any, args: Sequence[Any]) -> bool:
    """Whether an operator makes classes of whole numbers, or takes places of floats by them."""
    name = func._schema.name
    return name in MADE and (_whole(args) or (name in TAKING and any(True for _ in _indices(name, args))))


def _whole(args: Sequence[Any]) -> bool:
    """Several whole numbers or flags go in, and no floats."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    tensors += [one for arg in args if isinstance(arg, list | tuple) for one in arg if isinstance(one, torch.Tensor)]
    several = any(one.numel() > 1 and one.dtype is not torch.bool for one in tensors)
    return several and not any(one.is_floating_point() or one.is_complex() for one in tensors)


def _indices(name: str, args: Sequence[Any], flags: bool = False) -> Iterator[tuple[int, torch.Tensor]]:
    """Whole numbers that say places along one axis of floats, and which; or ``flags`` that select some."""
    if name not in ("aten::index", "aten::index_select") or not args[0].is_floating_point():
        return
    found = enumerate(args[1]) if name == "aten::index" else [(args[1] % max(1, args[0].dim()), args[2])]
    for axis, one in found:
        if one is None or one.numel() < 2:
            continue
        if one.dtype in (torch.int32, torch.int64) and one.dim() in (1, 2) or flags and _flags(one):
            yield axis, one


def _taken(source: torch.Tensor, axis: int, places: torch.Tensor) -> torch.Tensor:
    """Which places along an axis are taken, by which row of several."""
    size = source.shape[axis]
    if places.dtype is torch.bool:
        return places.long().view([size if at == axis else 1 for at in range(source.dim())])
    made = torch.zeros(size, dtype=torch.int64, device=places.device)
    rows = torch.arange(1, len(places) + 1, device=places.device) if places.dim() == 2 else torch.ones_like(places)
    numbers = rows[:, None].expand_as(places) if places.dim() == 2 else rows
    made[places.reshape(-1).long()] = numbers.reshape(-1).long()
    return made.view([size if at == axis else 1 for at in range(source.dim())])


class _Derived(Watching):
    """Remembers classes that operators make of floats, or of such, and of whole numbers; those that buffers hold, or
    by which they take places, among them."""

    def __init__(self, shapes: Collection[Sequence[int]], buffers: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._shapes, self._buffers = shapes, buffers
        self.found: Classes = []
        self.whole: Classes = []
        self.held: Classes = [one.clone() for one in buffers if self._fits(one)]

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        out = func(*args, **(kwargs or {}))
        name = func._schema.name
        if name in MADE and isinstance(out, torch.Tensor):
            if out.dtype in (*PLACES, *SMALL) and _whole(args) and len(self.whole) < MOST and self._fits(out):
                self.whole.append(out.detach().clone())
            self._takes(name, args)
        floats = any(isinstance(arg, torch.Tensor) and arg.is_floating_point() for arg in args)
        for part in out if isinstance(out, tuple | list) else (out,):
            if isinstance(part, torch.Tensor) and self._is_class(func, part, floats):
                self.found.append(part.detach().clone())
        return out

    def _is_class(self, func: Any, part: torch.Tensor, floats: bool) -> bool:
        name = func._schema.name
        known = (floats and part.dtype in PLACES) or name in ROUNDED or (name in LOGICAL and part.dtype is torch.bool)
        return known and len(self.found) < MOST and self._fits(part)

    def _fits(self, part: torch.Tensor) -> bool:
        return 1 < part.numel() <= CELLS and any(_axes(part.shape, shape) for shape in self._shapes)

    def _takes(self, name: str, args: Sequence[Any]) -> None:
        for axis, places in _indices(name, args, flags=True) if len(self.held) < MOST else ():
            if any(one.shape == places.shape and torch.equal(one, places) for one in self._buffers):
                made = _taken(args[0], axis, places)
                if self._fits(made):
                    self.held.append(made)


def _axes(selector: Sequence[int], leaf: Sequence[int]) -> dict[int, int]:
    """By axis of a selector that of a leaf it stands for, in their order, the first that is as long; others have none,
    and of those one place says the class. Of a selector with as many axes each stands for its own."""
    if own := selected.own_axes(selector, leaf):
        return dict(zip(own, own, strict=True))
    found: dict[int, int] = {}
    for axis, size in enumerate(selector):
        start = max(found.values(), default=-1) + 1
        place = next((at for at in range(start, len(leaf)) if leaf[at] == size), None)
        if size > 1 and place is not None:
            found[axis] = place
    return found


def drawn(specs: Sequence[TensorSpec], traits: Collection[str], *, light: bool, anew: bool) -> list[inputs.Variant]:
    """Such draws, where several inputs of floats have an axis in common that is as long, or whole numbers may say
    classes of one; beside other weights too (``anew``)."""
    floats = [spec.shape for spec in specs if spec.dtype.startswith(("float", "bfloat"))]
    pairs = (_axes(one, other) for at, one in enumerate(floats) for other in floats[:at])
    by_whole = GROUPS in traits and any(map(len, floats))
    numbers = any(spec.shape and spec.dtype.startswith(("int", "uint")) for spec in specs) and any(map(len, floats))
    if not by_whole and (DERIVES not in traits or not (any(pairs) or numbers)):
        return []
    draws = DRAWS if light else dict.fromkeys(DRAWS, DRAWS_IF_DEARER)
    usual = [inputs.Variant(name=name, required=True, change=name, draws=count) for name, count in draws.items()]
    others = ANEW if by_whole and anew else ()
    made = inputs.Variant(name="", required=True, change=FAR_BY, fresh_weights=True)
    return [*usual, *(dataclasses.replace(made, name=name) for name in others)]


def met(instance: Instance, variant: inputs.Variant) -> bool:
    """Whether there is anything to draw; beside other buffers, whether there are any."""
    return bool(of(instance)) and (not variant.fresh_weights or bool(_buffers(instance.first_state)))


class Pair(NamedTuple):
    """One class, by its kind and its number among those of a call, the inputs that may be moved by it, and those that
    decide it."""

    kind: str
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


def _buffers(state: weights.State) -> list[torch.Tensor]:
    """Whole numbers of which a module holds several, and flags along one axis: columns that are selected. A mask of
    places by places says no class of either."""
    return [
        value for _, value in state if value.dtype in (torch.int32, torch.int64) and value.numel() > 1 or _flags(value)
    ]


def _flags(value: torch.Tensor) -> bool:
    """Along one axis; floats that are zeros and ones are flags as well, where there are both."""
    if value.is_meta or not 1 < value.numel() == max(value.shape):
        return False
    if value.is_floating_point():
        return bool(((value == 0) | (value == 1)).all()) and 0 < int((value == 1).sum()) < value.numel()
    return value.dtype is torch.bool


def flagged(model: torch.nn.Module | None, leaves: Sequence[torch.Tensor]) -> bool:
    """Whether a module holds flags that may say classes of an axis of an input of floats: selecting by them, adding up
    times them, filling what they are not, are as many operators."""
    held = [] if model is None else [value for value in model.buffers() if _flags(value)]
    return any(_axes(value.shape, leaf.shape) for leaf in leaves if leaf.is_floating_point() for value in held)


def _seen(instance: Instance, leaves: Sequence[torch.Tensor], state: weights.State | None = None) -> _Derived:
    """The classes of a call; none where the reference does not take it."""
    held = instance.first_state if state is None else state
    shapes = {tuple(leaf.shape) for leaf in leaves if leaf.is_floating_point()}
    with inputs.seeded(instance.seed), (seen := _Derived(shapes, _buffers(held))):  # flags by lot are the same in all
        taken = instance.accepted(instance.given(leaves, 1), held)
    return seen if taken is not None else _Derived((), ())


def _pairs(instance: Instance) -> Iterator[Pair]:
    if not instance.settled or WORK // max(instance.work, 1) < LEAST:
        return
    leaves = instance._raw(instance.seed)[0]
    usual = _seen(instance, leaves)
    able = _able(instance, leaves)
    floats, numbers = _decided(instance, leaves, able[:LEAVES], FOUND, usual), _numbers(instance, leaves)
    by_any = floats | _decided(instance, leaves, numbers, FOUND, usual)  # classes of ids by their logarithm, too
    yield from _fitting(FOUND, usual.found, by_any, list(floats), leaves)
    yield from _fitting(WHOLE, usual.whole, _decided(instance, leaves, numbers, WHOLE, usual), able, leaves)
    for at, classes in enumerate(usual.held):
        fit = tuple(i for i in able if _axes(classes.shape, leaves[i].shape))
        if fit and _several(classes):
            yield Pair(HELD, at, fit, ())


def _numbers(instance: Instance, leaves: Sequence[torch.Tensor]) -> list[int]:
    """Inputs of whole numbers that may be rolled along."""
    bonds, several = instance.bonds, [i for i, x in enumerate(leaves) if x.dtype in whole.INTEGERS and x.numel() > 1]
    return [i for i in several if i not in bonds.sums and i not in instance.constant][:LEAVES]


def _decided(
    instance: Instance, leaves: Sequence[torch.Tensor], able: Sequence[int], kind: str, usual: _Derived
) -> dict[int, set[int]]:
    """By input that may, which classes of a kind it decides."""
    decided, known = dict[int, set[int]](), getattr(usual, kind)
    for index in able if known else ():
        rolled = leaves[index].roll((1,) * leaves[index].dim(), tuple(range(leaves[index].dim())))
        turned = (rolled, -rolled) if rolled.is_floating_point() else (rolled,)
        others = [getattr(_seen(instance, _with(leaves, index, one)), kind) for one in turned]
        others = [other for other in others if len(other) == len(known)]  # else it goes another way, or takes none
        if others:
            pairs = [pair for other in others for pair in enumerate(zip(known, other, strict=True))]
            decided[index] = {at for at, (one, other) in pairs if not _equal(one, other)}
    return decided


def _fitting(
    kind: str, found: Classes, decided: dict[int, set[int]], able: Sequence[int], leaves: Sequence[torch.Tensor]
) -> Iterator[Pair]:
    for at, classes in enumerate(found):
        deciding = tuple(i for i in decided if at in decided[i])
        fit = tuple(i for i in able if i not in deciding and _axes(classes.shape, leaves[i].shape))
        by_floats = all(leaves[i].is_floating_point() for i in deciding)
        if deciding and fit and ((kind == FOUND and by_floats) or _several(classes)):
            yield Pair(kind, at, fit, deciding)


def _several(classes: torch.Tensor) -> bool:
    """Whether there are some, and not each of them once."""
    return 1 < len(torch.unique(classes)) < classes.numel()


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype is other.dtype and torch.equal(one, other)


def _with(leaves: Sequence[torch.Tensor], index: int, leaf: torch.Tensor) -> list[torch.Tensor]:
    return [leaf if at == index else one for at, one in enumerate(leaves)]


def changed(
    instance: Instance, change: str, leaves: list[torch.Tensor], seed: int, state: weights.State | None = None
) -> list[torch.Tensor]:
    """A draw with one input moved by one class, as it is where that class is another one after it."""
    if not (pairs := of(instance)):
        return leaves
    rng = inputs.generator(seed, leaves[0].device)
    pair = pairs[below(len(pairs), rng)]
    index = pair.fit[below(len(pair.fit), rng)]
    usual, given, leaf = _of(pair, instance, leaves, state), leaves, leaves[index]
    if pair.kind == FOUND and leaves[pair.deciding[0]].is_floating_point() and below(4, rng):
        given = _alike(leaves, pair, usual, index, rng)
        usual = _of(pair, instance, given, state)
    if pair.place >= len(usual) or index not in _able(instance, leaves):
        return leaves
    classes, axes = usual[pair.place], _axes(usual[pair.place].shape, leaf.shape)
    for axis in reversed(range(classes.dim())):
        if axis not in axes:
            classes = classes.select(axis, below(classes.shape[axis], rng))
    lines = [size if at in axes.values() else 1 for at, size in enumerate(leaf.shape)]
    numbers = torch.unique(classes, return_inverse=True)[1].view(lines)
    made = _with(given, index, CHANGES[change]([leaf, numbers], rng)[0])
    again = _of(pair, instance, made, state)
    return made if len(again) == len(usual) and _equal(again[pair.place], usual[pair.place]) else leaves


def _of(pair: Pair, instance: Instance, leaves: list[torch.Tensor], state: weights.State | None) -> Classes:
    found: Classes = getattr(_seen(instance, leaves, state), pair.kind)
    return found


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
