# SPDX-License-Identifier: Apache-2.0
"""The C declaration of a region's function, and what its caller has to hand over."""

from __future__ import annotations

from kernelwright.proposers.templates import cpp_half
from kernelwright.proposers.templates.cpp_expr import NotEmittable
from kernelwright.proposers.templates.ir import BAND, CYCLE, F32, F64, I64, READS, TILE, Region, Value

Types = tuple[tuple[str, ...], tuple[str, ...]]
"""torch's names of the types of inputs and outputs by slot; shorter tuples mean: as the region computes them."""
_CTYPES = {"i64": "int64_t", "bool": "uint8_t"}


def signature(name: str, region: Region, types: Types = ((), ())) -> str:
    """The C declaration: input pointers, output pointers, CYCLE periods, sizes, call-time scalars."""
    parts = []
    for index, value in sorted(inputs_of(region).items()):
        parts.append(f"const {_ctype(value, types[0], index)}* in{index}")
    for slot, position in enumerate(region.outputs):
        if region.values[position].dtype == I64 and region.values[position].op != "row_argmax":
            raise NotEmittable("an integer output")
        parts.append(f"{_ctype(region.values[position], types[1], slot)}* out{slot}")
    parts += [f"int64_t period{index}" for index in cycles_of(region)]
    parts += ["int64_t R", "int64_t C", "int64_t N"] + ["int64_t band"] * banded(region)
    parts += [f"double s{index}" for index in range(scalars_of(region))]
    return f'extern "C" void {name}({", ".join(parts)})'


def inputs_of(region: Region) -> dict[int, Value]:
    """Input slot to a value that reads it; one slot is read as one kind only, or by several indices."""
    found: dict[int, Value] = {}
    for value in region.values:
        if value.op in READS:
            if value.index in found and "input" in (value.op, found[value.index].op):
                raise NotEmittable("one tensor read in two ways")
            found[value.index] = value
    return found


def cycles_of(region: Region) -> list[int]:
    """Input slots that are read cyclically."""
    read = sorted(inputs_of(region).items())
    return [index for index, value in read if value.kind in (CYCLE, TILE, BAND) and value.op == "input"]


def banded(region: Region) -> bool:
    """Whether some values are shared by a band of columns."""
    return any(value.kind == BAND for value in region.values)


def scalars_of(region: Region) -> int:
    """How many numbers are handed over at the call."""
    return max((v.index + 1 for v in region.values if v.op == "scalar"), default=0)


def _ctype(value: Value, types: tuple[str, ...], slot: int) -> str:
    """Of the memory a value lies in: a float may be kept in half of it."""
    kept = types[slot] if slot < len(types) else ""
    if value.dtype == F64:
        return "float" if kept == "float32" else "double"
    return cpp_half.CTYPES.get(kept, "float") if value.dtype == F32 else _CTYPES[value.dtype]
