# SPDX-License-Identifier: Apache-2.0
"""Inputs for which a difference of two results is small, solved for: both sides are computed, so neither can be put in.

Predictions and targets that are both normalised, the embeddings of two towers, a Gram matrix less the identity, a norm
less one: ``fitted`` wants an input itself on one side, and expanded squares of these passed on all draws, off by 0.1 in
one where a model is trained. Torch's own gradients say how the inputs move a difference, and L-BFGS moves them, from
where a draw has them: least squares of that kind stay as near to the draw as they can. One input is put in place of the
other side first, where it is as large, and that is better: a normalised one is so at once. A square matrix is so beside
its diagonal, less the identity or with its transpose (``squares``), and weights come near weights, or such matrices,
where they are taken from each other: an anchor of a penalty was 1e-4 off, 2.5e-7 was right, and expanded it was 1.9e-6.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from kernelwright.judge import bonds, calls, descent, differences, fitted, health, inputs, numerics, skeletons
from kernelwright.judge.dealing import below
from kernelwright.judge.differences import Taken
from kernelwright.judge.inputs import Variant

if TYPE_CHECKING:
    from kernelwright.judge.buffers import TensorSpec
    from kernelwright.judge.instance import Instance

CHANGES = SOLVED, TOGETHER = "small differences", "small differences at once"
DRAWS, WORK, MOST = 2, 3 * 10**8, 96
"""Draws, multiply-adds of all runs in search of a small difference, and how many runs there are at the most."""
LEAST = 24
"""Runs without which nothing is looked for."""
TRIED, AT_ONCE = 2, 12
"""Differences of a call that are tried, the first by lot, and how many at the most that are made small together: of two
heads with a target each one hides what is lost of the other's square."""
SMALL, ENOUGH = 2.0**-8, 2.0**-12
"""Of the size of what is taken from each other, what a difference is at the most where it was solved, and where no more
runs are made."""
BESIDE = 8
"""Times that size what is made small with one is at the most: the diagonal of a correlation over 256 rows, of which the
deviations are those by 255, is 2^-8 below one at the nearest."""
TINY = 64
"""Times less than others elements are tiny of which no ratio is near a number."""
KEPT, LARGER = 1 / 16, 32
"""Times as large as before the sides are at the least, and inputs at the most: who makes all inputs small makes
differences so."""


def small_differences(specs: Sequence[TensorSpec], traits: Collection[str], work: int) -> list[Variant]:
    """Such draws, where a call is cheap enough to be made some dozens of times."""
    wide = any(spec.dtype in ("float32", "float64", "complex64", "complex128") for spec in specs)
    if not (fitted.DIFFERS in traits and wide) or WORK // max(work, 1) < LEAST:
        return []
    return [Variant(name=name, required=True, change=name, draws=DRAWS) for name in CHANGES]


Key = int | str
"""The number of an input, or the name of a weight."""
_FOUND: WeakKeyDictionary[Instance, dict[str, list[_Solution]]] = WeakKeyDictionary()
_WEIGHTS: WeakKeyDictionary[Instance, list[dict[str, torch.Tensor]]] = WeakKeyDictionary()


def of(instance: Instance, change: str = SOLVED) -> list[_Solution]:
    """Differences that were solved, or all of them at once; looked for once."""
    known = _FOUND.setdefault(instance, {})
    if change not in known:
        known[change] = _looked_for(
            instance, lambda: _Search(instance).solutions() if change == SOLVED else _Search(instance).together()
        )
    return known[change]


def of_weights(instance: Instance) -> list[dict[str, torch.Tensor]]:
    """First weights, by name, of which differences of weights alone are small; looked for once."""
    if instance not in _WEIGHTS:
        able = fitted.WEIGHS in instance.met["traits"] and WORK // max(instance.work, 1) >= LEAST
        able = able and not instance.contract.random
        _WEIGHTS[instance] = _looked_for(instance, lambda: _OfWeights(instance).found()) if able else []
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
        made = _mirrored(instance, index, near)
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


def _mirrored(instance: Instance, index: int, value: torch.Tensor) -> torch.Tensor | None:
    """An input that is as symmetric as in every draw; None where it is not positive definite any more."""
    if index not in instance.bonds.symmetric:
        return value
    made = (value + value.mT) / 2
    return made if index not in instance.bonds.definite or bonds.definite(made) else None


@dataclass(frozen=True, slots=True)
class _Solution:
    """Inputs that make a difference small, by their numbers, and the others."""

    leaves: dict[int, torch.Tensor]
    beside: dict[int, torch.Tensor]
    ratio: tuple[Key, float] | None = None
    """Which of them is what it divides, or is divided by, and how large it is where that is tiny."""


