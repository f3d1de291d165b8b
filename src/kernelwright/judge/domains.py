# SPDX-License-Identifier: Apache-2.0
"""What operators refuse, asked before a device is: there an index that is not there, or a probability above one, does
not raise but ends the context of the process, and with it the judge.

A judge tries many values on a reference to see which it takes. On a CPU the operators that are particular about values
raise, and that is the answer; on a device they assert. So there these are looked at first, and raise here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelwright.judge.kinds import Watching

Checks = Callable[..., None]
BY_CHANCE = 8
"""Numbers of a table that are in order by chance too seldom to matter."""
SLACK = 64
"""Roundings of the largest number of a row by which the next may be less."""


def _within(values: torch.Tensor, low: float, high: float, what: str) -> None:
    if not values.numel():
        return
    least, most = (float(value) for value in torch.aminmax(values.detach()))
    if not (low <= least and most <= high):
        raise ValueError(f"{what} from {least:g} to {most:g}, where {low:g} to {high:g} are accepted")


def _probabilities(values: torch.Tensor, *others: Any, **_: Any) -> None:
    _within(values, 0.0, 1.0, "probabilities")


def _cross_entropy(values: torch.Tensor, target: torch.Tensor, *others: Any, **_: Any) -> None:
    _probabilities(values)
    _probabilities(target)


def _coins(values: torch.Tensor, chance: float | None = None, *others: Any, **_: Any) -> None:
    if chance is None:
        _probabilities(values)


def _coins_put(values: torch.Tensor, chance: Any = None, *others: Any, **_: Any) -> None:
    if isinstance(chance, torch.Tensor):
        _probabilities(chance)


def _shares(values: torch.Tensor, *others: Any, **_: Any) -> None:
    most = torch.finfo(values.dtype).max
    _within(values, 0.0, most, "shares")
    _within(values.detach().sum(-1, dtype=torch.float64), torch.finfo(values.dtype).tiny, most, "sums of shares")


def _rates(values: torch.Tensor, *others: Any, **_: Any) -> None:
    _within(values, 0, torch.inf, "rates")


def _true(value: torch.Tensor, *others: Any, **_: Any) -> None:
    _within(value.ne(0), 1, 1, "truths")


def _rows(weight: torch.Tensor, indices: torch.Tensor, *others: Any, **_: Any) -> None:
    _within(indices, 0, weight.shape[0] - 1, "rows")


def _along(values: torch.Tensor, dim: int, indices: torch.Tensor, *others: Any, **_: Any) -> None:
    _within(indices, 0, (values.shape[dim] if values.dim() else 1) - 1, "indices")


def _anywhere(values: torch.Tensor, indices: torch.Tensor, *others: Any, **_: Any) -> None:
    _within(indices, -values.numel(), values.numel() - 1, "indices")


def _unpooled(values: torch.Tensor, indices: torch.Tensor, size: Sequence[int], *others: Any, **_: Any) -> None:
    _within(indices, 0, math.prod(size) - 1, "indices")


def _classes(values: torch.Tensor, target: torch.Tensor, weight: Any, reduction: int, ignored: int, *_: Any) -> None:
    counted = target[target != ignored]
    _within(counted, 0, values.shape[1 if values.dim() > 1 else 0] - 1, "classes")


def _places(values: torch.Tensor, indices: Sequence[torch.Tensor | None], *others: Any, **_: Any) -> None:
    dim = 0
    for index in indices:
        if index is None or index.dtype in (torch.bool, torch.uint8):
            dim += 1 if index is None else index.dim()
            continue
        _within(index, -values.shape[dim], values.shape[dim] - 1, "indices")
        dim += 1


CHECKS: Mapping[str, Checks] = {
    "aten::binary_cross_entropy": _cross_entropy,
    "aten::bernoulli": _coins,
    "aten::bernoulli_": _coins_put,
    "aten::multinomial": _shares,
    "aten::poisson": _rates,
    "aten::repeat_interleave": _rates,
    "aten::_assert_async": _true,
    "aten::embedding": _rows,
    "aten::_embedding_bag": _rows,
    "aten::_embedding_bag_forward_only": _rows,
    "aten::index_select": _along,
    "aten::gather": _along,
    "aten::scatter": _along,
    "aten::scatter_add": _along,
    "aten::scatter_reduce": _along,
    "aten::index_add": _along,
    "aten::index_copy": _along,
    "aten::index_fill": _along,
    "aten::index_reduce": _along,
    "aten::take": _anywhere,
    "aten::put": _anywhere,
    "aten::max_unpool2d": _unpooled,
    "aten::max_unpool3d": _unpooled,
    "aten::nll_loss_forward": _classes,
    "aten::nll_loss2d_forward": _classes,
    "aten::index": _places,
    "aten::index_put": _places,
    "aten::_index_put_impl": _places,
}
"""By operator, what it refuses on a CPU and asserts on a device; those that write to their first argument likewise."""

FACTORED = {
    "_linalg_solve_ex", "linalg_inv_ex", "linalg_lu_factor_ex", "linalg_lu", "linalg_cholesky_ex",
    "linalg_solve_triangular", "linalg_ldl_factor_ex",
}  # fmt: skip
"""Operators that raise for a matrix without an inverse, or have no answer there."""


SYSTEMS = "systems"
"""Said of a reference that solves for many numbers at once: those of ``IN_SYSTEMS``."""
IN_SYSTEMS = FACTORED | {
    "linalg_qr", "_linalg_svd", "_linalg_eigh", "linalg_eig", "linalg_lstsq", "linalg_pinv", "linalg_matrix_exp",
    "_linalg_det", "_linalg_slogdet", "linalg_lu_solve", "linalg_householder_product", "cholesky_solve",
    "cholesky_inverse", "triangular_solve", "geqrf", "cholesky", "ormqr", "linalg_eigvals",
}  # fmt: skip
"""Operators whose rounding moves all elements together, along few directions: an element that these leave where it is
says nothing of another algorithm's, which has others."""


