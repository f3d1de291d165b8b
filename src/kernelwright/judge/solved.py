# SPDX-License-Identifier: Apache-2.0
"""Inputs for which a difference of two results is small, solved for: both sides are computed, so neither can be put in.

Predictions and targets that are both normalised, the embeddings of two towers, a Gram matrix less the identity, a norm
less one: ``fitted`` wants an input itself on one side, and expanded squares of these passed on all draws, off by 0.1 in
one where a model is trained. Torch's own gradients say how the inputs move a difference, and L-BFGS moves them, from
where a draw has them: least squares of that kind stay as near to the draw as they can. One input is put in place of the
other side first, where it is as large, and that is better: a normalised one is so at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.judge import calls, fitted, health, inputs, numerics, skeletons
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

    @property
    def results(self) -> bool:
        """Whether both sides are."""
        return isinstance(self.other, torch.Tensor) and self.other.requires_grad


class _Differences(TorchFunctionMode):
    """Remembers differences of results, with their gradients."""

    def __init__(self, cells: int) -> None:
        super().__init__()
        self.found: list[_Taken] = []
        self._cells = cells

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every function of a call."""
        if getattr(func, "__name__", "") in NAMES and not kwargs_of(kwargs) and len(args) > 1:
            self._note(*(args[:2] if isinstance(args[0], torch.Tensor) else args[1::-1]))
        return func(*args, **(kwargs or {}))

    def _note(self, one: torch.Tensor, other: Any) -> None:
        if isinstance(other, torch.Tensor) and not _result(one):
            one, other = other, one
        if not _result(one) or len(self.found) >= MOST:
            return
        if not isinstance(other, torch.Tensor):
            if not (other and one.numel() * fitted.FEWER <= self._cells):
                return
        elif other.requires_grad and not (_result(other) and other.shape == one.shape):
            return
        if (apart := one - other).numel() <= CELLS:
            self.found.append(_Taken(apart, one, other))


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


_FOUND: WeakKeyDictionary[Instance, list[_Solution]] = WeakKeyDictionary()


def of(instance: Instance) -> list[_Solution]:
    """Differences that were solved; looked for once."""
    if instance not in _FOUND:
        instance.giver.give(instance.model, instance.first_state)
        try:
            _FOUND[instance] = list(_Search(instance).solutions())
        except calls.CAUGHT as error:
            health.pass_on(error)
            _FOUND[instance] = []
        finally:
            instance.giver.give(instance.model, instance.first_state)
    return _FOUND[instance]


def solved(instance: Instance, leaves: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Leaves of which one difference, by lot of several, is small but for a little noise of theirs; those that take no
    part in it are another draw's."""
    if not (found := of(instance)):
        return leaves
    rng, out = inputs.generator(seed, instance.device), list(leaves)
    one, share = found[below(len(found), rng)], fitted.SHARES[below(len(fitted.SHARES), rng)]
    for index, value in one.leaves.items():
        noise = torch.randn(value.shape, generator=rng, device=value.device, dtype=value.dtype)
        out[index] = calls.copied(leaves[index])
        out[index].copy_(value + share * inputs.size_of(value) * noise)
    for index, value in one.beside.items():
        out[index] = value.clone()
    return out


@dataclass(frozen=True, slots=True)
class _Solution:
    """Inputs that make a difference small, by their numbers, and the others."""

    leaves: dict[int, torch.Tensor]
    beside: dict[int, torch.Tensor]


class _Search:
    """One draw of a task, of which differences are solved."""

    def __init__(self, instance: Instance) -> None:
        self._instance, self._leaves = instance, instance._raw(instance.seed)[0]
        wide = [i for i, x in enumerate(self._leaves) if x.is_floating_point() and x.itemsize >= fitted.WIDE]
        self._free = [i for i in wide if fitted.free(instance, i) and numerics.finite(self._leaves[i])]
        self._free = [i for i in self._free if self._leaves[i].numel() and float(self._leaves[i].min()) < 0]
        self._cells = max((self._leaves[i].numel() for i in self._free), default=0)
        self._left = min(MOST, WORK // max(instance.work, 1))

    def solutions(self) -> Iterator[_Solution]:
        """Of TRIED differences those that were solved."""
        start = {i: self._leaves[i].detach().clone(memory_format=torch.contiguous_format) for i in self._free}
        count = len(self._run(start)) if start else 0
        rng = inputs.generator(self._instance.seed, self._instance.device)
        for at in torch.randperm(count, generator=rng, device=rng.device)[:TRIED].tolist():
            if found := self._solved(at, dict(start)):
                yield _Solution(found, {i: x for i, x in enumerate(self._leaves) if i not in found})

    def _run(self, moved: Mapping[int, torch.Tensor]) -> list[_Taken]:
        """The differences of a call with some leaves moved, of which all of them know the gradient."""
        given = [moved[i] if i in moved else calls.copied(leaf) for i, leaf in enumerate(self._leaves)]
        with inputs.seeded(self._instance.seed), torch.enable_grad(), _Differences(self._cells) as seen:
            for x in moved.values():
                x.requires_grad_()
            self._instance.model(*skeletons.unflatten(self._instance.skeleton, given))
        return seen.found

    def _solved(self, at: int, values: dict[int, torch.Tensor]) -> dict[int, torch.Tensor] | None:
        """The leaves for which it is small, which it was not."""
        first = self._run(values)[at]
        size = _size(first)
        if inputs.size_of(first.apart) <= SMALL * size:
            return None
        values = self._put(at, values, first)
        shapes = {i: x.shape for i, x in values.items()}

        def leaves(flat: torch.Tensor) -> dict[int, torch.Tensor]:
            parts = flat.split([math.prod(shape) for shape in shapes.values()])
            return {i: part.view(shape).clone() for (i, shape), part in zip(shapes.items(), parts, strict=True)}

        def error(flat: torch.Tensor) -> tuple[float, torch.Tensor]:
            moved = leaves(flat)
            loss = (self._run(moved)[at].apart / size).square().mean()
            slopes = torch.autograd.grad(loss, list(moved.values()), allow_unused=True)
            pairs = zip(slopes, moved.values(), strict=True)
            return float(loss.detach()), torch.cat(
                [(torch.zeros_like(x) if g is None else g).flatten() for g, x in pairs]
            )

        flat = torch.cat([x.detach().flatten() for x in values.values()])
        made = leaves(_least(error, flat, ENOUGH**2, self._left))
        found, size = self._run(made)[at], max(size, inputs.size_of(first.side)) if first.results else size
        small = inputs.size_of(found.apart) <= SMALL * _size(found) and _size(found) >= KEPT * size
        large = any(inputs.size_of(x) > LARGER * inputs.size_of(self._leaves[i]) for i, x in made.items())
        return {i: x.detach() for i, x in made.items()} if small and not large else None

    def _put(self, at: int, values: dict[int, torch.Tensor], first: _Taken) -> dict[int, torch.Tensor]:
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
