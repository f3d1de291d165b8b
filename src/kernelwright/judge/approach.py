# SPDX-License-Identifier: Apache-2.0
"""The search for inputs, and weights, of which differences that a call takes are small (``solved``).

Torch's own gradients say how the inputs move a difference, and L-BFGS moves them, from where a draw has them: least
squares of that kind stay as near to the draw as they can. One input is put in place of the other side first, where it
is as large, and that is better: a normalised one is so at once. Where inputs alone cannot, weights are moved with them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import (
    calls,
    descent,
    differences,
    fitted,
    inputs,
    numerics,
    ranges,
    skeletons,
)
from kernelwright.judge.differences import Taken

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

WORK, MOST = 3 * 10**8, 96
"""Multiply-adds of all runs in search of a small difference, and how many runs there are at the most."""
LEAST, DEAREST = 24, 2**27
"""Runs that there are at the least, and multiply-adds of a call beyond which nothing is looked for."""
TRIED, AT_ONCE = 2, 12
"""Differences of a call that are tried, the first by lot, and how many at the most that are made small together: of two
heads with a target each one hides what is lost of the other's square."""
SMALL, ENOUGH = 2.0**-8, 2.0**-12
"""Of the size of what is taken from each other, what a difference is at the most where it was solved, and where no more
runs are made."""
BESIDE = 8
"""Times that size what is made small with one is at the most: the diagonal of a correlation over 256 rows, of which the
deviations are those by 255, is 2^-8 below one at the nearest."""
KEPT, LARGER = 1 / 16, 32
"""Times as large as before the sides are at the least, and inputs at the most: who makes all inputs small makes
differences so."""


