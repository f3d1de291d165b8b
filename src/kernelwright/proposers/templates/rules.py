# SPDX-License-Identifier: Apache-2.0
"""What each aten operation means in primitive ops; a rule raises NotFusible for arguments it does not cover."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

from kernelwright.proposers.templates.ir import COMPARE, F32, F64, I64
from kernelwright.proposers.templates.promotion import brought, kind, pair, whole
from kernelwright.proposers.templates.space import Growing, Handle, Logical, NotFusible


class Lowering(Protocol):
    """The part of the lowering that rules use."""

    here: Growing | None

    def operands(self, *args: Any) -> list[Handle]: ...

    def is_tensor(self, arg: Any) -> bool: ...

    def shape(self, arg: torch.fx.Node) -> tuple[str, ...]: ...

    def shape_of(self, node: torch.fx.Node) -> tuple[str, ...]: ...

    def vector(self, arg: Any, logical: Logical) -> Handle: ...

    def placed(self, arg: torch.fx.Node, logical: Logical) -> Handle: ...

    def table(self, arg: torch.fx.Node) -> str: ...


Rule = Callable[[Any, torch.fx.Node], Handle]
RULES: dict[str, Rule] = {}

SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def registrar(table: dict[str, Rule]) -> Callable[..., Callable[[Rule], Rule]]:
    """A decorator that enters a rule in a table under aten names without ``aten.`` and ``.default``."""

    def named(*names: str) -> Callable[[Rule], Rule]:
        def register(function: Rule) -> Rule:
            table.update(dict.fromkeys(names, function))
            return function

        return register

    return named


rule = registrar(RULES)


def arg(node: torch.fx.Node, position: int, name: str, default: Any = None) -> Any:
    """A positional or keyword argument of a node."""
    if len(node.args) > position:
        return node.args[position]
    return node.kwargs.get(name, default)


def region(low: Lowering) -> Growing:
    """The region being filled."""
    assert low.here is not None
    return low.here


def own_type(low: Lowering) -> torch.dtype:
    """torch's name of the type in which the region computes."""
    return torch.float64 if region(low).float_type == F64 else torch.float32


