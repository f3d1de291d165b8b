# SPDX-License-Identifier: Apache-2.0
"""Differences that a call takes, of results, or of a result and a constant or an input, as functions of torch's tell.

Each knows its gradient, so what it is computed of can be moved until it is small (``solved``). Complex ones count as
pairs of reals: expanded squares of spectra that fit to 1e-3 were 9.0e-6 off of 6.5e-5, and the reference 3e-9.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.judge import fitted, inputs, squares, subtractions

QUOTIENTS = {"div", "divide", "true_divide", "__truediv__"}
"""Those of which a number is taken though their results are as large as an input: a ratio less one is a relative error,
of which 7 % were lost where it is 1e-3, while one less a sigmoid is a gate."""
LAST = 8
"""Quotients, and differences, that are remembered."""
MOST, CELLS = 96, 1 << 20
"""Differences of a call that are looked at, and elements of one."""
STEPS = 2048
"""Steps of a result that are looked at for the inputs that it is of."""
WRITING = {"__setitem__", *(f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "pow"))}
"""Functions that write in place, beside those whose names end so."""
DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Taken:
    """A difference, and its sides, the first of them a result."""

    apart: torch.Tensor
    side: torch.Tensor
    other: Any
    whole: torch.Tensor | None = None
    """The matrix of which this is what lies beside the diagonal."""
    ratio: tuple[torch.Tensor, ...] = ()
    """What the one side is the quotient of."""
    given: bool = False
    """Whether one is an input, or a part of one, which ``fitted`` puts in: it is only made small beside others."""
    instead: bool = False
    """It stands for the one before, of which it is a part, where that cannot be small."""
    further: bool = False
    """It is the sum of one before and another result, never small together with that: a residual of three terms."""

    @property
    def results(self) -> bool:
        """Whether both sides are."""
        return isinstance(self.other, torch.Tensor) and self.other.requires_grad

    def tensors(self) -> list[torch.Tensor]:
        """Its sides that are some."""
        return [side for side in (self.side, self.other) if isinstance(side, torch.Tensor)]

    def sides(self) -> tuple[torch.Tensor, ...]:
        """What may stand in an input's place so that the difference is small."""
        if isinstance(self.other, torch.Tensor):
            return (self.side, self.other) if self.results and self.whole is None else ()
        return (self.ratio[0] / self.other, self.ratio[1] * self.other) if self.ratio else ()


