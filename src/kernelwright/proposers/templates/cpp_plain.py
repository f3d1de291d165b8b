# SPDX-License-Identifier: Apache-2.0
"""A pointwise region with integers in it as C++: plain loops in the types themselves, which the compiler vectorises.

Integers wrap as torch's do: sums and products are formed without sign, where that is defined. A block of results is
made in the first-level cache and written past it where the output is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kernelwright.proposers.templates import cpp_half
from kernelwright.proposers.templates.cpp import Knobs
from kernelwright.proposers.templates.cpp_expr import NotEmittable, Writer, number
from kernelwright.proposers.templates.cpp_signature import Types, cycles_of, inputs_of, scalars_of
from kernelwright.proposers.templates.ir import (
    BITS,
    BOOL,
    BY_CONST,
    COLUMN,
    COMPARE,
    CYCLE,
    F32,
    F64,
    FULL,
    I64,
    INTEGERS,
    ROW,
    SCALAR,
    TILE,
    Region,
    Value,
)  # fmt: skip
from kernelwright.proposers.templates.space import Growing

CTYPES = {F32: "float", F64: "double", BOOL: "uint8_t", "u8": "uint8_t", "i8": "int8_t", "i16": "int16_t",
          "i32": "int32_t", I64: "int64_t"}  # fmt: skip
PAST = 8 << 20
"""Bytes of a result from which it is written past the cache, as by the kernels of floats."""
BUFFER = 8192
"""Bytes of a result made in cache before it is written past it."""

_INFIX = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "&", "or": "|",
          "bit_and": "&", "bit_or": "|", "bit_xor": "^", "add": "+", "sub": "-", "mul": "*", "div": "/"}  # fmt: skip
_FLOATS = {"neg": "-{0}", "abs": "__builtin_fabs{f}({0})", "sqrt": "__builtin_sqrt{f}({0})", "reciprocal": "1 / {0}",
           "floor": "__builtin_floor{f}({0})", "ceil": "__builtin_ceil{f}({0})", "trunc": "__builtin_trunc{f}({0})",
           "round": "__builtin_rint{f}({0})", "relu": "{0} < 0 ? 0 : {0}",
           "max": "({0} > {1} || {0} != {0}) ? {0} : {1}",
           "min": "({0} < {1} || {0} != {0}) ? {0} : {1}"}  # fmt: skip
_WHOLE = frozenset("add sub mul neg abs max min bit_not".split()) | BITS | BY_CONST
_KINDS = frozenset({FULL, ROW, COLUMN, CYCLE, TILE, SCALAR})


class _Typed(Protocol):
    """What values have in common while their region grows and when it is finished."""

    @property
    def op(self) -> str: ...

    @property
    def args(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...


def typed(values: Sequence[_Typed]) -> bool:
    """Whether something is computed in integers, or read from those that the vectors of floats have no code for."""
    for value in values:
        if value.dtype in INTEGERS and (value.op not in ("input", "list", "row_argmax") or value.dtype != I64):
            return True
        if value.op == "cast" and value.dtype == BOOL and values[value.args[0]].dtype in INTEGERS:
            return True
    return False


def fits(values: Sequence[_Typed]) -> bool:
    """Whether every op has a text here; functions of floats that the compiler cannot vectorise have none."""
    for value in values:
        known = value.op in ("input", "const", "scalar", "where", "cast", "not") or value.op in _INFIX
        if not known and value.op not in (_WHOLE if value.dtype in INTEGERS else _FLOATS):
            return False
        if value.op in COMPARE and len({values[arg].dtype for arg in value.args}) > 1:
            return False
    return True


SLOW_DOUBLES = frozenset("erf sin cos pow log2 as_f16 as_bf16".split())
"""Functions of float64 without vectors here; torch has them."""


def has_text(region: Growing) -> bool:
    """Whether the code for the CPU covers every op of a region that is growing, in the types they have there."""
    if typed(region.values):
        return fits(region.values)
    return region.float_type == F32 or not any(value.op in SLOW_DOUBLES for value in region.values)


def expression(region: Region, position: int) -> str:
    """C++ of a pointwise value over the variables ``v<position>`` of its arguments."""
    value = region.values[position]
    names = [f"v{i}" for i in value.args]
    if value.op == "where":
        return f"{names[0]} ? {names[1]} : {names[2]}"
    if value.op == "not":
        return f"!{names[0]}"
    if value.op == "cast":
        return f"{names[0]} != 0" if value.dtype == BOOL else f"({CTYPES[value.dtype]}){names[0]}"
    if value.dtype in INTEGERS:
        return _whole(value, names)
    text = _FLOATS.get(value.op) if value.dtype in (F32, F64) else None
    return (
        text.format(*names, f="f" if value.dtype == F32 else "")
        if text
        else f"{names[0]} {_INFIX[value.op]} {names[1]}"
    )


def _whole(value: Value, names: list[str]) -> str:
    """An op of integers in their own type."""
    own = CTYPES[value.dtype]
    wide = "uint64_t" if value.dtype == I64 else "uint32_t"
    a, b = names[0], names[-1]
    if value.op in ("add", "sub", "mul"):
        return f"({own})(({wide}){a} {_INFIX[value.op]} ({wide}){b})"
    texts = {
        "neg": f"({own})(({wide})0 - ({wide}){a})",
        "abs": f"{a} < 0 ? ({own})(({wide})0 - ({wide}){a}) : {a}",
        "max": f"{a} > {b} ? {a} : {b}",
        "min": f"{a} < {b} ? {a} : {b}",
        "bit_not": f"({own})~{a}",
        "shl": f"({own})(({wide}){a} << {b})",
        "shr": f"({own})({a} >> {b})",
        "trunc_div": f"({own})({a} / {b})",
        "trunc_mod": f"({own})({a} % {b})",
        "floor_div": f"({own})({a} / {b} - (({a} % {b} != 0) & (({a} % {b} < 0) != ({b} < 0))))",
        "floor_mod": f"({own})({a} % {b} + ((({a} % {b} != 0) & (({a} % {b} < 0) != ({b} < 0))) ? {b} : 0))",
    }
    return texts.get(value.op) or f"({own})({a} {_INFIX[value.op]} {b})"


class Plain:
    """Emits one region; the interface is that of ``cpp.Kernel``."""

    def __init__(self, name: str, region: Region, knobs: Knobs, types: Types) -> None:
        if any(value.kind not in _KINDS for value in region.values) or region.strided:
            raise NotEmittable("integers in bands")
        self.name, self.region, self.knobs, self.types = name, region, knobs, types
        self.w = Writer()

    def source(self) -> str:
        """The function's text."""
        w, values = self.w, self.region.values
        w.add(f'extern "C" void {self.name}({", ".join(self._parameters())}) {{')
        w.add("(void)R; (void)C; (void)N;")
        for position, value in enumerate(values):
            if value.kind == SCALAR:
                self._define(position, "0", "0")
        if self.knobs.pages == "huge":
            for slot in self._full():
                w.add(f"kw_huge(out{slot}, R * C * (int64_t)sizeof(*out{slot}));")
        w.add("const int64_t " + ("rows = 1, cols = R * C;" if self.region.flat else "rows = R, cols = C;"))
        w.add(f"const int64_t unit = {self._unit()}, parts = (cols + unit - 1) / unit;")
        if self.knobs.stream and self._full():
            past = [f"(uintptr_t)out{s} % 64 == 0 && cols * sizeof(*out{s}) % 64 == 0" for s in self._full()]
            size = f"R * C * (int64_t)sizeof(*out{self._full()[0]})"
            w.add(f"const bool streaming = {size} >= {PAST} && {' && '.join(past)};")
        w.add(f"#pragma omp parallel for schedule(static) if (R * C >= {self.knobs.threshold})")
        w.add("for (int64_t block = 0; block < rows * parts; ++block) {")
        w.add("const int64_t r = block / parts, first = block % parts * unit;")
        w.add("const int64_t count = cols - first < unit ? cols - first : unit, at = r * cols + first;")
        w.add("(void)at;")
        self._block()
        w.add("}")
        w.add("}")
        return "\n".join(w.lines) + "\n"

    def _parameters(self) -> list[str]:
        parts = [f"const {self._ctype(v, self.types[0], i)}* in{i}" for i, v in sorted(inputs_of(self.region).items())]
        for slot, position in enumerate(self.region.outputs):
            parts.append(f"{self._ctype(self.region.values[position], self.types[1], slot)}* out{slot}")
        parts += [f"int64_t period{index}" for index in cycles_of(self.region)]
        parts += ["int64_t R", "int64_t C", "int64_t N"]
        return parts + [f"double s{index}" for index in range(scalars_of(self.region))]

    @staticmethod
    def _ctype(value: Value, types: tuple[str, ...], slot: int) -> str:
        kept = types[slot] if slot < len(types) else ""
        if kept in cpp_half.CTYPES:
            raise NotEmittable("short floats beside integers")
        return "float" if kept == "float32" else CTYPES[value.dtype]

    def _full(self) -> list[int]:
        return [s for s, p in enumerate(self.region.outputs) if self.region.values[p].kind == FULL]

    def _unit(self) -> int:
        """Elements of a block: a buffer's worth of the widest result."""
        wide = max((_bytes(self.region.values[self.region.outputs[s]]) for s in self._full()), default=1)
        return BUFFER // wide

    def _block(self) -> None:
        """One block of a row: what is known for all of it, then its elements."""
        w, values = self.w, self.region.values
        for position, value in enumerate(values):
            if value.kind in (ROW, CYCLE):
                self._define(position, "r", "0")
        for index, value in sorted(inputs_of(self.region).items()):
            if value.kind == TILE:
                w.add(f"const int64_t tile{index} = r % (period{index} / C) * C;")
        for slot, position in enumerate(self.region.outputs):
            if slot not in self._full():
                w.add(f"if (first == 0) out{slot}[r] = v{position};")
        if self._full():
            self._elements(self._full())

    def _elements(self, full: list[int]) -> None:
        """A block of the results that have a value for each element."""
        w, values = self.w, self.region.values
        if self.knobs.pages == "populate":
            for slot in full:
                w.add(f"kw_populate(out{slot} + at, count * (int64_t)sizeof(*out{slot}));")
        if not self.knobs.stream:
            self._loop({slot: f"(out{slot} + at)" for slot in full})
            return
        for slot in full:
            kind = CTYPES[values[self.region.outputs[slot]].dtype]
            w.add(f"alignas(64) {kind} made{slot}[{self._unit()}];")
        w.add("if (streaming) {")
        self._loop({slot: f"made{slot}" for slot in full})
        for slot in full:
            w.add(f"kw_past(out{slot} + at, made{slot}, count * (int64_t)sizeof(*out{slot}));")
        w.add("kw_fence();")
        w.add("} else {")
        self._loop({slot: f"(out{slot} + at)" for slot in full})
        w.add("}")

    def _loop(self, targets: dict[int, str]) -> None:
        """One run of elements. ``ivdep``: an output may lie over an input, element on element."""
        w = self.w
        w.add("#pragma GCC ivdep")
        w.add("for (int64_t i = 0; i < count; ++i) {")
        for position, value in enumerate(self.region.values):
            if value.kind in (FULL, COLUMN, TILE):
                self._define(position, "r", "i")
        for slot, target in targets.items():
            w.add(f"{target}[i] = v{self.region.outputs[slot]};")
        w.add("}")

    def _define(self, position: int, row: str, column: str) -> None:
        value = self.region.values[position]
        if value.op == "input":
            at = {FULL: f"at + {column}", ROW: row, COLUMN: f"first + {column}", SCALAR: "0",
                  CYCLE: f"{row} % period{value.index}",
                  TILE: f"tile{value.index} + first + {column}"}[value.kind]  # fmt: skip
            text = f"in{value.index}[{at}]"
        elif value.op == "const":
            text = number(value.number) if value.dtype in (F32, F64) else f"({CTYPES[value.dtype]}){int(value.number)}"
        elif value.op == "scalar":
            text = f"({CTYPES[value.dtype]})s{value.index}"
        else:
            text = expression(self.region, position)
        self.w.add(f"const {CTYPES[value.dtype]} v{position} = {text};")


def _bytes(value: Value) -> int:
    return {"u8": 1, "i8": 1, BOOL: 1, "i16": 2, I64: 8, F64: 8}.get(value.dtype, 4)


PRELUDE = r"""
// From the first-level cache past the others: whole lines, `to` aligned to one.
static void kw_past(void* to, const void* from, int64_t bytes) {
    E* p = (E*)to; const E* q = (const E*)from;
    const int64_t n = bytes / (int64_t)sizeof(E);
    for (int64_t i = 0; i < n; i += W) { V v; memcpy(&v, q + i, sizeof v); kw_stream(p + i, v); }
}
"""
