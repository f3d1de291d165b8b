# SPDX-License-Identifier: Apache-2.0
"""Which pass over a row computes which value of a region, and the C++ expression of each value."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.proposers.templates.ir import (
    BAND,
    BINARY,
    COLUMN,
    CYCLE,
    F32,
    F64,
    FULL,
    I64,
    ROW,
    ROW_REDUCTIONS,
    SCALAR,
    SCANS,
    TILE,
    TOTAL,
    TOTAL_REDUCTIONS,
    Region,
    Value,
)  # fmt: skip

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "and": "&", "or": "|",
}  # fmt: skip
COSTLY = frozenset("bag exp expm1 log log1p log2 tanh erf sigmoid sin cos pow".split())
DEAR = frozenset("div sqrt rsqrt reciprocal".split())


class NotEmittable(Exception):
    """The region has a value that this emitter has no code for."""


@dataclass
class Writer:
    """Lines of C++ with indentation."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0

    def add(self, text: str) -> None:
        """One line; a trailing brace opens a level, a leading one closes it."""
        if text.startswith("}"):
            self.depth -= 1
        self.lines.append("    " * self.depth + text)
        if text.endswith("{"):
            self.depth += 1


@dataclass(frozen=True)
class Plan:
    """When each value is known: ``stage[v]`` is the pass in which a FULL value can be computed, or before which
    a ROW value is known."""

    region: Region
    stage: tuple[int, ...]
    passes: int
    cached: frozenset[int]
    """FULL values kept in scratch from the pass of their stage to later passes."""


def plan(region: Region, cache_cost: int) -> Plan:
    """Stages by longest path through the row reductions; values whose repetition costs ``cache_cost`` are kept."""
    stage: list[int] = []
    for value in region.values:
        if value.op not in KNOWN:
            raise NotEmittable(value.op)
        base = max((stage[i] for i in value.args), default=0)
        picks_computed = value.op == "pick" and region.values[value.args[0]].op != "input"
        stage.append(base + (1 if value.op in ROW_REDUCTIONS or picks_computed else 0))
    needed = [stage[i] for i, v in enumerate(region.values) if _in_loop(v)]
    needed += [stage[i] - 1 for i, v in enumerate(region.values) if v.op in ROW_REDUCTIONS]
    passes = max((s for s in needed if s >= 0), default=-1) + 1
    return Plan(region, tuple(stage), passes, _kept(region, stage, cache_cost))


def _in_loop(value: Value) -> bool:
    return value.kind in (FULL, COLUMN, TILE)


def _kept(region: Region, stage: list[int], cache_cost: int) -> frozenset[int]:
    """FULL values read in a later pass than their own, where computing them again is dearer than a reload.

    In a strided region so are inputs: a row's elements lie a power of two apart and evict each other from cache.
    """
    late: dict[int, int] = {}
    for position, value in enumerate(region.values):
        use = stage[position] - (1 if value.op in ROW_REDUCTIONS or value.op == "pick" else 0)
        for arg in value.args:
            late[arg] = max(late.get(arg, 0), use)
    for position in region.outputs:
        late[position] = max(late.get(position, 0), stage[position])
    kept: set[int] = set()
    for position, value in enumerate(region.values):
        if value.kind != FULL or value.dtype not in (F32, F64) or not (value.args or region.strided):
            continue
        if region.strided and not value.args and late.get(position, 0) > 0:
            kept.add(position)
        elif late.get(position, 0) > stage[position] and _cost(region, position, kept) >= cache_cost:
            kept.add(position)
    return frozenset(kept)


def _cost(region: Region, position: int, kept: set[int]) -> int:
    """Rough cycles per vector to compute a FULL value again, inputs being in cache."""
    seen: set[int] = set()
    stack, total = [position], 0
    while stack:
        here = stack.pop()
        value = region.values[here]
        if here in seen or value.kind not in (FULL, COLUMN, TILE):
            continue
        seen.add(here)
        total += 12 if value.op in COSTLY or value.op in SCANS else 4 if value.op in DEAR else 1
        if here not in kept:
            stack.extend(value.args)
    return total


KNOWN = (
    BINARY
    | ROW_REDUCTIONS
    | TOTAL_REDUCTIONS
    | SCANS
    | frozenset(
        "input const scalar where cast pick take list bag not neg abs exp expm1 log log1p log2 sqrt rsqrt reciprocal"
        " tanh erf sigmoid relu floor ceil round trunc sin cos as_f16 as_bf16 as_f32".split()
    )
)


def number(value: float) -> str:
    """A float literal that C++ reads back exactly."""
    if value != value:
        return '__builtin_nanf("")'
    if value in (float("inf"), float("-inf")):
        return "-__builtin_inff()" if value < 0 else "__builtin_inff()"
    return f"(E){value!r}"


def expression(region: Region, position: int) -> str:
    """C++ of a pointwise value over the variables ``v<position>`` of its arguments."""
    value = region.values[position]
    names = [f"v{i}" for i in value.args]
    if value.op in _INFIX:
        return f"{names[0]} {_INFIX[value.op]} {names[1]}"
    if value.op == "neg":
        return f"-{names[0]}"
    if value.op == "not":
        return f"~{names[0]}"
    if value.op == "where":
        return f"kw_select({', '.join(names)})"
    if value.op == "cast":
        return _cast(region.values[value.args[0]], value, names[0])
    return f"kw_{value.op}({', '.join(names)})"


def _cast(source: Value, value: Value, name: str) -> str:
    if value.dtype in (F32, F64) and source.dtype == "bool":
        return f"kw_select({name}, kw_splat(1.0f), V{{}})"
    if value.dtype in (F32, F64) and source.dtype == I64 and source.op == "input":
        return f"kw_splat((E){name})" if source.kind in (ROW, CYCLE, SCALAR) else name
    if value.dtype == "bool" and source.dtype in (F32, F64):
        return f"{name} != 0.0f"
    if value.dtype == source.dtype:
        return name
    raise NotEmittable(f"cast from {source.dtype} to {value.dtype}")


def declared(value: Value) -> str:
    """The C++ type of a value's variable."""
    if value.dtype == I64 and value.kind in (ROW, CYCLE, SCALAR):
        return "int64_t"
    return "I" if value.dtype == "bool" else "V"


def hoisted(value: Value) -> bool:
    """Whether the value is computed outside the loop over a row."""
    return value.kind in (ROW, CYCLE, BAND, SCALAR, TOTAL)
