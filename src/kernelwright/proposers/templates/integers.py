# SPDX-License-Identifier: Apache-2.0
"""What aten's operations on integers mean in primitive ops; what depends on a processor or raises is not covered."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.proposers.templates.ir import BOOL
from kernelwright.proposers.templates.promotion import BITS, brought, integral, pair, whole
from kernelwright.proposers.templates.rules import Lowering, Rule, arg, region, registrar
from kernelwright.proposers.templates.space import Handle, NotFusible

RULES: dict[str, Rule] = {}
rule = registrar(RULES)

_BITWISE = {"xor": ("bit_xor", "ne"), "and": ("bit_and", "and"), "or": ("bit_or", "or")}
"""Part of an operation's name to the op on integers and the op on booleans."""


@rule(
    "bitwise_and.Tensor", "bitwise_and.Scalar", "__and__.Tensor", "__and__.Scalar", "logical_and",
    "bitwise_or.Tensor", "bitwise_or.Scalar", "__or__.Tensor", "__or__.Scalar", "logical_or",
    "bitwise_xor.Tensor", "bitwise_xor.Scalar", "__xor__.Tensor", "__xor__.Scalar", "logical_xor",
)  # fmt: skip
def _bitwise(low: Lowering, node: torch.fx.Node) -> Handle:
    a, b = low.operands(node.args[0], node.args[1])
    r = region(low)
    name = str(node.target).split(".")[1]
    of_integers, of_booleans = next(ops for part, ops in _BITWISE.items() if part in name)
    if "logical" in name:
        a, b = pair(r, a, b, BOOL)
    if {r.values[a.value].dtype, r.values[b.value].dtype} == {BOOL}:
        return r.apply(of_booleans, a, b)
    dtype = whole(node.args[0], node.args[1])
    if not dtype:
        raise NotFusible("bits of floats")
    return r.apply(of_integers, *pair(r, a, b, dtype), dtype=dtype)


@rule("logical_not", "bitwise_not")
def _not(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    if "logical" in str(node.target) or r.values[x.value].dtype == BOOL:
        return r.apply("not", brought(r, x, BOOL))
    dtype = whole(node.args[0])
    if not dtype:
        raise NotFusible("bits of floats")
    return r.apply("bit_not", x, dtype=dtype)


@rule("bitwise_left_shift.Tensor_Scalar", "__lshift__.Scalar", "bitwise_right_shift.Tensor_Scalar", "__rshift__.Scalar")
def _shift(low: Lowering, node: torch.fx.Node) -> Handle:
    """By a literal from 0 to the width; what torch does beyond it differs between devices."""
    (x,) = low.operands(node.args[0])
    dtype, by = whole(node.args[0]), node.args[1]
    if not dtype or not isinstance(by, int) or not 0 <= by < BITS[dtype] - (dtype != "u8"):
        raise NotFusible("a shift by more than the width")
    r, name = region(low), str(node.target)
    return r.apply("shl" if "left" in name or "lshift" in name else "shr", x, r.const(by, dtype), dtype=dtype)


@rule("floor_divide", "floor_divide.Scalar", "div.Tensor_mode", "div.Scalar_mode", "remainder.Scalar", "fmod.Scalar")
def _divide(low: Lowering, node: torch.fx.Node) -> Handle:
    """By a literal: zero raises on one device and not on the other, and the smallest number by -1 is in no type."""
    (x,) = low.operands(node.args[0])
    name, by = str(node.target), node.args[1]
    dtype = whole(node.args[0], by)
    if not dtype or isinstance(by, bool) or not isinstance(by, int) or integral(by, dtype) in (0, -1):
        raise NotFusible("a divisor that is no literal of the type")
    how = arg(node, 2, "rounding_mode", "floor" if "floor" in name else None)
    op = {"remainder": "floor_mod", "fmod": "trunc_mod"}.get(name.split(".")[1]) or _QUOTIENTS.get(how)
    if op is None:
        raise NotFusible("a quotient with a fraction")
    r = region(low)
    return r.apply(op, brought(r, x, dtype), r.const(by, dtype), dtype=dtype)


_QUOTIENTS: dict[Any, str] = {"floor": "floor_div", "trunc": "trunc_div"}
