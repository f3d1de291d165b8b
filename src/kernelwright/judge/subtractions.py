# SPDX-License-Identifier: Apache-2.0
"""What functions of torch, and operators, take from each other or add up: by factors, fused with products, along axes.

``sub`` is one of many: ``add`` with an alpha of -1, ``addmm`` that takes a product from an input, ``diff`` of results
that were stacked, each row from each, the variance of a few results. Expanded squares of all of these passed while
the judge knew ``sub`` and the losses alone, and were 2.5 % to 53 % off where what they are of is 1e-3 of its sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.judge import squares

NAMES = {
    "sub", "sub_", "subtract", "__sub__", "__isub__", "rsub", "__rsub__", "mse_loss", "l1_loss", "smooth_l1_loss",
    "huber_loss", "pairwise_distance", "dist", "gaussian_nll_loss",
}  # fmt: skip
"""Functions that take one argument from another."""
PRODUCTS = {
    "addmm": torch.mm, "addmv": torch.mv, "addr": torch.outer, "baddbmm": torch.bmm, "addcmul": torch.mul,
    "addcdiv": torch.div,
}  # fmt: skip
"""Those that add a product, or a quotient, to what comes first, and that."""
SPREADS = {"var", "std", "var_mean", "std_mean"}
"""Those that take a mean from what it is of."""
GIVEN = ("input", "self", "x1", "other", "target", "x2")
"""What arguments are called that are named, in the order that they have."""
FEW = 8
"""Results along an axis, at the most, of which a variance is one of differences: by more it is one of a sample."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What is taken from each other, or, of ``sums``, added up."""

    one: Any
    other: Any
    sums: bool = False


def tensors(*values: Any) -> bool:
    """Whether all are."""
    return all(isinstance(value, torch.Tensor) for value in values)


def of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sides | None:
    """The sides of a function; None of another one."""
    if (made := fused(name.rstrip("_"), args, kwargs)) is not None:
        return made
    if name in SPREADS | {"diff", "cdist"}:
        return _along(name, args, kwargs)
    if name not in NAMES | squares.SUMS:
        return None
    given = [*args, *(kwargs[key] for key in GIVEN if key in kwargs)][:2]
    alpha = kwargs.get("alpha", 1)
    if len(given) < 2 or not tensors(*given) and alpha != 1 or name in ("rsub", "__rsub__") and alpha != 1:
        return None
    one, other = given if isinstance(given[0], torch.Tensor) else given[::-1]
    if not isinstance(one, torch.Tensor) or not isinstance(alpha, int | float) or not alpha:
        return None
    if not isinstance(other, torch.Tensor):  # -1 is taken from it where 1 is added
        less = name in NAMES or isinstance(other, int | float) and other < 0
        return Sides(one, other if name in NAMES else -other) if less else None
    sums = (name in squares.SUMS) == (alpha > 0)
    return Sides(one, other if abs(alpha) == 1 else other * abs(alpha), sums)


def fused(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sides | None:
    """The same of what adds a product, with factors, to what comes first: of other signs it is taken from it, and a sum
    is one where that is no bias that all rows have."""
    product = PRODUCTS.get(name)
    if product is None or len(args) < 3 or not tensors(*args[:3]):
        return None
    beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", kwargs.get("value", 1))
    if not (isinstance(beta, int | float) and isinstance(alpha, int | float)):
        return None
    if not beta or not alpha or (alpha / beta > 0 and not _as_large(name, *args[:3])):
        return None
    other = product(args[1], args[2])  # type: ignore[operator]
    ratio = abs(alpha / beta)
    return Sides(args[0], other if ratio == 1 else other * ratio, alpha / beta > 0)


def _as_large(name: str, one: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether what is added to a product has its shape."""
    return name in ("addmm", "baddbmm") and one.shape == (*left.shape[:-1], right.shape[-1])


def _along(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sides | None:
    """Each row from each; neighbours along an axis; a few from their mean."""
    if name == "cdist":
        return Sides(args[0].unsqueeze(-2), args[1].unsqueeze(-3)) if len(args) > 1 and tensors(*args[:2]) else None
    value = args[0] if args else None
    if not (isinstance(value, torch.Tensor) and value.dim() and value.is_floating_point()):
        return None
    if name == "diff":
        axis, times = kwargs.get("dim", args[2] if len(args) > 2 else -1), kwargs.get("n", (*args, 1)[1:2][0])
        size = value.shape[axis]
        plain = times == 1 and not {"prepend", "append"} & kwargs.keys() and size > 1
        return Sides(value.narrow(axis, 1, size - 1), value.narrow(axis, 0, size - 1)) if plain else None
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    axis = axis[0] if isinstance(axis, list | tuple) and len(axis) == 1 else axis
    if not isinstance(axis, int) or isinstance(axis, bool) or not 1 < value.shape[axis] <= FEW:
        return None
    return Sides(value, value.mean(axis, keepdim=True).expand_as(value))


def paired(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Of sides of which one is repeated for the other along an axis, or each for the other along one, those that come
    together when each is taken with one: the nearest of several is what is small where a model is trained, not all."""
    axes = max(one.dim(), other.dim())
    one, other = (x[(None,) * (axes - x.dim())] for x in (one, other))
    own, theirs = ([i for i in range(axes) if x.shape[i] > 1 == y.shape[i]] for x, y in ((one, other), (other, one)))
    if len(own) > 1 or len(theirs) > 1 or not (own or theirs):
        return None
    if own and theirs:
        one, other = one.movedim((own[0], theirs[0]), (0, 1))[:, 0], other.movedim((theirs[0], own[0]), (0, 1))[:, 0]
        lines = torch.arange(max(len(one), len(other)), device=one.device)
        return one[lines % len(one)], other[lines % len(other)]
    axis = (own or theirs)[0]
    one, other = (_of_each(x.movedim(axis, 0)) for x in (one, other))
    return one, other


def _of_each(value: torch.Tensor) -> torch.Tensor:
    """Of what lies along the first axis one for each place of the second, in turn."""
    if value.dim() < 2:
        return value[0]
    lines = torch.arange(value.shape[1], device=value.device)
    return value[lines % value.shape[0], lines]
