# SPDX-License-Identifier: Apache-2.0
"""The error of a reference that cannot run in float64, from several honest orders of summation in its own precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelwright.judge.borders import EXPONENTIAL, named
from kernelwright.judge.kinds import Watching
from kernelwright.judge.weights import State

RUNS = 6
"""Orders tried; their mean stands in for the oracle."""
DISAGREES = "its float64 run disagrees with its own result by far more than rounding"
WHOLE = 64.0
"""Whole numbers up to which they are small: in bfloat16 there are no others from 128 on."""

ROUNDED = EXPONENTIAL | {
    "_log_softmax", "log", "log2", "log10", "log1p", "tanh", "gelu", "erf", "erfc", "erfinv", "sin", "cos", "tan",
    "sinh", "cosh", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh", "pow", "rsqrt", "div", "reciprocal",
    "lgamma", "digamma",
}  # fmt: skip
"""Elementwise operators whose last bit is nobody's: libraries differ in it, and so do quotients and products with one
over the divisor. Where what comes before them is rounded to a few numbers, or read bit by bit, no input that moves and
no order shows that: all answers of a quantised product's sigmoid were equal, and an honest one was refused."""

aten = torch.ops.aten


class Reordered(Watching):
    """Sums and matrix products add up in an order drawn from a private generator. ``moved``: what operators of ROUNDED
    give is moved by half an ulp as well, but for whole numbers, which they may be meant to be."""

    def __init__(self, rng: torch.Generator, *, moved: bool = False) -> None:
        super().__init__()
        self.rng, self._moved = rng, moved

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        args = list(args)
        if func in (aten.mm.default, aten.bmm.default):
            args[0], args[1] = self._together(args[0], args[1])
        elif func in (aten.addmm.default, aten.baddbmm.default):
            args[1], args[2] = self._together(args[1], args[2])
        elif func in (aten.sum.dim_IntList, aten.mean.dim, aten.sum.default, aten.mean.default) and args[0].dim():
            dims = args[1] if len(args) > 1 and args[1] else list(range(args[0].dim()))
            for dim in [dims] if isinstance(dims, int) else dims:
                args[0] = args[0].index_select(dim, self._order(args[0].shape[dim]))
        out = func(*args, **(kwargs or {}))
        if self._moved and isinstance(out, torch.Tensor) and func._schema.returns and named(func) in ROUNDED:
            self._move(out)
        return out

    def _move(self, out: torch.Tensor) -> None:
        if out.dtype in (torch.float32, torch.float64):
            wide = out.detach()
            made = moved_by_an_ulp([wide], self.rng)[0]
            wide.copy_(torch.where(wide.frac() == 0.0, wide, made))

    def _order(self, size: int) -> torch.Tensor:
        return torch.randperm(size, generator=self.rng, device=self.rng.device)

    def _together(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        order = self._order(left.shape[-1])
        return left.index_select(-1, order), right.index_select(-2, order)


def moved_by_an_ulp(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """float32 and float64 leaves moved by half an ulp up or down or not at all; others unchanged.

    This is what shows the rounding of kernels that no operator order reaches. Half precision stays as it is: half an
    ulp there is far more than its programs, which accumulate in float32, may lose.
    """
    out = []
    for leaf in leaves:
        if leaf.dtype in (torch.float32, torch.float64):
            step = torch.randint(-1, 2, leaf.shape, generator=rng, device=leaf.device).to(leaf.dtype)
            out.append(leaf + leaf * step * (torch.finfo(leaf.dtype).eps / 2))
        else:
            out.append(leaf)
    return out


def beside(leaves: Sequence[torch.Tensor], state: State, rng: torch.Generator) -> State:
    """Weights moved as ``moved_by_an_ulp`` does, where no input can be, but for flags and counts in floats. Of a sum of
    embeddings nothing was moved, all answers were equal, and an honest one was 4 times as far off as none."""
    if any(leaf.is_floating_point() or leaf.is_complex() for leaf in leaves):
        return state
    moved = moved_by_an_ulp([value for _, value in state], rng)
    pairs = zip(state, moved, strict=True)
    return [(name, value if _of_whole(value) else new) for (name, value), new in pairs]


def _of_whole(values: torch.Tensor) -> bool:
    return values.is_floating_point() and bool(_small_whole(values.to(torch.float64)).any())


def _small_whole(wide: torch.Tensor) -> torch.Tensor:
    """Where small whole numbers are, if hardly any others are there."""
    whole = (wide.frac() == 0.0) & (wide.abs() <= WHOLE)
    return whole & (whole.sum() * 10 > 9 * whole.numel())


def shaken(leaves: Sequence[torch.Tensor], rng: torch.Generator, times: float) -> list[torch.Tensor]:
    """Floating leaves, halves too, moved by ``times`` half an ulp up or down or not at all, but for small whole numbers
    in leaves of hardly any others: a reference may compare with them."""
    out = []
    for leaf in leaves:
        made = leaf
        if leaf.is_floating_point() and leaf.itemsize > 1:
            wide, eps = leaf.to(torch.float64), torch.finfo(leaf.dtype).eps
            step = torch.randint(-1, 2, leaf.shape, generator=rng, device=leaf.device)
            made = torch.where(_small_whole(wide), wide, wide + wide * step * (times * eps / 2)).to(leaf.dtype)
        out.append(made)
    return out


def several(
    run: Callable[[Sequence[torch.Tensor], State], list[torch.Tensor]],
    leaves: Sequence[torch.Tensor],
    state: State,
    rng: torch.Generator,
) -> list[list[torch.Tensor]]:
    """RUNS answers of the reference on the same leaves: reordered, and all but the first on leaves moved by an ulp, or
    with weights that are."""
    answers = []
    for index in range(RUNS):
        given = leaves if index == 0 else moved_by_an_ulp(leaves, rng)
        held = state if index == 0 else beside(leaves, state, rng)
        with Reordered(rng, moved=index > 0):
            answers.append(run(given, held))
    return answers


def judged_by(why: str) -> str:
    """What a reference is judged by for want of a run in float64, and why there is none."""
    return f"judged by {RUNS} orders of summation: {why}"


def centre(answers: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """Per output: the mean in float64 for floating outputs, the first answer for the others."""
    out = []
    for column in zip(*answers, strict=True):
        if column[0].is_floating_point():
            out.append(torch.stack([item.to(torch.float64) for item in column]).mean(0))
        elif column[0].is_complex():
            out.append(torch.stack([item.to(torch.complex128) for item in column]).mean(0))
        else:
            out.append(column[0])
    return out
