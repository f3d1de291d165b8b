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
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.judge import bonds, calls, fitted, health, inputs, numerics, skeletons, squares
from kernelwright.judge.dealing import below
from kernelwright.judge.inputs import Variant

if TYPE_CHECKING:
    from kernelwright.judge.buffers import TensorSpec
    from kernelwright.judge.instance import Instance

SOLVED = "small differences"
NAMES = {
    "sub", "sub_", "subtract", "__sub__", "__isub__", "rsub", "__rsub__", "mse_loss", "l1_loss", "smooth_l1_loss",
    "huber_loss", "pairwise_distance", "dist",
}  # fmt: skip
"""Functions that take one argument from another."""
DRAWS, WORK, MOST = 2, 3 * 10**8, 96
"""Draws, multiply-adds of all runs in search of a small difference, and how many runs there are at the most."""
LEAST, CELLS = 24, 1 << 20
"""Runs without which nothing is looked for, and elements of a difference."""
WINDOW, FALLS = 16, 3.0
"""After so many runs a difference is by so much smaller than it was, or is given up: that of two towers takes 64 runs,
and falls by four and more in any 16 of them."""
TRIED = 2
"""Differences of a call that are tried, the first by lot."""
SMALL, ENOUGH = 2.0**-8, 2.0**-12
"""Of the size of what is taken from each other, what a difference is at the most where it was solved, and where no more
runs are made."""
BESIDE = 8
"""Times that size what is made small with one is at the most: the diagonal of a correlation over 256 rows, of which the
deviations are those by 255, is 2^-8 below one at the nearest."""
KEPT, LARGER = 1 / 16, 32
"""Times as large as before the sides are at the least, and inputs at the most: who makes all inputs small makes
differences so."""
REMEMBERED, SHORTER = 12, 1 / 4
"""Steps that L-BFGS remembers, and by how much one is shorter that went too far."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A difference, and its sides, the first of them a result."""

    apart: torch.Tensor
    side: torch.Tensor
    other: Any
    whole: torch.Tensor | None = None
    """The matrix of which this is what lies beside the diagonal."""

    @property
    def results(self) -> bool:
        """Whether both sides are."""
        return isinstance(self.other, torch.Tensor) and self.other.requires_grad


class _Differences(TorchFunctionMode):
    """Remembers differences of results, with their gradients; ``weights``: of weights too."""

    def __init__(self, cells: int, *, weights: bool) -> None:
        super().__init__()
        self.found: list[_Taken] = []
        self._cells, self._weights = cells, weights

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every function of a call."""
        name, more = getattr(func, "__name__", ""), kwargs or {}
        if (whole := squares.parted(name, args, more)) is not None:
            apart, diagonal = squares.beside_diagonal(whole)
            self._keep(_Taken(apart, diagonal, diagonal, whole=whole))
        elif name in NAMES | squares.SUMS and not kwargs_of(more) and len(args) > 1:
            if squares.transposed(*args[:2]):
                one, other = args[:2]
                self._keep(_Taken(one + other if name in squares.SUMS else one - other, one, other))
            elif name in NAMES:
                self._note(*(args[:2] if isinstance(args[0], torch.Tensor) else args[1::-1]))
            elif isinstance(args[1], int | float) and args[1] < 0:
                self._note(args[0], -args[1])
        return func(*args, **more)

    def _note(self, one: torch.Tensor, other: Any) -> None:
        if isinstance(other, torch.Tensor) and not _result(one) and (_result(other) or not one.requires_grad):
            one, other = other, one
        if self._fits(one, other):
            self._keep(_Taken(one - other, one, other))

    def _fits(self, one: torch.Tensor, other: Any) -> bool:
        if not (one.requires_grad and one.is_floating_point() and one.numel() > 1):
            return False
        if not isinstance(other, torch.Tensor):
            fewer = one.numel() * fitted.FEWER <= self._cells
            return bool(other) and fewer and (_result(one) or squares.diagonal_of(one, one._base))
        if other.requires_grad:
            return other.shape == one.shape and (self._weights or (_result(one) and _result(other)))
        return _result(one) or (other.shape == one.shape and (self._weights or squares.identity(other)))

    def _keep(self, taken: _Taken) -> None:
        if len(self.found) < MOST and taken.apart.requires_grad and taken.apart.numel() <= CELLS:
            self.found.append(taken)


def kwargs_of(kwargs: Mapping[str, Any] | None) -> bool:
    """Whether a factor is said."""
    return "alpha" in (kwargs or {})


def _result(value: torch.Tensor) -> bool:
    """Whether it is computed of inputs: those themselves, and parts of them, are put in by ``fitted``."""
    base = value if value._base is None else value._base
    return value.requires_grad and not base.is_leaf and value.is_floating_point() and value.numel() > 1


def small_differences(specs: Sequence[TensorSpec], traits: Collection[str], work: int) -> list[Variant]:
    """Such draws, where a call is cheap enough to be made some dozens of times."""
    wide = any(spec.dtype in ("float32", "float64") for spec in specs)
    if not (fitted.DIFFERS in traits and wide) or WORK // max(work, 1) < LEAST:
        return []
    return [Variant(name=SOLVED, required=True, change=SOLVED, draws=DRAWS)]


Key = int | str
"""The number of an input, or the name of a weight."""
_FOUND: WeakKeyDictionary[Instance, list[_Solution]] = WeakKeyDictionary()
_WEIGHTS: WeakKeyDictionary[Instance, list[dict[str, torch.Tensor]]] = WeakKeyDictionary()


def of(instance: Instance) -> list[_Solution]:
    """Differences that were solved; looked for once."""
    if instance not in _FOUND:
        _FOUND[instance] = _looked_for(instance, lambda: _Search(instance).solutions())
    return _FOUND[instance]


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


def solved(instance: Instance, leaves: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Leaves of which one difference, by lot of several, is small but for a little noise of theirs; those that take no
    part in it are another draw's."""
    if not (found := of(instance)):
        return leaves
    rng, out = inputs.generator(seed, instance.device), list(leaves)
    one, share = found[below(len(found), rng)], fitted.SHARES[below(len(fitted.SHARES), rng)]
    for index, value in one.leaves.items():
        out[index] = calls.copied(leaves[index])
        made = _mirrored(instance, index, noisy(value, share, rng))
        out[index].copy_(value if made is None else made)
    for index, value in one.beside.items():
        out[index] = value.clone()
    return out