def number(value: Any) -> float:
    """A literal number, not a symbol."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotFusible("a number is needed")
    return float(value)


def _unary(op: str) -> Rule:
    def emit(low: Lowering, node: torch.fx.Node) -> Handle:
        (x,) = low.operands(node.args[0])
        r, dtype = region(low), whole(node.args[0])
        if dtype and op in ("neg", "abs"):
            return x if (op, dtype) == ("abs", "u8") else r.apply(op, x, dtype=dtype)
        if dtype and op == "relu":
            return r.apply("max", x, r.const(0.0, dtype), dtype=dtype)
        return r.apply(op, floats(low, x))

    return emit


def floats(low: Lowering, x: Handle) -> Handle:
    """The value in the region's own type; integers and booleans are cast as torch's promotion does."""
    return brought(region(low), x, region(low).float_type)


for _name, _op in {
    "neg": "neg", "abs": "abs", "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "log2": "log2",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "reciprocal": "reciprocal", "tanh": "tanh", "erf": "erf",
    "negative": "neg", "absolute": "abs",
    "sigmoid": "sigmoid", "relu": "relu", "floor": "floor", "ceil": "ceil", "round": "round", "trunc": "trunc",
}.items():  # fmt: skip
    RULES[_name] = _unary(_op)


def _small(r: Growing, x: Handle) -> bool:
    return r.values[x.value].op == "const" and abs(r.values[x.value].number) < 2**24


def _compared(literal: Any, beside: Any) -> Any:
    """A number as eager compares it: in the half precision of the tensor beside it, not in float32."""
    value = beside.meta.get("val") if isinstance(beside, torch.fx.Node) else None
    if (
        isinstance(literal, float)
        and isinstance(value, torch.Tensor)
        and value.dtype in (torch.float16, torch.bfloat16)
    ):
        return float(torch.tensor(literal, dtype=value.dtype))
    return literal


def _binary(op: str) -> Rule:
    def emit(low: Lowering, node: torch.fx.Node) -> Handle:
        given = node.args[0], node.args[1]
        a, b = low.operands(*(map(_compared, given, given[::-1]) if op in COMPARE else given))
        r = region(low)
        alpha = number(node.kwargs.get("alpha", 1))
        dtype = (whole(node.args[0], node.args[1]) if op != "div" else "") or r.float_type
        if op in COMPARE and dtype == I64 and any(_small(r, x) for x in (a, b)):
            dtype = r.float_type  # exact: no other integer is rounded to so small a one
        a, b = pair(r, a, b, dtype)
        if alpha != 1:
            b = r.apply("mul", b, brought(r, r.const(alpha), dtype), dtype=dtype)
        return r.apply(op, a, b, dtype=dtype)

    return emit


for _name, _op in {
    "add.Tensor": "add", "add.Scalar": "add", "sub.Tensor": "sub", "sub.Scalar": "sub", "mul.Tensor": "mul",
    "mul.Scalar": "mul", "div.Tensor": "div", "div.Scalar": "div", "maximum": "max", "minimum": "min",
    "multiply.Tensor": "mul", "multiply.Scalar": "mul", "subtract.Tensor": "sub", "subtract.Scalar": "sub",
    "divide.Tensor": "div", "divide.Scalar": "div", "true_divide.Tensor": "div", "true_divide.Scalar": "div",
    "max.other": "max", "min.other": "min",
}.items():  # fmt: skip
    RULES[_name] = _binary(_op)

for _op in ("eq", "ne", "lt", "le", "gt", "ge"):
    RULES[f"{_op}.Tensor"] = RULES[f"{_op}.Scalar"] = _binary(_op)


@rule("rsub.Scalar", "rsub.Tensor")
def _rsub(low: Lowering, node: torch.fx.Node) -> Handle:
    a, b = low.operands(node.args[0], node.args[1])
    if number(arg(node, 2, "alpha", 1)) != 1:
        raise NotFusible("alpha")
    r, dtype = region(low), whole(node.args[0], node.args[1]) or region(low).float_type
    a, b = pair(r, a, b, dtype)
    return r.apply("sub", b, a, dtype=dtype)


@rule("pow.Tensor_Scalar")
def _pow(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r, power = region(low), number(node.args[1])
    if dtype := whole(node.args[0], node.args[1]):
        if power not in (2.0, 3.0):
            raise NotFusible("a power of integers that has no short product")
        square = r.apply("mul", x, x, dtype=dtype)
        return square if power == 2 else r.apply("mul", square, x, dtype=dtype)
    x = floats(low, x)
    if power == 0.5:
        return r.apply("sqrt", x)
    if power == -0.5:
        return r.apply("reciprocal", r.apply("sqrt", x))
    if power not in (1.0, 2.0, 3.0, 4.0, -1.0, -2.0):
        raise NotFusible("a power that has no short product")
    out = x
    square = r.apply("mul", x, x)
    if abs(power) == 2:
        out = square
    elif power == 3:
        out = r.apply("mul", square, x)
    elif power == 4:
        out = r.apply("mul", square, square)
    return r.apply("reciprocal", out) if power < 0 else out


@rule("square")
def _square(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    return region(low).apply("mul", x, x, dtype=whole(node.args[0]))


@rule("clamp", "hardtanh", "clamp_min", "clamp_max", "relu6")
def _clamp(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    name = str(node.target).removeprefix("aten.").removesuffix(".default")
    low_bound, high_bound = {
        "clamp": (arg(node, 1, "min"), arg(node, 2, "max")),
        "hardtanh": (arg(node, 1, "min_val", -1.0), arg(node, 2, "max_val", 1.0)),
        "clamp_min": (arg(node, 1, "min"), None),
        "clamp_max": (None, arg(node, 1, "max")),
        "relu6": (0.0, 6.0),
    }[name]
    r, dtype = region(low), kind(node.meta["val"].dtype)
    x = brought(r, x, dtype)
    for op, bound in (("max", low_bound), ("min", high_bound)):
        if bound is not None:
            x = r.apply(op, x, brought(r, r.const(number(bound)), dtype), dtype=dtype)
    return x


@rule("clamp.Tensor")
def _clamp_between(low: Lowering, node: torch.fx.Node) -> Handle:
    bounds = [(op, bound) for op, bound in (("max", arg(node, 1, "min")), ("min", arg(node, 2, "max"))) if bound]
    x, *limits = low.operands(node.args[0], *(bound for _, bound in bounds))
    r, dtype = region(low), kind(node.meta["val"].dtype)
    x = brought(r, x, dtype)
    for (op, _), limit in zip(bounds, limits, strict=True):
        x = r.apply(op, x, brought(r, limit, dtype), dtype=dtype)
    return x


@rule("where.self", "where.ScalarOther", "where.ScalarSelf")
def _where(low: Lowering, node: torch.fx.Node) -> Handle:
    condition, a, b = low.operands(*node.args[:3])
    r = region(low)
    if r.values[condition.value].dtype != "bool":
        raise NotFusible("where needs a bool")
    dtype = whole(*node.args[1:3]) or r.float_type
    return r.apply("where", condition, *pair(r, a, b, dtype), dtype=dtype)


@rule("masked_fill.Scalar")
def _masked_fill(low: Lowering, node: torch.fx.Node) -> Handle:
    x, mask = low.operands(node.args[0], node.args[1])
    r, dtype = region(low), whole(node.args[0]) or region(low).float_type
    return r.apply("where", mask, brought(r, r.const(number(node.args[2])), dtype), x, dtype=dtype)


_ROUNDED = {torch.float32: "", torch.float16: "as_f16", torch.bfloat16: "as_bf16"}
"""Values stay float32 inside a region; a cast that the reference wrote rounds them all the same."""


@rule("_to_copy", "to.dtype", "type_as")
def _cast(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    wanted = node.meta["val"].dtype
    r = region(low)
    if kind(wanted) not in (F32, F64):
        if not kind(wanted):
            raise NotFusible("a cast to another type")
        return brought(r, x, kind(wanted))
    x = floats(low, x)
    if r.float_type == F64:
        if wanted not in (torch.float64, torch.float32):
            raise NotFusible("rounded twice")
        return x if wanted == torch.float64 else r.apply("as_f32", x)
    return r.apply(_ROUNDED[wanted], x) if _ROUNDED[wanted] else x


@rule("gelu")
def _gelu(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    half = r.apply("mul", x, r.const(0.5))
    if arg(node, 1, "approximate", "none") == "tanh":
        cube = r.apply("mul", r.apply("mul", x, x), x)
        inner = r.apply("add", x, r.apply("mul", cube, r.const(0.044715)))
        bent = r.apply("tanh", r.apply("mul", inner, r.const(SQRT_2_OVER_PI)))
    else:
        bent = r.apply("erf", r.apply("mul", x, r.const(SQRT_HALF)))
    return r.apply("mul", half, r.apply("add", bent, r.const(1.0)))


@rule("silu")
def _silu(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    return r.apply("mul", x, r.apply("sigmoid", x))


def _softplus_of(r: Growing, x: Handle) -> Handle:
    """max(x, 0) + log1p(exp(-|x|)): no overflow, no cancellation."""
    tail = r.apply("log1p", r.apply("exp", r.apply("neg", r.apply("abs", x))))
    return r.apply("add", r.apply("relu", x), tail)


@rule("softplus")
def _softplus(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    if number(arg(node, 1, "beta", 1)) != 1:
        raise NotFusible("beta")
    threshold = r.const(number(arg(node, 2, "threshold", 20)))
    return r.apply("where", r.apply("gt", x, threshold), x, _softplus_of(r, x))


@rule("log_sigmoid")
def _log_sigmoid(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    return r.apply("neg", _softplus_of(r, r.apply("neg", x)))


@rule("mish")
def _mish(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    return r.apply("mul", x, r.apply("tanh", _softplus_of(r, x)))


@rule("leaky_relu")
def _leaky_relu(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    slope = r.const(number(arg(node, 1, "negative_slope", 0.01)))
    return r.apply("where", r.apply("gt", x, r.const(0.0)), x, r.apply("mul", x, slope))


@rule("elu")
def _elu(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    alpha, scale, inner = (number(arg(node, i, n, 1)) for i, n in ((1, "alpha"), (2, "scale"), (3, "input_scale")))
    negative = r.apply("mul", r.apply("expm1", r.apply("mul", x, r.const(inner))), r.const(alpha * scale))
    positive = r.apply("mul", x, r.const(scale))
    return r.apply("where", r.apply("gt", x, r.const(0.0)), positive, negative)


@rule("selu")
def _selu(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    negative = r.apply("mul", r.apply("expm1", x), r.const(alpha * scale))
    return r.apply("where", r.apply("gt", x, r.const(0.0)), r.apply("mul", x, r.const(scale)), negative)


@rule("hardswish", "hardsigmoid")
def _hard(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    six = r.apply("min", r.apply("max", r.apply("add", x, r.const(3.0)), r.const(0.0)), r.const(6.0))
    if "hardswish" in str(node.target):
        return r.apply("div", r.apply("mul", x, six), r.const(6.0))
    return r.apply("div", six, r.const(6.0))


@rule("softsign")
def _softsign(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    return r.apply("div", x, r.apply("add", r.apply("abs", x), r.const(1.0)))


@rule("unsqueeze", "squeeze.dim", "view", "reshape", "_unsafe_view", "squeeze", "squeeze.dims")
def _axes_only(low: Lowering, node: torch.fx.Node) -> Handle:
    """A reshape that merges dimensions or cuts them where they were merged; it must follow work in this region."""
    source = node.args[0]
    (x,) = low.operands(source)
    r = region(low)
    if r.values[x.value].op == "input":
        raise NotFusible("a view of something in memory stays a view")
    wanted = [size for size in low.shape_of(node) if size != "1"]
    axes = r.regroup(r.real(x.logical), wanted)
    left = iter(axes)
    logical = tuple(None if size == "1" else next(left) for size in low.shape_of(node))
    return Handle(x.value, logical)