class Differences(TorchFunctionMode):
    """Remembers differences of results, with their gradients; ``weights``: of weights too. ``given``: what comes in,
    ``moved``: what of that is moved, or what it is made of; ``state``: weights and buffers.

    Gradients are known of all of them, of a side that is detached too, and of a call under ``no_grad``: how a value
    moves is asked, and no training. What is written in place of weights, buffers or inputs is so without them."""

    def __init__(
        self,
        cells: int,
        *,
        weights: bool,
        given: Sequence[torch.Tensor] = (),
        moved: Collection[torch.Tensor] = (),
        state: Sequence[torch.Tensor] = (),
    ) -> None:
        super().__init__()
        self.found: list[Taken] = []
        self.sums: list[Taken] = []
        """What adds up to little, of results of inputs that are not the same."""
        self._cells, self._weights = cells, weights
        self._given, self._moved = {id(x) for x in given}, {id(x) for x in moved}
        self._kept = {x.untyped_storage().data_ptr() for x in (*given, *state) if x.layout is torch.strided}
        self._known = dict[Any, set[int]]()
        """Of steps that were asked about, the inputs that they are of: of layers in a row each is looked at once."""
        self._quotients: list[tuple[torch.Tensor, tuple[torch.Tensor, ...]]] = []
        self._apart_of: list[torch.Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every function of a call."""
        name, more = getattr(func, "__name__", ""), kwargs or {}
        if name == "_set_grad_enabled":
            return None
        if name == "detach" or (name == "__get__" and func == DATA):
            return args[0]
        before = len(self.found)
        self._look(name, args, more)
        if self._written(name, args, more):
            with torch.no_grad():
                return func(*args, **more)
        out = func(*args, **more)
        if len(self.found) > before and isinstance(out, torch.Tensor):
            self._apart_of = [*self._apart_of[1 - LAST :], out]
        if name in QUOTIENTS and not more and len(args) == 2 and subtractions.tensors(*args):
            self._quotients = [*self._quotients[1 - LAST :], (out, tuple(args))]
        return out

    def _look(self, name: str, args: Sequence[Any], more: Mapping[str, Any]) -> None:
        if (whole := squares.parted(name, args, more)) is not None:
            apart, diagonal = squares.beside_diagonal(whole)
            self._keep(Taken(apart, diagonal, diagonal, whole=whole))
        elif (sides := subtractions.of(name, args, more)) is not None:
            one, other = sides.one, sides.other
            if written(name):  # in place of what it is taken from
                one = one.clone() if one is args[0] and self._result(one) else one
            if squares.transposed(one, other):
                self._keep(Taken(one + other if sides.sums else one - other, one, other))
            elif not sides.sums:
                self._note(one, other)
            elif not self._weights and self._summed(one, other) and self._added(one, other):
                self._keep(Taken(one + other, one, other, further=bool(self.found)), self.found or self.sums)

    def _written(self, name: str, args: Sequence[Any], more: Mapping[str, Any]) -> bool:
        """Whether it writes to what was there before the call, or to what it is told to."""
        if not (written(name) and args and isinstance(args[0], torch.Tensor) and args[0].layout is torch.strided):
            return more.get("out") is not None
        return args[0].is_leaf and args[0].untyped_storage().data_ptr() in self._kept

    def _ratio(self, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What it is the quotient of, element by element, as they lie."""
        found = next((sides for out, sides in self._quotients if out is value), ())
        return found if all(side.shape == value.shape for side in found) else ()

    def _note(self, one: torch.Tensor, other: Any) -> None:
        if isinstance(other, torch.Tensor) and not self._result(one):
            if self._result(other) or not one.requires_grad:
                one, other = other, one
        if self._fits(one, other):
            self._keep(Taken(one - other, one, other, ratio=self._ratio(one), given=self._put_in(one, other)))
        elif subtractions.tensors(one, other) and self._apart(one, other):
            one, other = (one, other) if one.numel() > other.numel() else (other, one)
            if one.shape == torch.broadcast_shapes(one.shape, other.shape):
                self._keep(Taken(one - other, one, other.expand_as(one)))
            whole = bool(self.found) and self.found[-1].side is one
            if (pair := subtractions.paired(one, other)) is not None:
                self._keep(Taken(pair[0] - pair[1], *pair, instead=whole))

    def _put_in(self, one: torch.Tensor, other: Any) -> bool:
        """Whether one is an input, and the other no result of it."""
        if not (isinstance(other, torch.Tensor) and other.requires_grad and self._result(one)):
            return False
        return not self._result(other) and not self._inputs(one) & self._inputs(other)

    def _fits(self, one: torch.Tensor, other: Any) -> bool:
        if not (one.requires_grad and one.numel() > 1):
            return False
        if not isinstance(other, torch.Tensor):
            fewer = one.numel() * fitted.FEWER <= self._cells or bool(self._ratio(one))
            return bool(other) and fewer and (self._result(one) or squares.diagonal_of(one, one._base))
        if other.requires_grad:
            return other.shape == one.shape and (self._weights or self._result(one))
        return self._result(one) or (other.shape == one.shape and (self._weights or squares.identity(other)))

    def _apart(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        """Whether they are results, of other shapes, of inputs none of which is in both."""
        if self._weights or one.shape == other.shape or not (self._result(one) and self._result(other)):
            return False
        return not self._inputs(one) & self._inputs(other)

    def _summed(self, one: Any, other: Any) -> bool:
        """Whether no difference was found, or one of them is one."""
        return not self.found or any(out is one or out is other for out in self._apart_of)

    def _added(self, one: Any, other: Any) -> bool:
        """Whether they are such of one shape."""
        if not (subtractions.tensors(one, other) and one.shape == other.shape):
            return False
        if not (self._result(one) and self._result(other)):
            return False
        made = self._inputs(one), self._inputs(other)
        return all(made) and not made[0] & made[1]

    def _inputs(self, value: torch.Tensor) -> set[int]:
        """Which inputs it is computed of; all of them, where that is of too many steps to tell."""
        found, seen, ahead = {id(value)}, set[Any](), [value.grad_fn]
        while ahead and len(seen) <= STEPS:
            if (node := ahead.pop()) is None or node in seen:
                continue
            seen.add(node)
            if node in self._known:
                found |= self._known[node]
                continue
            if (leaf := getattr(node, "variable", None)) is not None:
                found.add(id(leaf))
            ahead += [other for other, _ in node.next_functions]
        found = self._moved & found if len(seen) <= STEPS else self._moved
        if value.grad_fn is not None:
            self._known[value.grad_fn] = found
        return found

    def _result(self, value: torch.Tensor) -> bool:
        """Whether it is computed of inputs: those themselves, and parts of them, are put in by ``fitted``."""
        base = value if value._base is None else value._base
        return value.requires_grad and not (base.is_leaf or id(base) in self._given) and value.numel() > 1

    def _keep(self, taken: Taken, found: list[Taken] | None = None) -> None:
        found = self.found if found is None else found
        able = taken.apart.requires_grad and fitted.wide(taken.apart)
        if len(found) < MOST and able and 0 < taken.apart.numel() <= CELLS:
            found.append(taken)


def written(name: str) -> bool:
    """Whether a function writes to its first argument."""
    return name in WRITING or (name.endswith("_") and not name.endswith("__"))


def within(part: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether it lies in the same memory."""
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def small(taken: Taken, most: float) -> bool:
    """Whether a difference is small beside its sides, or is none."""
    return not bool(taken.apart.any()) or inputs.size_of(taken.apart) <= most * size(taken)


def size(taken: Taken) -> float:
    """Of a side; of a constant, where one is."""
    if isinstance(taken.other, torch.Tensor):
        return inputs.size_of(taken.side if taken.results else taken.other)
    return abs(float(taken.other))