def in_systems(func: Any) -> bool:
    """Whether an operator is one of these."""
    return str(func._schema.name).removeprefix("aten::") in IN_SYSTEMS


def factored(func: Any) -> bool:
    """Whether an operator is one of these."""
    return str(func._schema.name).removeprefix("aten::") in FACTORED


class Particular:
    """What the operators of a reference ask of values."""

    def __init__(self) -> None:
        self.values = False
        """Some are among CHECKS."""
        self._ordered: bool | None = None

    @property
    def order(self) -> bool:
        """Some search in tables, and all of those were in order."""
        return bool(self._ordered)

    def note(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """One operator."""
        self.values |= _name(func) in CHECKS
        table = _searched(func, args, kwargs)
        if table is not None:
            kept_so = table.shape[-1] >= BY_CHANCE and _in_order(table)
            self._ordered = kept_so and self._ordered is not False


def _searched(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """The table that an operator searches in as it is."""
    name = func._schema.name
    if name not in ("aten::searchsorted", "aten::bucketize") or kwargs.get("sorter") is not None:
        return None
    table = args[0 if name == "aten::searchsorted" else 1]
    return table if isinstance(table, torch.Tensor) and table.dim() else None


def _in_order(table: torch.Tensor) -> bool:
    """But for roundings: sums over a device's blocks fall by some now and then."""
    before, after = table[..., :-1], table[..., 1:]
    ordered = after >= before
    if table.is_floating_point() and before.numel():
        slack = SLACK * torch.finfo(table.dtype).eps * table.abs().amax(-1, keepdim=True)
        ordered |= before - after <= slack
    return bool(ordered.all())


def _name(func: Any) -> str:
    name = str(func._schema.name)
    return name if name in CHECKS else name.rstrip("_")


class Kept(Watching):
    """Operators that are particular about values raise for those they do not take, and those that search a table that
    is not in order: what they find there is nobody's to know. Sums of shares are in order, and were not where shares
    were negative: an honest search, by counting, was refused."""

    def __init__(self, *, values: bool = True, order: bool = False) -> None:
        super().__init__()
        self._values, self._order = values, order

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd. Raises ValueError."""
        check = CHECKS.get(_name(func)) if self._values else None
        if check is not None:
            check(*args, **(kwargs or {}))
        table = _searched(func, args, kwargs or {}) if self._order else None
        if table is not None and not _in_order(table):
            raise ValueError("a table that is searched in is not in order")
        return func(*args, **(kwargs or {}))


def kept(device: torch.device, particular: Particular, *, order: bool = True) -> contextlib.AbstractContextManager[Any]:
    """``Kept`` where a reference was seen to have such operators, and a device would assert or nobody says anything.
    ``order``: as inputs are, not moved by half an ulp, which puts neighbours that are equal out of it."""
    values, order = particular.values and device.type != "cpu", order and particular.order
    return Kept(values=values, order=order) if values or order else contextlib.nullcontext()
