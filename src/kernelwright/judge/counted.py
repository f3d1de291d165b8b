# SPDX-License-Identifier: Apache-2.0
"""Sums of whole numbers, and of others of few bits, which come out alike in every order: places, counts, degrees.

Programs compare such sums with each other and with numbers, as ``one_hot.cumsum(0) <= capacity`` does. Where the honest
error is drawn (``rounding``) half of those that are equal would else lie on the other side, and < would pass for <=.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten
FINEST = 10
"""Addends are whole, or multiples of two to the minus this, and the factors of products of the root of it."""
LARGEST = 1 << 23
"""Of such steps their sizes add up to no more than this, so float32 holds each partial sum."""
SOME = 64
"""Elements that are looked at first."""
_WITHIN = {aten.sum.default, aten.sum.dim_IntList, aten.cumsum.default}
_PRODUCTS = {aten.mm.default, aten.bmm.default}
_SCATTERED = {aten.scatter_add.default, aten.index_add.default}
_ADDED = {aten.addmm.default, aten.baddbmm.default, aten.mv.default, aten.dot.default}
_POOLED = {aten.convolution.default, aten.avg_pool2d.default}
_SUMS = _WITHIN | _PRODUCTS | _SCATTERED
_WRITTEN = {
    aten.scatter_add_.default, aten.index_add_.default, aten.index_put.default, aten.index_put_.default,
    aten.scatter_reduce.two, aten.scatter_reduce_.two, aten._embedding_bag.default,
    aten._embedding_bag_forward_only.default,
}  # fmt: skip
"""What ``scattered`` adds up as one of the others."""


def kept(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], noisy: torch.Tensor) -> torch.Tensor:
    """``noisy``, a float64 result of an operator, written over by the exact one where all addends have few bits."""
    places = exact(func, args, kwargs)
    if places is None or not bool(places.any()):
        return noisy
    with _disable_current_modes():
        return torch.where(places, func(*args, **kwargs), noisy)


def exact(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """Which elements of the result are sums of such addends; None where nothing is known of the operator."""
    with _disable_current_modes():  # who draws the honest error watches all operators
        return _exact(func, args, kwargs)


def met(func: Any, args: Sequence[Any], out: Any) -> bool:
    """Whether an operator makes floats of whole numbers, or adds up such as are whole."""
    if func is aten._to_copy.default:
        return bool(out.is_floating_point()) and not args[0].is_floating_point()
    known = func in _SUMS or func in _WRITTEN or func in _ADDED or func in _POOLED
    return known and args[0].is_floating_point() and whole(args[0])


def whole(leaf: torch.Tensor) -> bool:
    """Whether a tensor holds several whole numbers and nothing else, of whatever dtype."""
    if leaf.is_complex() or leaf.numel() < 2 or leaf.layout is not torch.strided:
        return False
    if leaf.is_floating_point() and leaf.itemsize == 1:  # they take part in no arithmetic
        leaf = leaf.float()
    if not leaf.is_floating_point():
        return True
    some = leaf.flatten()[:SOME] if leaf.is_contiguous() else leaf
    return bool((some == some.round()).all()) and bool((leaf == leaf.round()).all())


def _exact(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    if func in _ADDED and not kwargs and all(map(whole, args)):
        return func(*(arg.abs() for arg in args)) <= LARGEST
    if func is aten.convolution.default:
        return _convolved(args)
    if func is aten.avg_pool2d.default and whole(args[0]):
        area = args[1][0] * args[1][-1]
        return func(args[0].abs(), *args[1:], **kwargs) * area <= LARGEST if area.bit_count() == 1 else None
    if func not in _SUMS:
        return None
    places = (0, 3) if func in _SCATTERED else (0, 1) if func in _PRODUCTS else (0,)
    finest = 0 if all(whole(args[at]) for at in places) else FINEST

    def of(make: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        return func(*(make(arg) if at in places else arg for at, arg in enumerate(args)), **kwargs)

    if func in _PRODUCTS:
        rows, columns = (_odd(args[at], finest // 2) for at in places)
        odd = rows.sum(-1, keepdim=True) + columns.sum(-2, keepdim=True)
    else:
        odd = of(lambda value: _odd(value, finest))
    return (odd == 0) & (of(torch.abs) * 2.0**finest <= LARGEST)


def _convolved(args: tuple[Any, ...]) -> torch.Tensor | None:
    """Of windows with whole weights: a board's neighbours, matches of a pattern."""
    values, weight, bias, *how = args
    if not whole(weight) or not (bias is None or bool((bias == bias.round()).all())):
        return None
    sizes = aten.convolution(values.abs(), weight.abs(), None if bias is None else bias.abs(), *how)
    odd = aten.convolution(_odd(values, 0), torch.ones_like(weight, dtype=torch.float64), None, *how)
    return (odd.round() == 0) & (sizes <= LARGEST)


def _odd(values: torch.Tensor, finest: int) -> torch.Tensor:
    """1.0 for what is no multiple of two to the minus ``finest``, 0.0 for the others."""
    steps = values * 2.0**finest
    return (steps != steps.round()).to(torch.float64)
