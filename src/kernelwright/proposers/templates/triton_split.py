# SPDX-License-Identifier: Apache-2.0
"""Few long rows, each shared by many programs: one kernel per level of dependent reductions, then one that writes.

A program takes one of S segments of a row and leaves a partial result per reduction of its level; every program of
the next kernel adds up its row's partials in the same order (no atomics: equal inputs give equal bits).
"""

from __future__ import annotations

from kernelwright.proposers.templates import ir, triton_kernels, triton_loops, triton_online, triton_ops
from kernelwright.proposers.templates.triton_kernels import Writer


def splittable(region: ir.Region) -> bool:
    """Whether rows can be shared: row reductions, none over everything, no place of a maximum and no scan."""
    ops = {value.op for value in region.values}
    return (
        bool(ops & ir.ROW_REDUCTIONS)
        and not ops & ir.TOTAL_REDUCTIONS
        and not ops & (ir.SCANS | {"row_argmax", "take", "bag"})
        and all(value.kind not in (ir.CYCLE, ir.TILE, ir.BAND) for value in region.values)
    )


def reductions(region: ir.Region) -> list[int]:
    """Positions of the row reductions: their order is that of the partial results in memory."""
    return [i for i, value in enumerate(region.values) if value.op in ir.ROW_REDUCTIONS]


def kernels(fused: ir.Fused, number: int, hint: str) -> str:
    """The text of ``_k<number>_0``, ``_k<number>_1`` ...: one per level, the last writes the outputs."""
    levels = max(triton_online.passes(fused.region))
    text = "\n\n\n".join(_kernel(fused, number, hint, level, level == levels) for level in range(levels + 1))
    return triton_ops.computed(fused.region, text)


def _kernel(fused: ir.Fused, number: int, hint: str, level: int, last: bool) -> str:
    region = fused.region
    known = triton_online.passes(region)
    writer = Writer(fused, triton_kernels.LOOP, hint)
    for line in ["cols = colsq * Q", *(_STRIPS if region.strided else _ROWS).split("\n"), *_SEGMENT.split("\n")]:
        writer.put(line)
    writer.low, writer.stop = "low", "high"
    _restore(writer, [i for i in reductions(region) if known[i] <= level])
    sums = [i for i in reductions(region) if known[i] == level + 1]
    full = [slot for slot, v in enumerate(region.outputs) if region.values[v].kind == ir.FULL]
    triton_loops.walk(writer, sums, full if last else [])
    _leave(writer, sums)
    if last:
        writer.put("rm = rm & (g == 0)")
        for slot, v in enumerate(region.outputs):
            if region.values[v].kind == ir.ROW:
                writer.store(slot)
    arguments = [*triton_kernels.signature(fused, True), "rows", "colsq", "inner"]
    arguments += [f"{name}: tl.constexpr" for name in ("Q", "R", "BLOCK", "S", "WIDE", "FREE")]
    return "\n".join(["@triton.jit", f"def _k{number}_{level}({', '.join(arguments)}):", *writer.lines])


_ROWS = """\
r = tl.program_id(0) // S + tl.arange(0, R)[:, None]
rm = r < rows
base = r.to(tl.int64) * cols"""
_STRIPS = """\
strips = tl.cdiv(inner, R)
outer = tl.program_id(0) // S // strips
i = tl.program_id(0) // S % strips * R + tl.arange(0, R)[:, None]
r = outer * inner + i
rm = i < inner
base = outer * tl.full((), 1, tl.int64) * cols * inner + i"""
_SEGMENT = """\
g = tl.program_id(0) % S
span = tl.cdiv(tl.cdiv(cols, BLOCK), S) * BLOCK
low = tl.minimum(g * span, cols)
high = tl.minimum(low + span, cols)
all = tl.arange(0, WIDE)[None, :]
each = (tl.minimum(all * span + span, cols) - tl.minimum(all * span, cols)).to(tl.float32)"""


