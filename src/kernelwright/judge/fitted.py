# SPDX-License-Identifier: Apache-2.0
"""Inputs that fit: one of them is, but for a little noise, what the reference computes of the others and subtracts.

Targets of a model that is trained, points of a pose that is solved, the matrix of a factorisation that has converged: a
difference is small there beside what it is of, and of inputs by lot never is. Who expands its square, q q - 2 q y + y y
in place of (q - y)^2, was right on all draws and off by 35 % to 100 % on such data. What is subtracted is read off the
operators; by where they lie in memory an input is known again behind views, and what it is taken from as a result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge import borders, calls, inputs, numerics, squares, subtractions
from kernelwright.judge.dealing import below
from kernelwright.judge.inputs import Variant
from kernelwright.judge.kinds import Watching

if TYPE_CHECKING:
    from kernelwright.judge.buffers import TensorSpec
    from kernelwright.judge.instance import Instance

DRAWS = FITTED, SOME, ALL = "inputs that fit", "rows that fit", "inputs that all fit"
DIFFERS = "takes results from each other"
"""Said of a reference that does; also of one that takes the identity, a transpose or the diagonal from a matrix."""
WEIGHS = "takes weights from each other"
"""The same of weights alone."""
DIFFERENCES = {"sub", "rsub", "mse_loss", "smooth_l1_loss", "huber_loss", "dist"}
"""Operators that take one argument from another, element by element; ``add`` does by a factor of -1."""
EACH = {"_cdist_forward", "_euclidean_dist"}
"""Operators that take each row from each."""
SHARES = 1e-2, 1e-3, 1e-4
"""Of the size (RMS) of what an input becomes, its noise. float32 has 2^-24 of it, so of the last 600 roundings are left
to whoever subtracts, and of its square, expanded, none."""
OF_HALVES = 2.0**-4, 2.0**-5, 2.0**-6
"""The same of an input of half precision that becomes one of more: its own rounding is 2^-9."""
NEAREST, FURTHEST = 1 / 2, 3 / 2
"""Times that size each element is off, at the least and the most: where rounding decides on which side one lies, the
gradient of ``abs`` would be either sign."""
WIDE = 4
"""Bytes of an element at the least that is subtracted: those of half precision are 16 roundings off at 1e-2."""
MOST, ELEMENTS = 256, 1 << 24
"""Subtractions of one call that are looked at, and elements of one."""

FEWER = 4
"""Times as few elements as an input a result has at the least that a number is taken from: a norm, no sigmoid."""

Pair = tuple[torch.Tensor, torch.Tensor]


def sides(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Pair | None:
    """What an operator takes from each other, or adds up (``added``); None of another one."""
    name = borders.named(func)
    if len(args) < 2 or not (subtractions.tensors(*args[:2]) and _wide(args[0])):
        return None
    if name in subtractions.PRODUCTS:
        fused = subtractions.fused(name, args, kwargs)
        return (fused.one, fused.other) if fused is not None and _wide(fused.other) else None
    if not (name in DIFFERENCES or name in EACH or name == "add") or not _wide(args[1]):
        return None
    one, other = args[:2]
    if name in EACH:
        return one.unsqueeze(-2), other.unsqueeze(-3)
    factor = abs(_factor(name, args, kwargs))
    return (one, other if factor == 1 else other * factor) if factor and (factor == 1 or name != "rsub") else None


def _factor(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """By what the second side is multiplied; of a loss by one."""
    if name not in ("add", "sub", "rsub"):
        return 1.0
    factor = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    return 0.0 if isinstance(factor, complex) else float(factor)


def added(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator with ``sides`` adds them: what is the other's negative leaves as little."""
    name = borders.named(func)
    if name in subtractions.PRODUCTS:
        return bool(kwargs.get("alpha", kwargs.get("value", 1)) / kwargs.get("beta", 1) > 0)
    return (name == "add") == (_factor(name, args, kwargs) > 0)


def _lies(value: torch.Tensor) -> bool:
    """Whether it lies in memory, element by element."""
    return value.layout is torch.strided and not value.is_nested and value.device.type != "meta"


def _wide(value: torch.Tensor) -> bool:
    return _lies(value) and wide(value) and 0 < value.numel() <= ELEMENTS


def wide(value: torch.Tensor) -> bool:
    """Whether it has as many bits as single precision, both parts of a complex one."""
    return (
        value.itemsize >= WIDE * (1 + value.is_complex()) if value.is_floating_point() or value.is_complex() else False
    )


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        if _lies(values) and values.numel():
            yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)


