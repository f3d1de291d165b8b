# SPDX-License-Identifier: Apache-2.0
"""Differences that a call takes, of results, or of a result and a constant or an input, as functions of torch's tell.

Each knows its gradient, so what it is computed of can be moved until it is small (``solved``). Complex ones count as
pairs of reals: expanded squares of spectra that fit to 1e-3 were 9.0e-6 off of 6.5e-5, and the reference 3e-9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.judge import fitted, inputs, squares

NAMES = {
    "sub", "sub_", "subtract", "__sub__", "__isub__", "rsub", "__rsub__", "mse_loss", "l1_loss", "smooth_l1_loss",
    "huber_loss", "pairwise_distance", "dist",
}  # fmt: skip
"""Functions that take one argument from another."""
QUOTIENTS = {"div", "divide", "true_divide", "__truediv__"}
"""Those of which a number is taken though their results are as large as an input: a ratio less one is a relative error,
of which 7 % were lost where it is 1e-3, while one less a sigmoid is a gate."""
LAST = 8
"""Quotients that are remembered."""
MOST, CELLS = 96, 1 << 20
"""Differences of a call that are looked at, and elements of one."""


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

    @property
    def results(self) -> bool:
        """Whether both sides are."""
        return isinstance(self.other, torch.Tensor) and self.other.requires_grad

    def sides(self) -> tuple[torch.Tensor, ...]:
        """What may stand in an input's place so that the difference is small."""
        if isinstance(self.other, torch.Tensor):
            return (self.side, self.other) if self.results and self.whole is None else ()
        return (self.ratio[0] / self.other, self.ratio[1] * self.other) if self.ratio else ()

    @property
    def given(self) -> bool:
        """Whether one is an input, or a part of one, which ``fitted`` puts in: it is only made small beside others."""
        return self.results and self.whole is None and result(self.side) and not result(self.other)


class Differences(TorchFunctionMode):
    """Remembers differences of results, with their gradients; ``weights``: of weights too."""

    def __init__(self, cells: int, *, weights: bool) -> None:
        super().__init__()
        self.found: list[Taken] = []
        self._cells, self._weights = cells, weights
        self._quotients: list[tuple[torch.Tensor, tuple[torch.Tensor, ...]]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every function of a call."""
        name, more = getattr(func, "__name__", ""), kwargs or {}
        if (whole := squares.parted(name, args, more)) is not None:
            apart, diagonal = squares.beside_diagonal(whole)
            self._keep(Taken(apart, diagonal, diagonal, whole=whole))
        elif name in NAMES | squares.SUMS and "alpha" not in more and len(args) > 1:
            if squares.transposed(*args[:2]):
                one, other = args[:2]
                self._keep(Taken(one + other if name in squares.SUMS else one - other, one, other))
            elif name in NAMES:
                self._note(*(args[:2] if isinstance(args[0], torch.Tensor) else args[1::-1]))
            elif isinstance(args[1], int | float) and args[1] < 0:
                self._note(args[0], -args[1])
        out = func(*args, **more)
        if name in QUOTIENTS and not more and len(args) == 2 and all(isinstance(arg, torch.Tensor) for arg in args):
            self._quotients = [*self._quotients[1 - LAST :], (out, tuple(args))]
        return out

    def _ratio(self, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What it is the quotient of, element by element, as they lie."""
        found = next((sides for out, sides in self._quotients if out is value), ())
        return found if all(side.shape == value.shape for side in found) else ()

    def _note(self, one: torch.Tensor, other: Any) -> None:
        if isinstance(other, torch.Tensor) and not result(one) and (result(other) or not one.requires_grad):
            one, other = other, one
        if self._fits(one, other):
            self._keep(Taken(one - other, one, other, ratio=self._ratio(one)))

    def _fits(self, one: torch.Tensor, other: Any) -> bool:
        if not (one.requires_grad and one.numel() > 1):
            return False
        if not isinstance(other, torch.Tensor):
            fewer = one.numel() * fitted.FEWER <= self._cells or bool(self._ratio(one))
            return bool(other) and fewer and (result(one) or squares.diagonal_of(one, one._base))
        if other.requires_grad:
            return other.shape == one.shape and (self._weights or result(one))
        return result(one) or (other.shape == one.shape and (self._weights or squares.identity(other)))

    def _keep(self, taken: Taken) -> None:
        if len(self.found) < MOST and taken.apart.requires_grad and taken.apart.numel() <= CELLS:
            self.found.append(taken)


def result(value: torch.Tensor) -> bool:
    """Whether it is computed of inputs: those themselves, and parts of them, are put in by ``fitted``."""
    base = value if value._base is None else value._base
    return value.requires_grad and not base.is_leaf and value.numel() > 1


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
