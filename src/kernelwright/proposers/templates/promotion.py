# SPDX-License-Identifier: Apache-2.0
"""In which type torch computes: promotion of operands, and values brought to a type."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.proposers.templates.ir import BOOL, F32, F64, INTEGERS
from kernelwright.proposers.templates.space import Growing, Handle, NotFusible

KINDS = {
    "float32": F32, "float16": F32, "bfloat16": F32, "float64": F64, "bool": BOOL,
    "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
}  # fmt: skip
"""torch's names of types to those of values; the short floats are read into float32 and rounded where written."""

BITS = {"u8": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
LARGEST = 2**53
"""Literals are kept as float64, in which larger integers are not exact."""


def kind(dtype: torch.dtype) -> str:
    """The type of values for a torch type, or an empty string."""
    return KINDS.get(str(dtype).removeprefix("torch."), "")


def common(*args: Any) -> str:
    """The type to which torch brings some arguments of a node before it computes, or an empty string."""
    shown = [_shown(arg) for arg in args]
    found = shown[0].dtype if len(shown) == 1 and isinstance(shown[0], torch.Tensor) else None
    return kind(found if found is not None else torch.result_type(shown[0], shown[1]))


def _shown(arg: Any) -> Any:
    """What of an argument decides: a tensor's type and whether it has dimensions, a number's class."""
    value = arg.meta.get("val") if isinstance(arg, torch.fx.Node) else arg
    if isinstance(value, torch.Tensor):
        return torch.empty((1,) * value.dim(), dtype=value.dtype, device="meta")
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, torch.SymInt):
        return 1
    raise NotFusible("neither tensor nor number")


def real(node: torch.fx.Node) -> str:
    """float64 where that is among what a node reads and gives, float32 for other floats, or an empty string."""
    shown = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    found = {kind(value.dtype) for value in shown if isinstance(value, torch.Tensor)}
    found |= {kind(value[0].dtype) for value in shown if isinstance(value, (tuple, list)) and _tensors(value)}
    return F64 if F64 in found else F32 if F32 in found else ""


def _tensors(value: Any) -> bool:
    return bool(value) and isinstance(value[0], torch.Tensor)


def whole(*args: Any) -> str:
    """The integer type in which torch computes over these arguments, or an empty string for any other."""
    found = common(*args)
    return found if found in INTEGERS else ""


def limits(dtype: str) -> tuple[int, int]:
    """(smallest, largest) of an integer type."""
    return (0, 255) if dtype == "u8" else (-(2 ** (BITS[dtype] - 1)), 2 ** (BITS[dtype] - 1) - 1)


def integral(number: Any, dtype: str) -> int:
    """A literal that an integer type holds as it is; torch wraps or refuses others, by operation and version."""
    least, most = limits(dtype)
    if number != number or abs(number) > LARGEST or number != int(number) or not least <= number <= most:
        raise NotFusible("a number outside the type")
    return int(number)


def brought(r: Growing, x: Handle, dtype: str) -> Handle:
    """The value in another type, as torch converts it. Raises NotFusible for floats as integers.

    What such a conversion does with values outside the type depends on the processor.
    """
    value = r.values[x.value]
    if value.dtype == dtype:
        return x
    if value.op == "const" and dtype in INTEGERS:
        return r.const(integral(value.number, dtype), dtype)
    if value.op == "const" and value.dtype == r.float_type and dtype == BOOL:
        return r.const(float(value.number != 0), BOOL)
    if (
        value.op == "scalar"
        or (value.dtype == r.float_type and dtype in INTEGERS)
        or dtype in {F32, F64} - {r.float_type}
    ):
        raise NotFusible("a float as an integer")
    return r.apply("cast", x, dtype=dtype)


def pair(r: Growing, a: Handle, b: Handle, dtype: str) -> tuple[Handle, Handle]:
    """Two values in one type."""
    return brought(r, a, dtype), brought(r, b, dtype)