class _Search:
    """One draw of a task, of which differences are solved."""

    weights = False
    _ratio: tuple[Key, float] | None

    def __init__(self, instance: Instance) -> None:
        self._instance, self._leaves = instance, instance._raw(instance.seed)[0]
        self._start, self._ratio = self._moving(), None
        self._cells = max((x.numel() for x in self._start.values()), default=0)
        self._left = min(MOST, WORK // max(instance.work, 1))
        self._rng = inputs.generator(instance.seed, instance.device)

    def _moving(self) -> dict[Key, torch.Tensor]:
        """What is moved, as it is at first."""
        wide = [i for i, x in enumerate(self._leaves) if fitted.wide(x)]
        free = [i for i in wide if fitted.free(self._instance, i, mirrored=True) and numerics.finite(self._leaves[i])]
        free = [i for i in free if self._leaves[i].numel() and float(numerics.real(self._leaves[i]).min()) < 0]
        return {i: self._leaves[i].detach().clone(memory_format=torch.contiguous_format) for i in free}

    def solutions(self) -> Iterator[_Solution]:
        """Of TRIED differences those that were solved. What lies beside a diagonal is so with all else that is taken
        from it, if it can be: squares of both are often added up."""
        found, tried = self._run(self._start) if self._start else [], 0
        for at in torch.randperm(len(found), generator=self._rng, device=self._rng.device).tolist():
            if tried < TRIED and not found[at].given and self._reached(found[at].apart):
                tried += 1
                whole = found[at].whole
                beside = [
                    i
                    for i, x in enumerate(found)
                    if i != at and whole is not None and differences.within(x.side, whole)
                ]
                made = (self._solved([at, *beside], self._start) if beside else None) or self._solved([at], self._start)
                if made and (out := self._whole(made)):
                    yield out

    def together(self) -> Iterator[_Solution]:
        """All of several differences at once, with those that an input would fit, or else without."""
        found = self._run(self._start) if self._start else []
        lot = torch.randperm(len(found), generator=self._rng, device=self._rng.device)[: 2 * AT_ONCE].tolist()
        able = [at for at in lot if self._reached(found[at].apart)]
        own = [at for at in able if not found[at].given]
        for chosen in [able, own] if len(own) < len(able) else [own]:
            if own and len(chosen) > 1 and (made := self._solved(chosen[:AT_ONCE], self._start, beside=1)):
                if out := self._whole(made):
                    yield out
                return

    def _whole(self, made: Mapping[Key, torch.Tensor]) -> _Solution | None:
        """What was moved, and the rest; symmetric where it was."""
        out = {int(i): x for i, y in made.items() if (x := _mirrored(self._instance, int(i), y)) is not None}
        beside = {i: x for i, x in enumerate(self._leaves) if i not in out}
        return _Solution(out, beside, self._ratio) if len(out) == len(made) else None

    def _reached(self, apart: torch.Tensor) -> list[Key]:
        """What of that which is moved moves a difference."""
        slopes = torch.autograd.grad(
            numerics.real(apart).sum(), list(self._start.values()), allow_unused=True, retain_graph=True
        )
        return [key for key, slope in zip(self._start, slopes, strict=True) if slope is not None]

    def _run(self, moved: Mapping[Key, torch.Tensor], leaves: Sequence[torch.Tensor] | None = None) -> list[Taken]:
        """The differences of a call with some leaves, or weights, moved, of which all of them know the gradient."""
        given = [moved[i] if i in moved else calls.copied(x) for i, x in enumerate(leaves or self._leaves)]
        model, named = self._instance.model, {key: x for key, x in moved.items() if isinstance(key, str)}
        call = functools.partial(torch.func.functional_call, model, named) if named else lambda args: model(*args)
        seen = differences.Differences(self._cells, weights=self.weights)
        with inputs.seeded(self._instance.seed), torch.enable_grad(), seen:
            for x in moved.values():
                x.requires_grad_()
            call(tuple(skeletons.unflatten(self._instance.skeleton, given)))
        return seen.found

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
            loss = _loss(self._run(moved), chosen, sizes)
            slopes = torch.autograd.grad(loss, list(moved.values()), allow_unused=True)
            pairs = zip(slopes, moved.values(), strict=True)
            return float(loss.detach()), _flat([torch.zeros_like(x) if g is None else g for g, x in pairs])

        made = leaves(descent.least(error, _flat(values.values()), ENOUGH**2, self._left))
        found = self._run(made)
        last = [found[at] for at in chosen]
        sizes = [max(s, inputs.size_of(x.side)) if x.results else s for s, x in zip(sizes, first, strict=True)]
        most = [SMALL, *[beside * SMALL for _ in chosen[1:]]]
        kept = zip(last, most, sizes, strict=True)
        small = all(differences.small(x, m) and differences.size(x) >= KEPT * s for x, m, s in kept)
        large = any(inputs.size_of(x) > LARGER * inputs.size_of(self._start[key]) for key, x in made.items())
        return {key: x.detach() for key, x in made.items()} if small and not large else None

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
            for index, side in itertools.product(values.keys() - put, sides := taken.sides()):
                if tries > 0 and side.numel() == values[index].numel() and side.dtype is values[index].dtype:
                    tries -= 1
                    made = {i: x.detach().clone() for i, x in values.items()}
                    made[index] = side.detach().reshape(made[index].shape).clone()
                    if (left := float(_loss(self._run(made), chosen, sizes).detach())) < least:
                        best, least = (index, made, float(side is sides[0])), left
            if best is not None:
                values = best[1]
                put.add(best[0])
                self._ratio = (best[0], best[2]) if taken.ratio else self._ratio
        return {i: x.detach().clone() for i, x in values.items()}


class _OfWeights(_Search):
    """The same with weights moved: of differences that are the same whatever comes in."""

    weights = True

    def _moving(self) -> dict[Key, torch.Tensor]:
        trained = {name: x for name, x in self._instance.model.named_parameters() if x.requires_grad and x.numel()}
        wide = {name: x for name, x in trained.items() if fitted.wide(x)}
        return {name: x.detach().clone() for name, x in wide.items() if numerics.finite(x)}

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


def _loss(found: Sequence[Taken], chosen: Sequence[int], sizes: Sequence[float]) -> torch.Tensor:
    """Squares of some differences, beside the sizes of their sides."""
    squares = [(numerics.real(found[at].apart) / size).square().mean() for at, size in zip(chosen, sizes, strict=True)]
    return functools.reduce(torch.add, squares)


def _flat(values: Iterable[torch.Tensor]) -> torch.Tensor:
    """All of them in one."""
    return torch.cat([numerics.real(x.detach()).flatten() for x in values])