Key = int | str
"""The number of an input, or the name of a weight."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Inputs that make a difference small, by their numbers, and the others."""

    leaves: dict[int, torch.Tensor]
    beside: dict[int, torch.Tensor]
    ratio: tuple[Key, float] | None = None
    """Which of them is what it divides, or is divided by, and how large it is where that is tiny."""
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    """Those that were moved with them."""
    within: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Between which numbers the elements of an input stay."""


class Search:
    """One draw of a task, of which differences are solved; ``ranged``: what has no negative elements is moved too."""

    weights = False
    small, enough = SMALL, ENOUGH
    _ratio: tuple[Key, float] | None

    def __init__(self, instance: Instance, *, ranged: bool = False) -> None:
        self._instance, self._leaves = instance, instance._raw(instance.seed)[0]
        self._ranged, self._within = ranged, ranges.of(self._leaves) if ranged else {}
        self._start, self._ratio = self._moving(), None
        self._cells = max((x.numel() for x in self._start.values()), default=0)
        self._left = min(MOST, WORK // max(instance.work, 1))
        self._tries = TRIED if self._left >= LEAST else 1
        if self._left < LEAST:  # of a dear call few are made, and a difference is less small
            self._left, self.enough = LEAST, SMALL / 2
        self._rng = inputs.generator(instance.seed, instance.device)

    def _moving(self) -> dict[Key, torch.Tensor]:
        """What is moved, as it is at first; of what has no negative elements, where it lies in its range."""
        free = [i for i in range(len(self._leaves)) if fitted.free(self._instance, i, mirrored=True)]
        able = [i for i in free if ranges.able(self._leaves[i]) and numerics.finite(self._leaves[i])]
        able = [i for i in able if i in self._within or float(numerics.real(self._leaves[i]).min()) < 0]
        return {i: self._placed(i, self._leaves[i].detach().clone(memory_format=torch.contiguous_format)) for i in able}

    def _placed(self, key: Key, value: torch.Tensor) -> torch.Tensor:
        """What an input is moved by: its own elements, or where they lie in its range, in single precision at least."""
        value = value if fitted.wide(value) else value.float()
        return ranges.placed(value, self._within[int(key)]) if key in self._within else value

    def _value(self, key: Key, moved: torch.Tensor) -> torch.Tensor:
        """The same back."""
        if isinstance(key, str):
            return moved
        made = ranges.value(moved, self._within[key]) if key in self._within else moved
        return made.to(self._leaves[key].dtype)

    def _first(self) -> list[Taken]:
        """The differences of the draw; none where nothing moves that another search does not move."""
        able = self._start if not self._ranged or self._within.keys() & self._start.keys() else {}
        return self._run(able) if able else []

    def solutions(self) -> Iterator[Solution]:
        """Of TRIED differences those that were solved. What lies beside a diagonal is so with all else that is taken
        from it, if it can be: squares of both are often added up."""
        found, tried = self._first(), 0
        for at in torch.randperm(len(found), generator=self._rng, device=self._rng.device).tolist():
            if tried < self._tries and not (found[at].given or found[at].instead) and self._reached(found[at].apart):
                tried += 1
                whole = found[at].whole
                beside = [
                    i
                    for i, x in enumerate(found)
                    if i != at and whole is not None and differences.within(x.side, whole)
                ]
                made = (self._solved([at, *beside], self._start) if beside else None) or self._solved([at], self._start)
                if not made and at + 1 < len(found) and found[at + 1].instead:
                    made = self._solved([at + 1], self._start)
                if made and (out := self._whole(made)):
                    yield out

    def together(self) -> Iterator[Solution]:
        """All of several differences at once, with those that an input would fit, or else without."""
        found = self._first()
        lot = torch.randperm(len(found), generator=self._rng, device=self._rng.device)[: 2 * AT_ONCE].tolist()
        able = [at for at in lot if self._reached(found[at].apart)]
        able = [at for at in able if not (found[at].instead or found[at].further)]
        own = [at for at in able if not found[at].given]
        for chosen in [able, own] if len(own) < len(able) else [own]:
            if own and len(chosen) > 1 and (made := self._solved(chosen[:AT_ONCE], self._start, beside=1)):
                if out := self._whole(made):
                    yield out
                return

    def _whole(self, made: Mapping[Key, torch.Tensor]) -> Solution | None:
        """What was moved, and the rest; symmetric where it was."""
        values = {i: self._value(i, y) for i, y in made.items() if isinstance(i, int)}
        out = {i: x for i, y in values.items() if (x := mirrored(self._instance, i, y)) is not None}
        beside = {i: x for i, x in enumerate(self._leaves) if i not in out}
        within = {i: ends for i, ends in self._within.items() if i in out}
        moved = {key: x for key, x in made.items() if isinstance(key, str)}
        return Solution(out, beside, self._ratio, moved, within) if len(out) == len(values) else None

    def _reached(self, apart: torch.Tensor) -> list[Key]:
        """What of that which is moved moves a difference."""
        slopes = torch.autograd.grad(
            numerics.real(apart).sum(), list(self._start.values()), allow_unused=True, retain_graph=True
        )
        return [key for key, slope in zip(self._start, slopes, strict=True) if slope is not None]

    def _run(self, moved: Mapping[Key, torch.Tensor], leaves: Sequence[torch.Tensor] | None = None) -> list[Taken]:
        """The differences of a call with some leaves, or weights, moved, of which all of them know the gradient."""
        for x in moved.values():
            x.requires_grad_()
        with torch.enable_grad():
            taken = enumerate(leaves or self._leaves)
            given = [self._value(i, moved[i]) if i in moved else calls.copied(x) for i, x in taken]
        model, named = self._instance.model, {key: x for key, x in moved.items() if isinstance(key, str)}
        call = functools.partial(torch.func.functional_call, model, named) if named else lambda args: model(*args)
        state = [*named.values(), *model.parameters(), *model.buffers()]
        own = [x for key, x in moved.items() if isinstance(key, int)]
        seen = differences.Differences(self._cells, weights=self.weights, given=given, moved=own, state=state)
        with inputs.seeded(self._instance.seed), torch.enable_grad(), _unscripted(self._instance), seen:
            call(tuple(skeletons.unflatten(self._instance.skeleton, given)))
        for buffer in model.buffers():  # one that was written to knows nothing of this call
            if buffer.grad_fn is not None:
                buffer.detach_()
        return seen.found or seen.sums

    def _solved(
        self, chosen: Sequence[int], start: Mapping[Key, torch.Tensor], *, beside: float = BESIDE
    ) -> dict[Key, torch.Tensor] | None:
        """The leaves for which these differences are small, which they were not; those but the first ``beside`` times
        that at the most."""
        self._ratio = None
        values = {key: x.detach().clone() for key, x in start.items()}
        found = self._run(values)
        first = [found[at] for at in chosen]
        sizes = [differences.size(one) for one in first]
        if not self.weights and all(differences.small(one, SMALL) for one in first):
            return None
        if not self.weights and (len(chosen) == 1 or beside == 1):
            values = self._put(chosen, values, first, sizes)
        shapes = {key: numerics.real(x).shape for key, x in values.items()}

        def leaves(flat: torch.Tensor) -> dict[Key, torch.Tensor]:
            parts = flat.split([math.prod(shape) for shape in shapes.values()])
            made = {key: part.view(shape).clone() for (key, shape), part in zip(shapes.items(), parts, strict=True)}
            return {key: torch.view_as_complex(x) if values[key].is_complex() else x for key, x in made.items()}

        def error(flat: torch.Tensor) -> tuple[float, torch.Tensor]:
            moved = leaves(flat)
            loss = self._loss(self._run(moved), chosen, sizes)
            slopes = torch.autograd.grad(loss, list(moved.values()), allow_unused=True)
            pairs = zip(slopes, moved.values(), strict=True)
            return float(loss.detach()), _flat([torch.zeros_like(x) if g is None else g for g, x in pairs])

        kinds = [sum(math.prod(s) for key, s in shapes.items() if isinstance(key, kind)) for kind in (int, str)]
        groups, asked = [count for count in kinds if count], {"small": self.small**2, "enough": self.enough**2}
        made = leaves(descent.least(error, _flat(values.values()), self._left, **asked, groups=groups))
        found = self._run(made)
        last = [found[at] for at in chosen]
        sizes = [max(s, inputs.size_of(x.side)) if x.results else s for s, x in zip(sizes, first, strict=True)]
        most = [self.small, *[beside * self.small for _ in chosen[1:]]]
        kept = zip(last, most, sizes, strict=True)
        small = all(differences.small(x, m) and differences.size(x) >= KEPT * s for x, m, s in kept)
        large = any(self._size(key, x) > LARGER * self._size(key, self._start[key]) for key, x in made.items())
        return {key: x.detach() for key, x in made.items()} if small and not large else None

    def _loss(self, found: Sequence[Taken], chosen: Sequence[int], sizes: Sequence[float]) -> torch.Tensor:
        """What is to be small."""
        return _loss(found, chosen, sizes)

    def _size(self, key: Key, moved: torch.Tensor) -> float:
        return inputs.size_of(self._value(key, moved.detach()))

    def _put(
        self, chosen: Sequence[int], values: dict[Key, torch.Tensor], first: Sequence[Taken], sizes: Sequence[float]
    ) -> dict[Key, torch.Tensor]:
        """One input for each in place of a side, where the difference is so a half of what it is, or less, and the
        others are no larger for it."""
        put, tries = set[Key](), self._left
        able = [(one, size) for one, size in zip(first, sizes, strict=True) if len(values) > 1 and one.sides()]
        for taken, size in able:
            best, whole = None, float(_loss(self._run(values), chosen, sizes).detach())
            least = whole - 3 / 4 * min((inputs.size_of(taken.apart) / size) ** 2, whole)
            known = [key for key in values if isinstance(key, int) and key not in put]
            for index, side in itertools.product(known, sides := taken.sides()):
                if tries > 0 and side.numel() == values[index].numel() and side.dtype is values[index].dtype:
                    tries -= 1
                    made = {i: x.detach().clone() for i, x in values.items()}
                    made[index] = self._placed(index, side.detach().reshape(made[index].shape).clone())
                    if (left := float(_loss(self._run(made), chosen, sizes).detach())) < least:
                        best, least = (index, made, float(side is sides[0])), left
            if best is not None:
                values = best[1]
                put.add(best[0])
                self._ratio = (best[0], best[2]) if taken.ratio else self._ratio
        return {i: x.detach().clone() for i, x in values.items()}


@contextlib.contextmanager
def _unscripted(instance: Instance) -> Iterator[None]:
    """Functions of the reference that are scripted are plain inside, and so are modules: no mode sees what the others
    run. Of a module it is the ``forward`` of the class that it was made of."""
    names = vars(instance.reference.module)
    parts = [part for part in instance.model.modules() if isinstance(part, torch.jit.ScriptModule)]
    kinds = {part: getattr(getattr(part, "_concrete_type", None), "py_class", None) for part in parts}
    plain = {part: kind.forward for part, kind in kinds.items() if isinstance(kind, type) and hasattr(kind, "forward")}
    scripted = {name: value for name, value in names.items() if isinstance(value, torch.jit.ScriptFunction)}
    names |= {name: getattr(value, "_torchdynamo_inline", value) for name, value in scripted.items()}
    held = {part: {"forward": part.forward} for part in plain}
    for part, forward in plain.items():
        vars(part)["forward"] = types.MethodType(forward, part)
    try:
        yield
    finally:
        names |= scripted
        for part, before in held.items():
            vars(part).update(before)


class Trained(Search):
    """The same with inputs and weights moved together, as where a model was trained on what comes in: two towers into
    more numbers than both have meet nowhere else, and an autoencoder gives nothing back that it was not trained on."""

    small, enough = 4 * SMALL, 2 * SMALL

    def _moving(self) -> dict[Key, torch.Tensor]:
        self._ranged = False
        return super()._moving() | _trainable(self._instance)

    def _loss(self, found: Sequence[Taken], chosen: Sequence[int], sizes: Sequence[float]) -> torch.Tensor:
        """And a price of sides that are less than a half of what they were: nothing is gained where all are small."""
        sizes_of = [(x, size) for at, size in zip(chosen, sizes, strict=True) for x in found[at].tensors()]
        left = [(numerics.real(x) / size).square().mean() for x, size in sizes_of]
        price = [4 * (1 / 4 - share).clamp(min=0).square() for share in left]
        return functools.reduce(torch.add, price, _loss(found, chosen, sizes))


class OfWeights(Search):
    """The same with weights moved: of differences that are the same whatever comes in."""

    weights = True

    def _moving(self) -> dict[Key, torch.Tensor]:
        return _trainable(self._instance)

    def found(self) -> Iterator[dict[str, torch.Tensor]]:
        """All of them at once, as a penalty of all layers has them, or else TRIED that were solved."""
        found = self._run(self._start) if self._start else []
        other = self._run(self._start, self._instance._raw(self._instance.seed + 1)[0]) if found else []
        pairs = enumerate(zip(found, other, strict=False)) if len(found) == len(other) else ()
        able = {at: keys for at, (a, b) in pairs if torch.equal(a.apart, b.apart) and (keys := self._reached(a.apart))}
        some = torch.randperm(len(able), generator=self._rng, device=self._rng.device)[:TRIED].tolist()
        groups = [[at] for at in (list(able)[one] for one in some)]
        for chosen in [list(able), *groups] if len(able) > 1 else groups:
            moved = {key for at in chosen for key in able[at]}
            if made := self._solved(chosen, {key: x for key, x in self._start.items() if key in moved}):
                yield {str(key): x for key, x in made.items()}
                if len(chosen) == len(able):
                    return


def _trainable(instance: Instance) -> dict[Key, torch.Tensor]:
    """Weights that training moves, by name."""
    able = {name: x for name, x in instance.model.named_parameters() if x.requires_grad and x.numel()}
    return {name: x.detach().clone() for name, x in able.items() if fitted.wide(x) and numerics.finite(x)}


def _loss(found: Sequence[Taken], chosen: Sequence[int], sizes: Sequence[float]) -> torch.Tensor:
    """Squares of some differences, beside the sizes of their sides."""
    squares = [(numerics.real(found[at].apart) / size).square().mean() for at, size in zip(chosen, sizes, strict=True)]
    return functools.reduce(torch.add, squares)


def _flat(values: Iterable[torch.Tensor]) -> torch.Tensor:
    """All of them in one."""
    return torch.cat([numerics.real(x.detach()).flatten() for x in values])


def mirrored(instance: Instance, index: int, value: torch.Tensor) -> torch.Tensor | None:
    """An input that is as symmetric as in every draw; None where it is not as definite any more."""
    if index not in instance.bonds.symmetric:
        return value
    made = (value + value.mH) / 2
    return made if instance.bonds.sound(index, made) else None
