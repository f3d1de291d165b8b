# SPDX-License-Identifier: Apache-2.0
"""Where a reference's answer jumps: numbers that it compares values with, and whole ones where it rounds to those.

A program with > for >= differs at one number, which drawn values never meet. So the numbers are read from the
reference's own operators as they pass by, and planted into its inputs beside multiples of one half, and of less, which
sums, differences and products take to other borders exactly. What all programs compute exactly of such numbers is not
moved when the honest error is drawn (``rounding``): half of it would else lie on the other side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from kernelwright.judge import steps
from kernelwright.judge.kinds import CHOOSING

COMPARED = {
    "gt", "ge", "lt", "le", "eq", "ne", "clamp", "clamp_min", "clamp_max", "hardtanh", "hardtanh_backward", "threshold",
    "threshold_backward", "hardshrink", "hardshrink_backward", "softshrink", "softshrink_backward", "heaviside",
    "bucketize", "searchsorted", "isclose", "isin", "huber_loss_backward", "smooth_l1_loss_backward",
}  # fmt: skip
"""Operators whose numbers are borders."""
STEPPED = {
    "floor", "ceil", "round", "trunc", "frac", "sign", "sgn", "floor_divide", "fmod", "remainder", "hardswish_backward",
    "hardsigmoid_backward", "frexp",
}  # fmt: skip
"""Operators that jump at whole numbers, or halves, or powers of two, which are among their multiples."""
SMOOTHLY = {"clamp", "clamp_min", "clamp_max", "hardtanh", "threshold", "softshrink"}
"""Those of COMPARED whose results do not jump there, but for a threshold with another value, which is rare."""
COUNTED = {"histc", "histogram"}
"""Operators that count in equal bins, the edges of which are borders, the last one's too."""
EXACTLY = {"add", "sub", "rsub", "mul", "div", "square"}
"""Operators that round nothing where numbers of few bits go in and come out."""
POLES = {"binary_cross_entropy": (0.0, 1.0), "binary_cross_entropy_backward": (0.0, 1.0), "xlogy": (0.0,)}
"""Operators that take care of numbers where a logarithm in them would be infinite."""
EXPONENTIAL = {
    "_softmax", "exp", "exp2", "expm1", "sigmoid", "silu", "mish", "softplus", "log_sigmoid_forward", "elu",
    "logaddexp", "logaddexp2",
}  # fmt: skip
"""Operators that have an exponential in them. At the usual scales one of 2048 elements is a small one, and a sigmoid
as 0.5 * tanh(0.5 * x) + 0.5, or a softplus as log(1 + exp(x)), which have no small results, pass."""
REACH = 1e6
"""How many times as large as they are a reference's inputs become at the most, for a border to be met."""
SIGNED = {"signbit", "copysign", "atan2", "angle"}
"""Operators that tell zero from minus zero."""
GUARDS = {"add", "clamp", "clamp_min"}
"""Operators that keep a divisor, or what a logarithm or root is taken of, away from zero."""
SMALL, DEEPEST = 1e-4, 1e-14
"""How small beside the largest of the values a number is that guards them; and how far values are scaled down to meet
it at the most, squares of which float32 still holds."""
HALVES, PLANTED, FINE = 1 / 4, 1 / 8, 1 / 8
"""Shares of elements that become multiples of one half, borders, and multiples of smaller powers of two."""
FINEST = 10
"""The smallest of these is two to the minus this. A product with a power of two takes them to halves between whole
numbers, where a rounding of x * 16 as floor(x * 16 + 0.5) goes the other way; halves themselves become whole."""
MANY = 64
"""Numbers that a tensor may hold to be read as borders: a table of buckets, no values."""
_LOW = (1 << 37) - 1
"""Of the 52 bits of a mantissa those that numbers of 16 significant bits do not use."""