def noisy(value: torch.Tensor, share: float, rng: torch.Generator) -> torch.Tensor:
    """A little off, by a share of its size."""
    noise = torch.randn(value.shape, generator=rng, device=value.device, dtype=value.dtype)
    return value + share * inputs.size_of(value) * noise


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


class _Search:
    """One draw of a task, of which differences are solved."""

    weights = False

    def __init__(self, instance: Instance) -> None:
        self._instance, self._leaves = instance, instance._raw(instance.seed)[0]
        self._start = self._moving()
        self._cells = max((x.numel() for x in self._start.values()), default=0)
        self._left = min(MOST, WORK // max(instance.work, 1))
        self._rng = inputs.generator(instance.seed, instance.device)

    def _moving(self) -> dict[Key, torch.Tensor]:
        """What is moved, as it is at first."""
        wide = [i for i, x in enumerate(self._leaves) if x.is_floating_point() and x.itemsize >= fitted.WIDE]
        free = [i for i in wide if fitted.free(self._instance, i, mirrored=True) and numerics.finite(self._leaves[i])]
        free = [i for i in free if self._leaves[i].numel() and float(self._leaves[i].min()) < 0]
        return {i: self._leaves[i].detach().clone(memory_format=torch.contiguous_format) for i in free}

    def solutions(self) -> Iterator[_Solution]:
        """Of TRIED differences those that were solved. What lies beside a diagonal is so with all else that is taken
        from it, if it can be: squares of both are often added up."""
        found, tried = self._run(self._start) if self._start else [], 0
        for at in torch.randperm(len(found), generator=self._rng, device=self._rng.device).tolist():
            if tried < TRIED and self._reached(found[at].apart):
                tried += 1
                whole = found[at].whole
                beside = [i for i, x in enumerate(found) if i != at and whole is not None and _within(x.side, whole)]
                made = (self._solved([at, *beside], self._start) if beside else None) or self._solved([at], self._start)
                if made:
                    out = {
                        int(i): x for i, y in made.items() if (x := _mirrored(self._instance, int(i), y)) is not None
                    }
                    if len(out) == len(made):
                        yield _Solution(out, {i: x for i, x in enumerate(self._leaves) if i not in out})

    def _reached(self, apart: torch.Tensor) -> list[Key]:
        """What of that which is moved moves a difference."""
        slopes = torch.autograd.grad(apart.sum(), list(self._start.values()), allow_unused=True, retain_graph=True)
        return [key for key, slope in zip(self._start, slopes, strict=True) if slope is not None]

    def _run(self, moved: Mapping[Key, torch.Tensor], leaves: Sequence[torch.Tensor] | None = None) -> list[_Taken]:
        """The differences of a call with some leaves, or weights, moved, of which all of them know the gradient."""
        given = [moved[i] if i in moved else calls.copied(x) for i, x in enumerate(leaves or self._leaves)]
        model, named = self._instance.model, {key: x for key, x in moved.items() if isinstance(key, str)}
        call = functools.partial(torch.func.functional_call, model, named) if named else lambda args: model(*args)
        seen = _Differences(self._cells, weights=self.weights)
        with inputs.seeded(self._instance.seed), torch.enable_grad(), seen:
            for x in moved.values():
                x.requires_grad_()
            call(tuple(skeletons.unflatten(self._instance.skeleton, given)))
        return seen.found

    def _solved(self, chosen: Sequence[int], start: Mapping[Key, torch.Tensor]) -> dict[Key, torch.Tensor] | None:
        """The leaves for which these differences are small, which they were not."""
        values = {key: x.detach().clone() for key, x in start.items()}
        found = self._run(values)
        first = [found[at] for at in chosen]
        sizes = [_size(one) for one in first]
        if not self.weights and all(map(_small, first)):
            return None
        values = self._put(chosen[0], values, first[0]) if len(chosen) == 1 and not self.weights else values
        shapes = {key: x.shape for key, x in values.items()}

        def leaves(flat: torch.Tensor) -> dict[Key, torch.Tensor]:
            parts = flat.split([math.prod(shape) for shape in shapes.values()])
            return {key: part.view(shape).clone() for (key, shape), part in zip(shapes.items(), parts, strict=True)}

        def error(flat: torch.Tensor) -> tuple[float, torch.Tensor]:
            moved = leaves(flat)
            found = self._run(moved)
            losses = [(found[at].apart / size).square().mean() for at, size in zip(chosen, sizes, strict=True)]
            loss = functools.reduce(torch.add, losses)
            slopes = torch.autograd.grad(loss, list(moved.values()), allow_unused=True)
            pairs = zip(slopes, moved.values(), strict=True)
            return float(loss.detach()), torch.cat(
                [(torch.zeros_like(x) if g is None else g).flatten() for g, x in pairs]
            )

        flat = torch.cat([x.detach().flatten() for x in values.values()])
        made = leaves(_least(error, flat, ENOUGH**2, self._left))
        found = self._run(made)
        last = [found[at] for at in chosen]
        sizes = [max(s, inputs.size_of(x.side)) if x.results else s for s, x in zip(sizes, first, strict=True)]
        most = [SMALL, *[BESIDE * SMALL for _ in chosen[1:]]]
        small = all(_small(x, m) and _size(x) >= KEPT * s for x, m, s in zip(last, most, sizes, strict=True))
        large = any(inputs.size_of(x) > LARGER * inputs.size_of(self._start[key]) for key, x in made.items())
        return {key: x.detach() for key, x in made.items()} if small and not large else None

    def _put(self, at: int, values: dict[Key, torch.Tensor], first: _Taken) -> dict[Key, torch.Tensor]:
        """One input in place of a side, where the difference is so a half of what it is, or less."""
        best, least = values, inputs.size_of(first.apart) / 2
        for index, leaf in values.items() if len(values) > 1 and first.results else ():
            for side in (first.side, first.other):
                if side.numel() == leaf.numel() and side.dtype is leaf.dtype:
                    made = {i: x.detach().clone() for i, x in values.items()}
                    made[index] = side.detach().reshape(leaf.shape).clone()
                    if (left := inputs.size_of(self._run(made)[at].apart)) < least:
                        best, least = made, left
        return best


class _OfWeights(_Search):
    """The same with weights moved: of differences that are the same whatever comes in."""

    weights = True

    def _moving(self) -> dict[Key, torch.Tensor]:
        trained = {name: x for name, x in self._instance.model.named_parameters() if x.requires_grad and x.numel()}
        wide = {name: x for name, x in trained.items() if x.is_floating_point() and x.itemsize >= fitted.WIDE}
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


def _within(part: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether it lies in the same memory."""
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def _small(taken: _Taken, most: float = SMALL) -> bool:
    """Whether a difference is small beside its sides, or is none."""
    return not bool(taken.apart.any()) or inputs.size_of(taken.apart) <= most * _size(taken)


def _size(taken: _Taken) -> float:
    """Of a side; of a constant, where one is."""
    if isinstance(taken.other, torch.Tensor):
        return inputs.size_of(taken.side if taken.results else taken.other)
    return abs(float(taken.other))


Error = Callable[[torch.Tensor], tuple[float, torch.Tensor]]


def _least(error: Error, flat: torch.Tensor, enough: float, runs: int) -> torch.Tensor:
    """Where an error, told with its gradient, is small: L-BFGS, a step shorter where it went too far."""
    loss, slope = error(flat)
    steps: list[tuple[torch.Tensor, torch.Tensor, float]] = []
    way, length = -slope, min(1.0, loss / max(float(slope @ slope), 1e-300))
    mark = math.inf
    for run in range(runs):
        if run % WINDOW == 0:
            slow, mark = loss * FALLS**2 > mark, loss
        if slow or loss <= enough or not math.isfinite(loss):
            break
        there = flat + length * way
        other, turned = error(there)
        if not other < loss:
            if length < SHORTER**8:
                break
            length *= SHORTER
            continue
        moved, bent = there - flat, turned - slope
        if (curve := float(moved @ bent)) > 0:
            steps = [*steps[1 - REMEMBERED :], (moved, bent, curve)]
        flat, loss, slope, length = there, other, turned, 1.0
        way = _way(slope, steps)
    return flat


def _way(slope: torch.Tensor, steps: Sequence[tuple[torch.Tensor, torch.Tensor, float]]) -> torch.Tensor:
    """Down a slope, as the last steps say."""
    way, shares = -slope, []
    for moved, bent, curve in reversed(steps):
        shares.append(float(moved @ way) / curve)
        way = way - shares[-1] * bent
    if steps:
        way = way * (steps[-1][2] / float(steps[-1][1] @ steps[-1][1]))
    for (moved, bent, curve), share in zip(steps, reversed(shares), strict=True):
        way = way + (share - float(bent @ way) / curve) * moved
    return way