def _restore(writer: Writer, known: list[int]) -> None:
    """Reductions of earlier levels, from the partial results of this row."""
    region = writer.region
    for merge in triton_online.merges(region):
        if merge.second in known:
            _restore_pair(writer, merge, region)
    for i in known:
        if i not in writer.names:
            how = region.values[i].op.removeprefix("row_")
            writer.put(f"v{i} = {triton_ops.REDUCE[how].format(_partial(region, i, how), 1)}[:, None]")
            writer.names[i] = f"v{i}"


def _leave(writer: Writer, sums: list[int]) -> None:
    """Partial results of this level, to memory."""
    region = writer.region
    for merge in triton_online.merges(region):
        if merge.second in sums:
            triton_online.leave(writer, merge)
    for i in sums:
        if f"x{i}" not in writer.left:
            how = region.values[i].op.removeprefix("row_")
            writer.put(f"x{i} = {triton_ops.REDUCE[how].format(f'w{i}', 1)}[:, None]")
        writer.put(f"tl.store(part + ({reductions(region).index(i)} * rows + r) * S + g, x{i}, mask=rm)")


def _partial(region: ir.Region, position: int, how: str) -> str:
    at = f"part + ({reductions(region).index(position)} * rows + r) * S + all"
    return f"tl.load({at}, mask=rm & (all < S), other={triton_ops.NEUTRAL[how]})"


def _restore_pair(writer: Writer, merge: triton_online.Merge, region: ir.Region) -> None:
    first, second = merge.first, merge.second
    if merge.kind == triton_online.SOFTMAX:
        writer.put(f"tops{first} = {_partial(region, first, 'max')}")
        writer.put(f"v{first} = tl.reduce(tops{first}, 1, _nan_max)[:, None]")
        writer.names[first] = f"v{first}"
        shares = f"{_partial(region, second, 'sum')} * libdevice.exp(tops{first} - v{first})"
    else:
        writer.put(f"sums{first} = {_partial(region, first, 'sum')}")
        writer.put(f"v{first} = tl.sum(sums{first}, 1)[:, None]")
        writer.names[first] = f"v{first}"
        center = writer.value(merge.center)
        writer.put(f"off{second} = tl.where(each > 0.0, sums{first} / tl.maximum(each, 1.0) - {center}, 0.0)")
        shares = f"{_partial(region, second, 'sum')} + off{second} * off{second} * each"
    writer.put(f"v{second} = tl.sum({shares}, 1)[:, None]")
    writer.names[second] = f"v{second}"


def launch(fused: ir.Fused, number: int, shape: tuple[int, int, int, int]) -> str:
    """Host text of ``_run<number>(inputs, scalars, outputs, rows, cols, inner)``; shape: R, BLOCK, WARPS, WAVES."""
    r, block, warps, waves = shape
    strided = fused.region.strided
    tiles = "rows // inner * -(-inner // r)" if strided else "rows"
    whole = " and inner % r == 0" if strided else ""
    inputs = [f"p{i}" for i in range(len(fused.inputs))]
    scalars = [f"s{i}" for i in range(len(fused.scalars))]
    outputs = [f"o{i}" for i in range(len(fused.region.outputs))]
    device = f"{(inputs + outputs)[0]}.device"
    levels = max(triton_online.passes(fused.region))
    passed = ", ".join([*inputs, *scalars, *outputs])
    lines = [
        f"def _run{number}({', '.join([*inputs, *scalars, *outputs, 'rows', 'cols', 'inner', 'band'])}):",
        f"    r, block, warps = {r}, {block}, {warps}",
        f"    tiles = {tiles}",
        f"    s = max(1, min(_programs(1 << 30, {waves}, {device}) // tiles, -(-cols // block)))",
        "    q = 4 if cols % 4 == 0 else 1",
        f"    free = cols % block == 0{whole}",
        "    wide = 1 << (s - 1).bit_length()",
        f"    part = torch.empty(({len(reductions(fused.region))}, rows, s), dtype=torch.float32, device={device})",
        f"    last = ({passed}, part, rows, cols // q, inner, q, r, block, s, wide, free)",
    ]
    lines += [f"    _start(_k{number}_{level}, tiles * s, warps, *last)" for level in range(levels + 1)]
    return triton_ops.computed(fused.region, "\n".join(lines))
