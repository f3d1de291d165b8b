# SPDX-License-Identifier: Apache-2.0
"""Triton text of each op of the fused form, as accurate as torch's own CUDA kernels.

Plain ``tl.exp``, ``/`` and ``tl.sqrt`` are the hardware's approximations and cost up to a bit against eager;
libdevice's functions, ``tl.div_rn`` and ``tl.sqrt_rn`` are what torch's kernels are compiled to.
"""

from __future__ import annotations

from math import inf, isnan

from kernelwright.proposers.templates import ir

HEADER = """
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _nan_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _times(a, b):
    return a * b


@triton.jit
def _floor_mod(a, b):
    # The sign of the divisor, as Python has it; the machine's has the sign of the dividend.
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def _floor_div(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), a // b - 1, a // b)


@triton.jit
def _keep(value, mask, neutral, FREE: tl.constexpr):
    if FREE:
        return value
    else:
        return tl.where(mask, value, neutral)


@triton.jit
def _and(a, b):
    if a is None:
        return b
    else:
        return a & b


@triton.jit
def _single(x):
    return x.to(tl.float32).to(x.dtype)


@triton.jit
def _quotient(a, b):
    # Of float64, whose plain division is rounded right.
    return a / b


@triton.jit
def _over(a, b):
    # a / b for one b per row: one reciprocal a row, then the correction step that rounds the quotient right.
    # b is first brought near 1 by a power of two, so that the reciprocal neither overflows nor loses bits.
    size = tl.abs(b)
    scale = tl.where(size < 2.0**-64, 2.0**64, tl.where(size > 2.0**64, 2.0**-64, 1.0))
    b = b * scale
    a = a * scale
    r = tl.div_rn(1.0, b)
    q = a * r
    e = tl.fma(-q, b, a)
    return tl.where(e == e, tl.fma(e, r, q), q)
"""

_UNARY = {
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "exp": "libdevice.exp({0})",
    "expm1": "libdevice.expm1({0})",
    "log": "libdevice.log({0})",
    "log1p": "libdevice.log1p({0})",
    "log2": "libdevice.log2({0})",
    "sqrt": "tl.sqrt_rn({0})",
    "rsqrt": "libdevice.rsqrt({0})",
    "reciprocal": "tl.div_rn(1.0, {0})",
    "tanh": "libdevice.tanh({0})",
    "erf": "libdevice.erf({0})",
    "sigmoid": "tl.div_rn(1.0, 1.0 + libdevice.exp(-{0}))",
    "relu": "tl.maximum({0}, 0.0, propagate_nan=tl.PropagateNan.ALL)",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "round": "libdevice.rint({0})",
    "trunc": "libdevice.trunc({0})",
    "sin": "libdevice.sin({0})",
    "cos": "libdevice.cos({0})",
    "as_f16": "{0}.to(tl.float16).to(tl.float32)",
    "as_bf16": "{0}.to(tl.bfloat16).to(tl.float32)",
    "as_f32": "_single({0})",
    "not": "({0} == 0)",
    "bit_not": "~{0}",
}
_BINARY = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "pow": "libdevice.pow({0}, {1})",
    "max": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "min": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "bit_and": "{0} & {1}",
    "bit_or": "{0} | {1}",
    "bit_xor": "{0} ^ {1}",
    "shl": "{0} << {1}",
    "shr": "{0} >> {1}",
    "trunc_div": "{0} // {1}",
    "trunc_mod": "{0} % {1}",
    "floor_div": "_floor_div({0}, {1})",
    "floor_mod": "_floor_mod({0}, {1})",
}
_TYPES = {
    ir.F32: "tl.float32", ir.F64: "tl.float32", ir.BOOL: "tl.int1",
    "u8": "tl.uint8", "i8": "tl.int8", "i16": "tl.int16", "i32": "tl.int32", ir.I64: "tl.int64",
}  # fmt: skip

REDUCE = {"sum": "tl.sum({0}, {1})", "max": "tl.reduce({0}, {1}, _nan_max)", "min": "tl.reduce({0}, {1}, _nan_min)"}
"""Reduction of one tile along an axis; max and min carry NaN as torch does."""

COMBINE = {"sum": "{0} + {1}", "max": "_nan_max({0}, {1})", "min": "_nan_min({0}, {1})"}
NEUTRAL = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}

_FLOAT_ONLY = frozenset(_UNARY) - {"neg", "abs", "not", "bit_not"} | {"div", "pow"}


def constant(value: ir.Value) -> str:
    """A literal, or a tensor where a bare literal would not do (-0.0, infinities, NaN)."""
    if value.dtype == ir.BOOL:
        return "True" if value.number else "False"
    if value.dtype in ir.INTEGERS:
        return f"tl.full((), {int(value.number)}, {_TYPES[value.dtype]})"
    if isnan(value.number) or abs(value.number) == inf:
        return f'tl.full((), float("{value.number}"), tl.float32)'
    return f"tl.full((), {value.number!r}, tl.float32)"


def expression(value: ir.Value, args: list[str], region: ir.Region) -> str:
    """The text of a pointwise op over argument texts."""
    if value.op == "where":
        return f"tl.where({args[0]}, {args[1]}, {args[2]})"
    if value.op == "cast":
        return f"({args[0]} != 0)" if value.dtype == ir.BOOL else f"{args[0]}.to({_TYPES[value.dtype]})"
    if value.op == "div":
        kinds = [region.values[arg].kind for arg in value.args]
        hoisted = kinds[0] == ir.FULL and kinds[1] in (ir.ROW, ir.SCALAR, ir.TOTAL)
        return f"{'_over' if hoisted else 'tl.div_rn'}({args[0]}, {args[1]})"
    table = _UNARY if value.op in _UNARY else _BINARY
    return table[value.op].format(*args)


_DOUBLE = {
    "tl.float32": "tl.float64",
    "torch.float32": "torch.float64",
    "tl.div_rn(": "_quotient(",
    "_over(": "_quotient(",
    "tl.sqrt_rn(": "tl.sqrt(",
}


def computed(region: ir.Region, text: str) -> str:
    """The text of a region's kernels or launches, written for float32, in the type that the region computes in."""
    if region.float_type == ir.F64:
        for single, double in _DOUBLE.items():
            text = text.replace(single, double)
    return text


def supported(region: ir.Region) -> bool:
    """Whether every op of the region has a text here, on operands of a type it is right for."""
    for value in region.values:
        if value.op in _FLOAT_ONLY and any(region.values[arg].dtype != region.float_type for arg in value.args):
            return False
        if value.op.startswith(("row_", "total_")) and region.values[value.args[0]].dtype != region.float_type:
            return False
    return all(value.op in ir.OPS for value in region.values)
