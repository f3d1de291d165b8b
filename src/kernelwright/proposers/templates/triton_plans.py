# SPDX-License-Identifier: Apache-2.0
"""Which Triton structures fit a program, the parameters each leaves open, and the plan of every fused step."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.proposers.templates import (
    ir,
    promotion,
    triton_kernels,
    triton_online,
    triton_ops,
    triton_scans,
    triton_split,
)
from kernelwright.proposers.templates.triton_module import Plan, Value, longest
from kernelwright.tuning import Parameter, Space

REGISTERS, LOOPED, SPLIT = "rowwise", "looped", "split"


def supported(program: ir.Program) -> bool:
    """Whether every fused step has a Triton text; false where there is nothing to fuse."""
    regions = list(program.regions())
    return (
        bool(regions)
        and all(_has_text(fused.region) for fused in regions)
        and all(source.tensor.dtype in promotion.KINDS for source in program.sources)
    )


def _has_text(region: ir.Region) -> bool:
    picked = {"bag", "pick"} <= {value.op for value in region.values}  # a bag is a tile, a picked element is not
    return (
        triton_ops.supported(region) and triton_scans.supported(region) and not _waits_for_total(region) and not picked
    )


def _waits_for_total(region: ir.Region) -> bool:
    """A value of many elements that needs a total: it would take a third kernel, which is not written."""
    return any(
        value.kind != ir.TOTAL and any(region.values[arg].kind == ir.TOTAL for arg in value.args)
        for value in region.values
    )


def power(number: int) -> int:
    """The smallest power of two that is not below ``number``."""
    return 1 << max(0, number - 1).bit_length()


def main_step(program: ir.Program) -> int:
    """The fused step with the largest space: the one whose parameters are searched."""
    sizes = {
        position: step.sample[0] * step.sample[1]
        for position, step in enumerate(program.steps)
        if isinstance(step, ir.Fused)
    }
    return max(sizes, key=lambda position: (sizes[position], -position))


def main_fused(program: ir.Program) -> ir.Fused:
    """The region of ``main_step``."""
    step = program.steps[main_step(program)]
    assert isinstance(step, ir.Fused)
    return step


def style_of(fused: ir.Fused, structure: str) -> str:
    """How one region is walked under a structure."""
    region = fused.region
    if region.flat:
        return triton_kernels.FLAT
    if structure == SPLIT and triton_split.splittable(region):
        return triton_kernels.SPLIT
    row_values = any(value.op in ir.ROW_REDUCTIONS | ir.SCANS for value in region.values)
    totals = [region.values[v.args[0]].kind for v in region.values if v.op in ir.TOTAL_REDUCTIONS]
    if not row_values and ir.ROW not in totals and not any(v.op == "pick" for v in region.values):
        return triton_kernels.TILE
    if structure == LOOPED or fused.sample[1] > (256 if region.strided else longest(region)):
        return triton_kernels.LOOP
    return triton_kernels.ROWS


def structures(program: ir.Program) -> list[str]:
    """Names of the structures that apply, best guess first."""
    if not supported(program):
        return []
    regions = list(program.regions())
    styles = {style_of(fused, REGISTERS) for fused in regions}
    split = [SPLIT] if shared(main_fused(program)) else []
    if triton_kernels.ROWS not in styles:
        return [LOOPED if triton_kernels.LOOP in styles else REGISTERS, *split]
    wide = max(f.sample[1] for f in regions) > 1024
    return [REGISTERS, LOOPED, *split] if wide else [REGISTERS, *split]


def shared(fused: ir.Fused) -> bool:
    """Rows so few and long that one program for each would leave most of a device idle."""
    rows, cols, inner = fused.sample
    if not triton_split.splittable(fused.region) or rows * cols < 1 << 20:
        return False
    if fused.region.strided:
        return rows // inner * -(-inner // 128) <= 264 and cols >= 1024
    return rows <= 128 and cols >= 8192


def _wide(fused: ir.Fused) -> int:
    """How many times more elements a thread takes than of four bytes, so that loads stay 16 bytes wide.

    Bytes that become floats are not among the short: a thread would make more results than one store takes.
    """
    if any(tensor.dtype in ("float16", "bfloat16") for tensor in fused.outputs):
        return 2
    moved = [
        _BYTES.get(value.dtype, 4) for value in fused.region.values if value.op == "input" and value.kind == ir.FULL
    ]
    moved += [_BYTES.get(promotion.KINDS[tensor.dtype], 4) for tensor in fused.outputs]
    return 4 // max(moved)


_BYTES = {"u8": 1, "i8": 1, ir.BOOL: 1, "i16": 2}


def defaults(fused: ir.Fused, style: str) -> dict[str, Value]:
    """Parameters that are good without a search, for the sizes of the timed case."""
    rows, cols, inner = fused.sample
    unit = _wide(fused)
    totals = any(value.op in ir.TOTAL_REDUCTIONS for value in fused.region.values)
    waves = 16 if totals else 0
    if style == triton_kernels.FLAT:
        block, warps = (4096, 32) if totals else (1024 * unit, 8)
        return {"R": 1, "BLOCK": block, "WARPS": warps, "WAVES": waves, "HINT": ""}
    if style == triton_kernels.SPLIT:
        if fused.region.strided:
            r = min(128, power(inner))
            return {"R": r, "BLOCK": max(16, 2048 // r), "WARPS": 4, "WAVES": 8, "HINT": ""}
        return {"R": 1, "BLOCK": min(power(cols), 2048), "WARPS": 8, "WAVES": 4, "HINT": ""}
    if fused.region.strided:
        r = min(128, power(inner))
        while r > 32 and rows // inner * -(-inner // r) < 264:
            r //= 2
        block = power(cols) if style == triton_kernels.ROWS else min(power(cols), 32)
        warps = min(32, max(4, power(r * block) // 2048))
        return {"R": r, "BLOCK": block, "WARPS": warps, "WAVES": waves, "HINT": ""}
    if style == triton_kernels.TILE:
        block = min(power(cols), 1024)
        r = max(1, min(power(rows), 2048 * unit // block))
        return {"R": r, "BLOCK": block, "WARPS": 8, "WAVES": waves, "HINT": ""}
    if style == triton_kernels.LOOP:
        waves = 64 if totals and only_reduces(fused) else waves
        return {"R": 1, **_loop_shape(fused, cols), "WAVES": waves, "HINT": ""}
    block = power(cols)
    r = max(1, 1024 * unit // block)
    written = any(fused.region.values[v].kind == ir.FULL for v in fused.region.outputs)
    values = (512 if written else 1024) * unit
    chosen: dict[str, Value] = {"R": r, "BLOCK": block, "WARPS": min(32, max(4, r * block // values))}
    return {**chosen, "WAVES": waves, "HINT": ""}


def _loop_shape(fused: ir.Fused, cols: int) -> dict[str, Value]:
    """BLOCK, WARPS, EARLY and STAGES of a looped row, from sweeps on an H200 (rows of 8192 to 131072 float32)."""
    region, stages = fused.region, 0
    if triton_online.early_slots(fused):
        block, warps, early = (8192, 32, True) if cols >= 32768 else (4096, 16, True)
    elif only_reduces(fused):
        block, warps, early, stages = (2048, 8, False, 3) if cols % 4 == 0 else (2048, 16, False, 0)
    elif any(merge.kind == triton_online.SOFTMAX for merge in triton_online.merges(region)):
        block, warps, early = 2048, 16, False
    else:
        block, warps, early = (8192 if cols >= 16384 else 4096), 16, False
    block = min(power(cols), block)
    return {"BLOCK": block, "WARPS": min(warps, max(4, block // 128)), "EARLY": early, "STAGES": stages}


def only_reduces(fused: ir.Fused) -> bool:
    """Whether rows are read and nothing of their size is written: how many loads are in flight is all that counts.

    Cross-entropy of 8192 rows of 32768 float32 on an H200: in registers 263 us, in blocks 263, with three of them in
    flight and 16 programs a multiprocessor 261, with a program for each row 250, and ``torch.sum`` takes 246 for the
    same bytes.
    """
    return all(fused.region.values[v].kind != ir.FULL for v in fused.region.outputs)


def _ordered(first: Value, others: tuple[Value, ...]) -> tuple[Value, ...]:
    return (first, *(value for value in others if value != first))


def space(program: ir.Program, structure: str) -> Space:
    """Open parameters of the main step; the first value of each is the default."""
    fused = main_fused(program)
    style = style_of(fused, structure)
    chosen = defaults(fused, style)
    options: dict[str, tuple[Value, ...]] = {
        "WARPS": (1, 2, 4, 8, 16, 32),
        "WAVES": (1, 2, 4, 8, 16) if chosen["WAVES"] else (0, 1, 2, 4, 8),
        "HINT": ("", "evict_first"),
    }
    if style in (triton_kernels.FLAT, triton_kernels.TILE, triton_kernels.LOOP, triton_kernels.SPLIT):
        widest = power(fused.sample[0] * fused.sample[1] if style == triton_kernels.FLAT else fused.sample[1])
        sizes = (16, 32, 64, 128) if fused.region.strided else (256, 512, 1024, 2048, 4096, 8192)
        options["BLOCK"] = tuple(b for b in sizes if b <= max(sizes[0], widest))
    else:
        options["BLOCK"] = (chosen["BLOCK"],)
    if chosen.get("EARLY"):
        options["EARLY"] = (True, False)
    if "STAGES" in chosen and not any(value.op in ir.SCANS for value in fused.region.values):
        options["STAGES"] = (0, 3, 4)
    if style != triton_kernels.FLAT and (style != triton_kernels.SPLIT or fused.region.strided):
        deepest = power(fused.sample[2] if fused.region.strided else fused.sample[0])
        options["R"] = tuple(r for r in (1, 2, 4, 8, 16, 32, 64, 128) if r <= deepest)
    parameters = [
        Parameter(name=name, values=_ordered(chosen[name], options[name]))
        for name in ("BLOCK", "R", "WARPS", "WAVES", "HINT", "EARLY", "STAGES")
        if name in options
    ]
    tile = "R * BLOCK" if "R" in options else "BLOCK"
    # Three inputs of 16384 float32 are what the shared memory of a multiprocessor holds.
    staged = (f"{tile} * STAGES <= 16384",) if "STAGES" in options else ()
    return Space(
        parameters=tuple(parameters), constraints=(f"{tile} >= 32 * WARPS", f"{tile} <= 2048 * WARPS", *staged)
    )


def plans(program: ir.Program, structure: str, values: Mapping[str, Value]) -> dict[int, Plan]:
    """The plan of every fused step: chosen values for the main one, defaults for the others."""
    main = main_step(program)
    found = {}
    for position, step in enumerate(program.steps):
        if isinstance(step, ir.Fused):
            alone = structure == SPLIT and position != main and not shared(step)
            style = style_of(step, REGISTERS if alone else structure)
            chosen = defaults(step, style)
            found[position] = Plan(style, {**chosen, **values} if position == main else chosen)
    return found