def met(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[float]:
    """The borders of one operator, 0.0 among them where it has others than numbers of its own."""
    name = _stepping(func, kwargs)
    if name == "_to_copy":
        return {0.0} if args[0].is_floating_point() and _coarse(kwargs.get("dtype"), args[0].dtype) else set()
    if name in POLES:
        return set(POLES[name])
    if name in COUNTED:
        return _edges(name, args, kwargs)
    if steps.jumps(name, args):
        return _few(steps.met(name, args))
    if name not in COMPARED and name not in STEPPED and name not in SIGNED:
        return set()
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if not any(tensor.is_floating_point() for tensor in tensors):
        return set()
    found = {0.0} if name in STEPPED or name in SIGNED or len(tensors) > 1 else set()
    if name in COMPARED:
        found |= _few(arg for arg in (*args, *kwargs.values()) if isinstance(arg, int | float))
        for tensor in tensors:
            if 0 < tensor.numel() <= MANY and tensor.is_floating_point():
                found |= _few(tensor.detach().reshape(-1).tolist())
    return found


def _edges(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[float]:
    """Of bins, where they do not follow from the values themselves."""
    bins = args[1] if len(args) > 1 else kwargs.get("bins", 100)
    if isinstance(bins, torch.Tensor):
        return _few(bins.detach().reshape(-1).tolist()) if 0 < bins.numel() <= MANY else set()
    places = (("min", 2), ("max", 3)) if name == "histc" else ()
    ends = [kwargs.get(key, args[at] if len(args) > at else 0) for key, at in places] or list(kwargs.get("range") or ())
    if len(ends) < 2 or ends[0] >= ends[1]:
        return set()
    low, high = map(float, ends)
    return _few(low + (high - low) * number / bins for number in range(bins + 1))


def jumps(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether rounding of what goes in may move what comes out far: it is compared, stepped, or chosen among."""
    name = _stepping(func, kwargs)
    if name == "_to_copy":
        return bool(met(func, args, kwargs))
    if steps.jumps(name, args):
        return True
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    known = name in STEPPED or name in CHOOSING or name in COMPARED - SMOOTHLY or name in COUNTED
    return known and any(tensor.is_floating_point() for tensor in tensors)


def _coarse(wanted: torch.dtype | None, given: torch.dtype) -> bool:
    """Whether a float that is made one of this type falls on steps: whole numbers, or floats of one byte, which the
    oracle keeps (halves it makes double)."""
    if wanted is None or wanted is given:
        return False
    return wanted.itemsize == 1 if wanted.is_floating_point else not wanted.is_complex


def reach(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """How many times as large the values would be that an operator compares with its furthest number; 0.0 where that
    is out of reach, or there is none."""
    if named(func) not in COMPARED or not isinstance(args[0], torch.Tensor) or not args[0].is_floating_point():
        return 0.0
    numbers = [abs(float(n)) for n in (*args[1:], *kwargs.values()) if isinstance(n, int | float)]
    values = args[0].detach()
    values = values[torch.isfinite(values)]
    top = max(map(abs, map(float, torch.aminmax(values)))) if values.numel() else 0.0
    return max((n / top for n in numbers if top > 0 and n <= REACH * top), default=0.0)


def depth(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """How many times as small the values would be, all of them, that an operator guards against zero; 1.0 where it
    does not, or that is out of reach."""
    if named(func) not in GUARDS or args[0].dtype not in (torch.float32, torch.float64):
        return 1.0
    given = [n.item() if isinstance(n, torch.Tensor) and n.dim() == 0 else n for n in (*args[1:2], kwargs.get("min"))]
    numbers = [n for n in given if isinstance(n, float) and n > 0]
    if not numbers:
        return 1.0
    values = args[0].detach()
    values = values[torch.isfinite(values)]
    top = max(map(abs, map(float, torch.aminmax(values)))) if values.numel() else 0.0
    share = numbers[0] / top if top > 0 else 1.0
    return share if DEEPEST <= share <= SMALL else 1.0


def exponential(func: Any) -> bool:
    """Whether an operator makes exponentials, of which small ones beside large ones count as much."""
    return named(func) in EXPONENTIAL


def named(func: Any) -> str:
    """The name of an operator, without its overload or what says that it writes in place."""
    return str(func._schema.name).removeprefix("aten::").rstrip("_")


def _stepping(func: Any, kwargs: Mapping[str, Any]) -> str:
    """Its name, or where it divides and rounds that of the operator that does both."""
    name = named(func)
    return "floor_divide" if name == "div" and kwargs.get("rounding_mode") else name


def _few(numbers: Iterable[float]) -> set[float]:
    """Those of at most 16 significant bits: 0.3 is another number in float32 than in float64, and no border in both."""
    return {float(n) for n in numbers if not isinstance(n, bool) and _is_few(float(n))}


def _is_few(number: float) -> bool:
    return math.isfinite(number) and (math.frexp(number)[0] * 2**16).is_integer()


def planted(leaf: torch.Tensor, borders: Sequence[float], rng: torch.Generator) -> torch.Tensor:
    """A floating leaf, some elements of which are multiples of one half, or of less, or borders; no new signs (zeros
    have either), none beyond twice its size."""
    chance = torch.rand(leaf.shape, generator=rng, device=leaf.device)
    steps = 0.5 ** torch.randint(2, FINEST + 1, leaf.shape, generator=rng, device=leaf.device).to(torch.float64)
    wide = leaf.to(torch.float64)
    made = torch.where(chance < HALVES, (wide * 2).round() / 2, (wide / steps).round() * steps)
    low, high = (float(end) for end in torch.aminmax(leaf))
    most = 2 * max(abs(low), abs(high))
    near = [value for value in borders if abs(value) <= most and (value > 0 or low < 0 or value == low == 0)]
    if near:
        which = torch.randint(len(near), leaf.shape, generator=rng, device=leaf.device)
        numbers = torch.tensor(near, dtype=torch.float64, device=leaf.device)[which]
        signs = 1.0 - 2.0 * (torch.rand(leaf.shape, generator=rng, device=leaf.device) < 0.5) * (low < 0)
        numbers = torch.where(numbers == 0, torch.copysign(numbers, signs), numbers)
        made = torch.where(chance < HALVES + FINE, made, numbers)
    kept = (chance >= HALVES + FINE + (PLANTED if near else 0.0)) | ((made == 0) & (low > 0))
    return torch.where(kept, leaf, made.to(leaf.dtype))


def few_bits(values: torch.Tensor) -> torch.Tensor:
    """Which elements of a float64 tensor have at most 16 significant bits."""
    return (values.view(torch.int64) & _LOW) == 0


def exact(func: Any, args: Sequence[Any]) -> bool:
    """Whether what an operator makes of numbers of few bits, where it has few bits too, is exact in every program."""
    numbers = [arg for arg in args if isinstance(arg, int | float)]
    if named(func) not in EXACTLY or not all(map(_is_few, map(float, numbers))):
        return False
    return named(func) != "div" or all(abs(math.frexp(float(number))[0]) == 0.5 for number in numbers)


def divisor(func: Any, args: Sequence[Any]) -> torch.Tensor | None:
    """The numbers that an operator divides by, each element by one of its own."""
    return args[1] if named(func) == "div" and isinstance(args[1], torch.Tensor) else None


def kept(before: torch.Tensor, moved: torch.Tensor, over: torch.Tensor | None = None) -> torch.Tensor:
    """``moved``, written over by what was ``before`` where that has few bits. Of a quotient ``over`` other numbers,
    where these are powers of two: 174 / 3 is 58, and 174 times a third of float32 is another number."""
    with _disable_current_modes():  # who draws the honest error watches all operators, and lets nobody read bits
        same = few_bits(before)
        if over is not None:
            same = same & (torch.frexp(over.to(torch.float64)).mantissa.abs() == 0.5)
        return moved.copy_(torch.where(same, before, moved))