def _place(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()


def _whole(copy: torch.Tensor, source: Any) -> torch.Tensor | None:
    """What all of a tensor was copied from, where that lies as it does."""
    if not (isinstance(source, torch.Tensor) and _lies(copy) and _lies(source)):
        return None
    alike = copy.stride() == source.stride() and copy.shape == source.shape
    return source if alike and copy.untyped_storage().nbytes() == copy.nbytes else None


class Fits:
    """Follows what is computed of what, by storage, and notes subtractions of which one side was there before the call,
    or is a copy of what was, and the other is computed of others. ``keep``: is shown each, and where what was there
    lies."""

    def __init__(self, keep: Callable[[int, torch.Tensor, torch.Tensor, int], None] | None = None) -> None:
        self._of: dict[int, frozenset[int]] = {}
        self._copies: dict[int, int] = {}
        self._keep = keep
        self._between: set[tuple[frozenset[int], int, frozenset[int]]] = set()
        """What both sides are made of, where one lies that is none of a call's results, and what may be no input."""
        self.found: set[tuple[int, frozenset[int]]] = set()
        """Where the one side lies, and what the other is made of."""
        self._sums: set[tuple[int, frozenset[int]]] = set()
        """The same of what is added."""
        self._squares: set[frozenset[int]] = set()
        """What matrices are made of of which little is left where they are of a kind (``squares``)."""
        self._pairs: set[frozenset[int]] = set()
        """Where both sides of a difference lie that were there before the call."""

    def look(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """One operator, before it runs."""
        if (whole := squares.parted(borders.named(func), args, kwargs)) is not None:
            self._squares.add(self._made(whole))
        if len(self.found) >= MOST or (pair := sides(func, args, kwargs)) is None:
            if borders.named(func) in ("sub", "rsub") and len(args) > 1 and not isinstance(args[1], torch.Tensor):
                self._less(args[0], args[1])
            self._spread(borders.named(func), args, kwargs)
            return
        sums = added(func, args, kwargs)
        if pair[1] is not args[1] and borders.named(func) not in EACH:  # a product is no operator's answer
            factors = (self._made(arg) for arg in args[1:3] if isinstance(arg, torch.Tensor))
            self._of[_place(pair[1])] = frozenset[int]().union(*factors)
        self._like(*pair, sums=sums)
        found, sign = (self._sums, -1) if sums else (self.found, 1)
        self._differ(*pair, sums=sums)
        for one, other in (pair, pair[::-1]):
            place, made = self._source(one), self._of.get(_place(other))
            if place is None or self._source(other) is not None or not made or place in made:
                continue
            found.add((place, made))
            if self._keep is not None:
                self._keep(place, one, other, sign)

    def _made(self, value: torch.Tensor) -> frozenset[int]:
        """What it is made of, itself where it was there before the call."""
        return self._of.get(_place(value), frozenset((_place(value),)))

    def _like(self, one: torch.Tensor, other: torch.Tensor, *, sums: bool) -> None:
        """Notes a matrix and its transpose, or less the identity, and two weights, or inputs, of one shape."""
        if one.shape != other.shape:
            return
        if squares.transposed(one, other):
            self._squares.add(self._made(one))
        elif not sums:
            self._squares |= {self._made(a) for a, b in ((one, other), (other, one)) if squares.identity(b)}
            places = {_place(one), _place(other)}
            self._pairs |= {frozenset(places)} if len(places) > 1 and not places & self._of.keys() else set()

    def _differ(self, one: torch.Tensor, other: torch.Tensor, *, sums: bool = False) -> None:
        """Notes a difference of two results, of one and a constant, or of an input and a result of it, and a sum of two
        results. Those of one shape; of others, and added, such that no input is in both: a mean is not taken from what
        it is of."""
        made = [self._of.get(_place(side), frozenset[int]()) for side in (one, other)]
        if not any(made) or len(self._between) >= MOST or (sums and not (all(made) and one.shape == other.shape)):
            return
        given = next((at for side in (one, other) if (at := self._source(side)) is not None), 0)
        apart = made[0] & made[1] if one.shape != other.shape or sums else frozenset[int]()
        if one.shape != other.shape and given in made[0] | made[1]:
            apart |= {given}
        self._between.add((made[0] | made[1], given, apart))

    def _spread(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Notes the variance of a few results along an axis."""
        if name in subtractions.SPREADS and _lies(args[0]) and wide(args[0]) and _place(args[0]) in self._of:
            if subtractions.of(name, args, kwargs) is not None:
                self._between.add((self._made(args[0]), 0, frozenset()))

    def _less(self, one: torch.Tensor, number: Any) -> None:
        """The same of a result and a number."""
        if isinstance(one, torch.Tensor) and number and (made := self._of.get(_place(one))) and _wide(one):
            self._between |= {(made, 0, frozenset[int]())} if one.numel() > 1 else set()

    def differs(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Whether two results of these, or one and a constant, are taken from each other."""
        places = {_place(leaf) for leaf in leaves if leaf.numel()}
        known = any(
            made & places and (given not in places or given in made) and not apart & places
            for made, given, apart in self._between
        )
        return known or any(made & places for made in self._squares)

    def weighs(self, leaves: Sequence[torch.Tensor]) -> bool:
        """The same of what is made of none of these, but of weights, or of two of those."""
        places = {_place(leaf) for leaf in leaves if leaf.numel()}
        between = (made | {given} for made, given, _ in self._between)
        return any(made and not made & places for made in (*self._squares, *self._pairs, *between))

    def _source(self, value: torch.Tensor) -> int | None:
        """Where what was there before the call lies, of which this is a part; None of a result."""
        place = _place(value)
        return self._copies.get(place) if place in self._of else place

    def note(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """One operator, and its answer. Views are what they are views of."""
        given = {_place(one) for one in (*_tensors(list(args)), *_tensors(list(kwargs.values())))}
        whence = frozenset[int]().union(*(self._of.get(place, (place,)) for place in given))
        for one in _tensors(out):
            if func._schema.is_mutable or _place(one) not in given:
                self._of[_place(one)] = whence
                self._copies.pop(_place(one), None)
        name = borders.named(func)
        copies = {"copy": args[:2], "_to_copy": (out, args[0])}.get(name, ()) if args else ()
        source = _whole(*copies) if len(copies) == 2 else None
        if source is not None and (place := self._source(source)) is not None:
            self._copies[_place(copies[0])] = place

    def of(self, leaves: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """Which of these a difference is taken with of what is computed of others among them; a sum, where none is."""
        places = {_place(leaf): at for at, leaf in enumerate(leaves) if leaf.numel()}
        for found in (self.found, self._sums):
            if fits := {places[one] for one, made in found if one in places and made & places.keys()}:
                return tuple(sorted(fits))
        return ()

    def at_once(self, leaves: Sequence[torch.Tensor], fits: Sequence[int], rng: torch.Generator) -> list[int]:
        """Those of some that fit together, taken in an order by lot: none is what another one fits made of."""
        places = {_place(leaf): at for at, leaf in enumerate(leaves) if leaf.numel()}
        of = {at: set[int]() for at in fits}
        for one, made in self.found | self._sums:
            if (at := places.get(one)) in of:
                of[at] |= {places[place] for place in made & places.keys()}
        chosen: list[int] = []
        for at in (fits[one] for one in torch.randperm(len(fits), generator=rng, device=rng.device).tolist()):
            if not any(at in of[one] or one in of[at] for one in chosen):
                chosen.append(at)
        return chosen


def drawn(specs: Sequence[TensorSpec], fits: Sequence[int], work: int, steps: Sequence[int]) -> list[Variant]:
    """Draws of which an input fits, in all of its rows, or in half of them: who looks at a few takes all for others.
    Of several all fit at once in some: with a target for each of two heads what is left of one hides the other.
    ``work``: multiply-adds of a call; those up to each of three ``steps`` have more draws than others. Of the dearest
    one comes all the same: products that squares expand into pay off there most."""
    if not any("float" in specs[at].dtype or "complex" in specs[at].dtype for at in fits):  # flags: see ``bonds``
        return []
    cheap = sum(work <= most for most in steps)
    draws = {FITTED: (1, 1, 2, 4)[cheap], SOME: (0, 1, 1, 2)[cheap], ALL: (1, 1, 2, 2)[cheap] if len(fits) > 1 else 0}
    return [Variant(name=name, required=True, change=name, draws=count) for name, count in draws.items() if count]


@dataclass(frozen=True, slots=True)
class _Taken:
    """A part of an input, by where it lies, and what it is taken from."""

    place: int
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    other: torch.Tensor
    sign: int


class _Watched(Watching):
    def __init__(self) -> None:
        super().__init__()
        self.fits, self.taken = Fits(self._keep), list[_Taken]()

    def _keep(self, place: int, one: torch.Tensor, other: torch.Tensor, sign: int) -> None:
        lies = (one.shape, one.stride(), int(one.storage_offset()))
        if len(self.taken) < MOST:
            self.taken.append(_Taken(place, *lies, sign * other.detach()[_first(other)], sign))

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        self.fits.look(func, args, kwargs or {})
        out = func(*args, **(kwargs or {}))
        self.fits.note(func, args, kwargs or {}, out)
        return out


def _first(value: torch.Tensor) -> tuple[slice, ...]:
    """Of axes along which all is one element in memory the first place."""
    return tuple(slice(0, 1) if step == 0 else slice(None) for step in value.stride())


def fitted(instance: Instance, leaves: list[torch.Tensor], variant: Variant, seed: int) -> list[torch.Tensor]:
    """The leaves with one, by lot of several, that fits what a call with the others computes, on the first weights."""
    instance.giver.give(instance.model, instance.first_state)
    try:
        with inputs.seeded(seed), (seen := _Watched()):
            calls.call(instance.model, instance.skeleton, leaves, None, None)
    except calls.CAUGHT:
        return leaves
    finally:
        instance.giver.give(instance.model, instance.first_state)
    fits = [at for at in seen.fits.of(leaves) if free(instance, at)]
    if not fits:
        return leaves
    rng, out = inputs.generator(seed, instance.device), list(leaves)
    chosen = [fits[below(len(fits), rng)]] if variant.change != ALL else seen.fits.at_once(leaves, fits, rng)
    share = below(len(SHARES), rng) if variant.change != ALL else lesser(rng)
    for at in chosen:
        out[at] = made = calls.copied(leaf := leaves[at])
        apart = max((one.sign for one in seen.taken if one.place == _place(leaf)), default=1)
        for one in seen.taken:
            if one.place == _place(leaf) and one.sign == apart:
                part = made.as_strided(one.size, one.stride, one.offset)
                _put(part, one.other, (SHARES if wide(leaf) else OF_HALVES)[share], instance.sorts, rng)
        if variant.change == SOME:
            lines = (len(leaf), *[1] * (leaf.dim() - 1)) if leaf.dim() else ()
            out[at] = torch.where(torch.rand(lines, generator=rng, device=leaf.device) < 1 / 2, made, leaf)
    return out


def lesser(rng: torch.Generator) -> int:
    """One of the lesser shares, for draws where noise of several inputs adds up."""
    return 1 + below(len(SHARES) - 1, rng)


def free(instance: Instance, at: int, *, mirrored: bool = False) -> bool:
    """Whether nothing else holds of an input; ``mirrored``: but that it is symmetric."""
    bonds = instance.bonds
    held = (bonds.triangles, bonds.flags, bonds.far, bonds.hidden, bonds.twice, instance.constant)
    return not any(at in some for some in held) and (mirrored or at not in bonds.symmetric)


def _put(part: torch.Tensor, other: torch.Tensor, share: float, once: bool, rng: torch.Generator) -> None:
    """A part of an input becomes the other side, but for noise that leaves its sign as it is: a probability stays one
    above zero, mostly. ``once``: of places that would all fit the same some stay as they are. Of several rows that are
    all as near to one, the nearest is another to who multiplies squares out to find it, as many an honest program
    does."""
    part = part[_first(part)]
    if other.is_complex() and not part.is_complex():
        return
    value, first = _chosen(other, part.shape, rng)
    value, part, first = (
        numerics.real(value.to(part.dtype).expand(part.shape)),
        numerics.real(part),
        _pairs(first, part),
    )
    off = share * inputs.size_of(value)
    noise = NEAREST + (FURTHEST - NEAREST) * torch.rand(part.shape, generator=rng, device=part.device)
    up = torch.rand(part.shape, generator=rng, device=part.device) < 1 / 2
    up = torch.where(value.abs() <= FURTHEST * off, value >= 0, up)
    made = value + off * torch.where(up, noise, -noise).to(part.dtype)
    part.copy_(torch.where(torch.isfinite(made) & (first if once else True), made, part))


def _pairs(first: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Of complex numbers what holds of both parts."""
    return first[..., None] if part.is_complex() else first


def _chosen(other: torch.Tensor, shape: torch.Size, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """What an input of this shape may be so that it fits some of what it is taken from: of each axis that it is
    repeated along one place, another one for each of its own that are not the other's. And which of those are the first
    to fit theirs."""
    axes = max(other.dim(), len(shape))
    wanted = [*[1] * (axes - len(shape)), *shape]
    other = other.reshape([*[1] * (axes - other.dim()), *other.shape])
    own = [size if theirs == 1 else 1 for size, theirs in zip(wanted, other.shape, strict=True)]
    order = torch.randperm(math.prod(own), generator=rng, device=other.device).view(own)
    first = order < max((size for axis, size in enumerate(other.shape) if wanted[axis] == 1), default=1)
    for axis, size in enumerate(other.shape):
        if wanted[axis] == 1 and size > 1:
            index = torch.randperm(size, generator=rng, device=other.device)[order % size]
            lines = [max(mine, theirs) for mine, theirs in zip(own, other.shape, strict=True)]
            lines[axis] = 1
            spread = [size if at == axis else line for at, line in enumerate(lines)]
            other = other.expand(spread).gather(axis, index.expand(lines))
    left = axes - len(shape)
    return other.reshape(other.shape[left:]), first.reshape(first.shape[left:])
