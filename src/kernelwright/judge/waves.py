# SPDX-License-Identifier: Apache-2.0
"""The rounding of complex arithmetic and of Fourier transforms, for ``rounding``.

A transform is a product with a matrix of roots of unity, and may be computed as one: rows of up to ``DIRECT`` terms are
one running sum, longer ones come from factors of that length, as programs on matrix units make them. So may a
convolution by transforms be computed as the sums of products that it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

aten = torch.ops.aten

DIRECT = 256
"""Terms of a transform that a sensible program adds up one after the other. Factors on matrix units are 16 to 128 long.
With 1024 a convolution of 256 elements whose input had 16 bits passed where it was drawn as given."""
ACCUMULATED = 16384
"""The same of a product of matrices (``rounding.LONGEST_DOT``)."""
BY_PART = frozenset(
    {"add", "sub", "rsub", "mul", "div", "neg", "complex", "_to_copy", "clone", "cat", "index", "where"}
)
"""Operators after which each part is rounded by its own size, or not at all, where not two complex numbers multiply."""
EXACT = BY_PART - {"add", "sub", "rsub", "mul", "div"}
MULTIPLY = frozenset({"mul", "div"})


class Mode(Protocol):
    """What of ``rounding.Rounded`` is needed here."""

    unit: float

    def apply(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One operator, perturbed."""

    def roughen(self, out: torch.Tensor) -> torch.Tensor:
        """One rounding of every element."""

    def noise(self, like: torch.Tensor) -> torch.Tensor:
        """Uniform in [-1, 1)."""

    def summed(
        self, out: torch.Tensor, squares: torch.Tensor, terms: Any, lanes: float, longest: float
    ) -> torch.Tensor:
        """A sum with the error of running sums."""


def both(rule: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    """A rule of real numbers for the two parts of complex ones; of real ones itself."""
    if not values.is_complex():
        return rule(values)
    return torch.complex(rule(values.real.clone()), rule(values.imag.clone()))


def rounded(mode: Mode, func: Any, args: tuple[Any, ...], out: Any) -> Any:
    """The complex result of an operator, element by element: a product errs by its modulus in both of its parts."""
    if not isinstance(out, torch.Tensor) or not out.is_complex():
        return out
    name = func._schema.name.removeprefix("aten::")
    factors = sum(isinstance(arg, complex) or (isinstance(arg, torch.Tensor) and arg.is_complex()) for arg in args)
    if name in EXACT:
        return out
    if name in BY_PART and (name not in MULTIPLY or factors < 2):
        return both(mode.roughen, out)
    size = out.abs().nan_to_num_(0.0, 0.0, 0.0) * mode.unit
    return torch.complex(out.real + size * mode.noise(size), out.imag + size * mode.noise(size))


def product(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mm and bmm of complex matrices: each part is a sum of two products for every term."""
    left, right = args[0], args[1]
    out = func(left, right)
    if not out.is_complex() or left.shape[-1] == 0 or out.numel() == 0:
        return out
    squares = func(left.abs().square(), right.abs().square())
    return both(lambda part: mode.summed(part, squares, 2.0 * left.shape[-1], 1, ACCUMULATED), out)


def by_part(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Sums of complex numbers: those of their parts."""
    if not args[0].is_complex():
        return func(*args, **kwargs)
    return both(lambda part: mode.apply(func, (part, *args[1:]), kwargs), args[0])


def transform(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A Fourier transform over some dimensions: every term is one element of its input, turned."""
    out = func(*args, **kwargs)
    values, dims, scaling = args[0], [int(dim) for dim in args[1]], int(args[2])
    if out.numel() == 0 or values.numel() == 0 or not dims:
        return out
    whole = values if func is aten._fft_r2c.default else out  # the other may hold one half of what is there
    count = math.prod(whole.shape[dim] for dim in dims)
    energy = whole.abs().square().sum(dims, keepdim=True)
    energy = energy / (count if whole is out else (1, count, count**2)[scaling])
    terms = float(sum(min(whole.shape[dim], DIRECT) for dim in dims))
    squares = energy.expand(out.shape).clone()
    return both(lambda part: mode.summed(part, squares, terms, 1, terms), out)


RULES: dict[Any, Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    aten._fft_c2r.default: transform,
    aten._fft_c2c.default: transform,
    aten.mm.default: product,
    aten.bmm.default: product,
    **dict.fromkeys((aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim), by_part),
    aten.cumsum.default: by_part,
}
"""For operators whose first tensor is no float; of whole numbers they change nothing."""
