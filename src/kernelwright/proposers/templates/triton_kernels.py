# SPDX-License-Identifier: Apache-2.0
"""Triton kernels of one fused region: the device text, for each way of walking the rows x cols space.

========  =====================================================================================
style     one program does
========  =====================================================================================
flat      a run of BLOCK elements; no rows are known
tile      R rows x BLOCK columns; no row reductions
rows      R whole rows, each held in registers (BLOCK >= cols)
loop      R rows, read once per reduction that depends on another, BLOCK columns at a time
split     a segment of R rows (``triton_split``): several programs share a row
========  =====================================================================================

Every style walks tiles ``program_id, program_id + num_programs ...``, so one kernel serves a launch with one
program per tile and a persistent one. Reductions over everything leave one partial per program; a second
kernel of one program adds the partials in a fixed order (no atomics: equal inputs give equal bits).
"""

from __future__ import annotations

from kernelwright.proposers.templates import ir, triton_loops, triton_online, triton_ops, triton_scans

FLAT, TILE, ROWS, LOOP, SPLIT = "flat", "tile", "rows", "loop", "split"

_CYCLIC = (ir.CYCLE, ir.TILE, ir.BAND)
_OUTSIDE = (ir.ROW, ir.CYCLE, ir.SCALAR)
"""Kinds that do not change along a row."""


class Writer:
    """The lines of one kernel. ``names`` says which values are known at the next line, and by what name."""

    def __init__(self, fused: ir.Fused, style: str, hint: str = "") -> None:
        self.fused, self.region, self.style = fused, fused.region, style
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[int, str] = {}
        self.prefix, self.column, self.mask, self.hint = "v", "c", "m", hint
        self.low, self.stop = "0", "cols"
        """Where a loop over a row's columns begins and ends."""
        self.edge = "cm"
        """The mask of what is read by column alone."""
        self.looped = style == LOOP
        self.staged = False
        """Whether the launch says how many blocks of a looped row are in flight at once (STAGES)."""
        self.left: set[str] = set()
        """Partial results already written."""
        self.totals = [i for i, v in enumerate(self.region.values) if v.op in ir.TOTAL_REDUCTIONS]

    def put(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append("    " * self.depth + text)

    def value(self, position: int) -> str:
        """The name of a value, written now if it is not known yet."""
        if position in self.names:
            return self.names[position]
        value = self.region.values[position]
        if value.op == "input":
            text = self._load(value) + (".to(tl.float32)" if value.dtype in (ir.F32, ir.F64) else "")
        elif value.op == "const":
            text = triton_ops.constant(value)
        elif value.op == "scalar":
            # A float64 argument would arrive as a float32 one: there, sizes are handed over whole.
            text = f"s{value.index}" if value.dtype == ir.F32 else f"tl.full((), s{value.index}, tl.float32)"
        elif value.op in ir.ROW_REDUCTIONS:
            text = self._reduce(value)
        elif value.op == "pick":
            text = self._pick(value)
        elif value.op == "take":
            text = self._take(value, position, self.value(value.args[0]))
        elif value.op == "list":
            text = f"r * {self.value(value.args[0])}.to(tl.int64)"
        elif value.op == "bag":
            text = self._bag(value, position)
        elif value.op in ir.SCANS:
            text = triton_scans.running(self, position)
        else:
            text = triton_ops.expression(value, [self.value(arg) for arg in value.args], self.region)
        name = f"{self.prefix}{position}"
        self.put(f"{name} = {text}")
        self.names[position] = name
        return name

    def outside(self, position: int) -> None:
        """Write what the value needs and what does not change along a row, so that a loop need not repeat it."""
        value = self.region.values[position]
        if position in self.names or value.op in ir.TOTAL_REDUCTIONS:
            return
        if value.kind in _OUTSIDE:
            self.value(position)
            return
        for arg in value.args:
            self.outside(arg)

    def _load(self, value: ir.Value) -> str:
        pointer, hint = f"p{value.index}", f', eviction_policy="{self.hint}"' if self.hint else ""
        if value.kind == ir.SCALAR:
            return f"tl.load({pointer})"
        if self.style == FLAT:
            return f"tl.load({pointer} + at, mask=m{hint})"
        if value.kind == ir.FULL:
            step = f"{self.column} * inner" if self.region.strided else self.column
            return f"tl.load({pointer} + base + {step}, mask={self.mask}{hint})"
        if value.kind == ir.COLUMN:
            keep = ', eviction_policy="evict_last"' if self.prefix == "v" else ""
            return f"tl.load({pointer} + {self.column}, mask={self.edge}{keep})"
        if value.kind in (ir.TILE, ir.BAND):
            shared = "" if value.kind == ir.TILE else " // band"
            inside = "cols" if value.kind == ir.TILE else "(cols // band)"
            at = f"r % (y{value.index} // {inside}) * {inside} + {self.column}{shared}"
            return f"tl.load({pointer} + {at}, mask={self.mask})"
        row = "r" if value.kind == ir.ROW else f"r % y{value.index}"
        return f"tl.load({pointer} + {row}, mask=rm)"

    def _reduce(self, value: ir.Value) -> str:
        full = self.value(value.args[0])
        if value.op == "row_argmax":
            kept = f'_keep({full}, m, float("-inf"), FREE)'
            best = f"tl.reduce({kept}, 1, _nan_max, keep_dims=True)"
            self.put(f"b{value.args[0]} = {best}")
            hit = f"({full} == b{value.args[0]}) | ({full} != {full})"
            return f"tl.min(tl.where({hit}, c, cols), 1)[:, None].to(tl.int64)"
        how = value.op.removeprefix("row_")
        kept = f"_keep({full}, m, {triton_ops.NEUTRAL[how]}, FREE)"
        return triton_ops.REDUCE[how].format(kept, 1) + "[:, None]"

    def _pick(self, value: ir.Value) -> str:
        """The chain that makes the picked element, repeated for one column of each row: a few loads, no reduction."""
        index = self.value(value.args[1])
        self.outside(value.args[0])
        at = f"at{value.args[1]}"
        self.put(f"{at} = tl.minimum(tl.maximum({index}, 0), cols - 1)")
        return self.elsewhere(value.args[0], f"g{value.args[1]}_", (at, "rm", "rm"))

    def _take(self, value: ir.Value, position: int, index: str) -> str:
        """A row of a table, by the index that this row of the space has."""
        self.put(f"h{position} = {self.value(value.args[-1])}.to(tl.int64)")
        self.put(f"t{position} = {index}.to(tl.int64)")
        self.put(f"t{position} = tl.where(t{position} < 0, t{position} + h{position}, t{position})")
        self.put(f"t{position} = tl.minimum(tl.maximum(t{position}, 0), h{position} - 1)")
        return f"tl.load(p{value.index} + t{position} * cols + {self.column}, mask={self.mask}).to(tl.float32)"

    def _bag(self, value: ir.Value, position: int) -> str:
        """The sum of several such rows, 32 at a time: a long sum of one by one rounds too often."""
        begin, length, _ = (self.value(arg) for arg in value.args)
        members = f"p{self.region.values[value.args[0]].index}"
        self.put(f"n{position} = {length}.to(tl.int32)")
        self.put(f"b{position} = tl.zeros((R, BLOCK), tl.float32)")
        self.put(f"for e{position} in range(0, n{position}, 32):")
        self.depth += 1
        self.put(f"d{position} = tl.zeros((R, BLOCK), tl.float32)")
        self.put(f"for g{position} in range(e{position}, tl.minimum(e{position} + 32, n{position})):")
        self.depth += 1
        row = self._take(value, position, f"tl.load({members} + {begin} + g{position}, mask=rm)")
        self.put(f"d{position} += {row}")
        self.depth -= 1
        self.put(f"b{position} += d{position}")
        self.depth -= 1
        return f"b{position}"

    def elsewhere(self, position: int, prefix: str, at: tuple[str, str, str]) -> str:
        """The chain that makes a value, written again for other columns: ``at`` names them, their mask and edge."""
        before = self.names, self.prefix, self.column, self.mask, self.edge, self.hint
        self.prefix, self.hint = prefix, ""
        self.column, self.mask, self.edge = at
        self.names = {i: n for i, n in self.names.items() if self.region.values[i].kind in _OUTSIDE}
        text = self.value(position)
        self.names, self.prefix, self.column, self.mask, self.edge, self.hint = before
        return text

    def store(self, slot: int) -> None:
        """One output of the region, where its value is known."""
        value = self.region.values[self.region.outputs[slot]]
        name = self.value(self.region.outputs[slot])
        if self.style == FLAT:
            self.put(f"tl.store(o{slot} + at, {name}, mask=m)")
        elif value.kind == ir.FULL:
            step = "c * inner" if self.region.strided else "c"
            self.put(f"tl.store(o{slot} + base + {step}, {name}, mask=m)")
        else:
            guard = "rm" if self.style != TILE else "_and(rm, first)"
            self.put(f"tl.store(o{slot} + r, {name}, mask={guard})")

    def accumulate(self, position: int, target: str, shape_free: bool) -> None:
        """Fold a tile (or a value per row) into an accumulator of the same shape."""
        value = self.region.values[position]
        arg = self.value(value.args[0])
        how = value.op.split("_")[1]
        mask = "m" if self.region.values[value.args[0]].kind == ir.FULL else "rm"
        kept = f"_keep({arg}, {mask}, {triton_ops.NEUTRAL[how]}, FREE)" if shape_free else arg
        self.put(f"{target} = {triton_ops.COMBINE[how].format(target, kept)}")

    def head_rows(self) -> None:
        """What each row needs beside its own elements (an index, a picked element) is asked for before they arrive."""
        region = self.region
        for position, value in enumerate(region.values):
            reduced = any(region.values[i].op in ir.ROW_REDUCTIONS for i in triton_online.cone(region, position))
            if value.kind == ir.ROW and not reduced and (value.op == "pick" or self.style != TILE):
                self.value(position)

    def head_totals(self, shape: str) -> None:
        """Accumulators of what is added up over all rows."""
        for total in self.totals:
            how = self.region.values[total].op.removeprefix("total_")
            self.put(f"a{total} = tl.full({shape}, {triton_ops.NEUTRAL[how]}, tl.float32)")

    def open_rows(self, tiles: str) -> None:
        """From the tile number to the rows ``r``, their mask and the offset of their first element."""
        self.put(f"for tile in range(tl.program_id(0), {tiles}, tl.num_programs(0)):")
        self.depth += 1
        if self.style == TILE:
            self.put("across = tl.cdiv(cols, BLOCK)")
            self.put("down = tile // across")
            self.put("c = (tile % across) * BLOCK + tl.arange(0, BLOCK)[None, :]")
            self.put("first = tile % across == 0")
        tile = "down" if self.style == TILE else "tile"
        if self.region.strided:
            self.put("strips = tl.cdiv(inner, R)")
            self.put(f"i = ({tile} % strips) * R + tl.arange(0, R)[:, None]")
            self.put(f"r = ({tile} // strips) * inner + i")
            self.put("rm = None if FREE else i < inner")
            self.put(f"base = ({tile} // strips) * tl.full((), 1, tl.int64) * cols * inner + i")
        else:
            self.put(f"r = {tile} * R + tl.arange(0, R)[:, None]")
            self.put("rm = None if FREE else r < rows")
            self.put("base = r.to(tl.int64) * cols")

    def open_space(self, shape: str) -> None:
        """The loop over this program's tiles."""
        self.put("cols = colsq * Q")
        self.head_totals(shape)
        strips = "rows // inner * tl.cdiv(inner, R)" if self.region.strided else "tl.cdiv(rows, R)"
        self.open_rows(f"{strips} * tl.cdiv(cols, BLOCK)" if self.style == TILE else strips)

    def columns(self, start: str) -> None:
        """Columns of a block from ``start`` on, and the masks."""
        if start:
            self.put(f"c = {start} + tl.arange(0, BLOCK)[None, :]")
        self.put(f"cm = None if FREE else c < {self.stop}")
        self.put("m = None if FREE else rm & cm")

    def close_totals(self) -> None:
        """This program's share of what is added up over all rows."""
        self.depth = 1
        for k, total in enumerate(self.totals):
            how = self.region.values[total].op.removeprefix("total_")
            whole = triton_ops.REDUCE[how].format(triton_ops.REDUCE[how].format(f"a{total}", 1), 0)
            self.put(f"tl.store(part + {k} * tl.num_programs(0) + tl.program_id(0), {whole})")


def signature(fused: ir.Fused, partial: bool) -> list[str]:
    """The kernel's run-time arguments, in the order the launch passes them."""
    names = [f"p{i}" for i in range(len(fused.inputs))]
    names += [f"y{i}" for i in cycles(fused)]
    names += [f"s{i}" for i in range(len(fused.scalars))]
    names += [f"o{i}" for i, v in enumerate(fused.region.outputs) if fused.region.values[v].kind != ir.TOTAL]
    return names + (["part"] if partial else []) + (["band"] if banded(fused) else [])


def banded(fused: ir.Fused) -> bool:
    """Whether some inputs are shared by a band of columns."""
    return any(value.op == "input" and value.kind == ir.BAND for value in fused.region.values)


def cycles(fused: ir.Fused) -> list[int]:
    """Inputs read with a period."""
    return sorted({v.index for v in fused.region.values if v.op == "input" and v.kind in _CYCLIC})


def kernel(fused: ir.Fused, number: int, style: str, hint: str, early: bool = False, staged: bool = False) -> str:
    """The text of ``_k<number>`` in one style (its partial sums, if any, are finished by ``final``)."""
    writer = Writer(fused, style, hint)
    writer.staged = staged
    if style == FLAT:
        _flat(writer)
    elif style == LOOP:
        triton_loops.loop(writer, triton_online.early_slots(fused) if early else [])
    else:
        _tiles(writer)
    sizes = ["count"] if style == FLAT else ["rows", "colsq", "inner"]
    fixed = ["BLOCK", "FREE"] if style == FLAT else ["Q", "R", "BLOCK", "FREE"] + ["STAGES"] * staged
    arguments = signature(fused, bool(writer.totals)) + sizes + [f"{name}: tl.constexpr" for name in fixed]
    head = ["@triton.jit", f"def _k{number}({', '.join(arguments)}):"]
    return triton_ops.computed(fused.region, "\n".join(head + writer.lines))


def _flat(writer: Writer) -> None:
    writer.head_totals("(BLOCK,)")
    writer.put("for tile in range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0)):")
    writer.depth += 1
    writer.put("at = tile * tl.full((), BLOCK, tl.int64) + tl.arange(0, BLOCK)")
    writer.put("m = None if FREE else at < count")
    for total in writer.totals:
        writer.accumulate(total, f"a{total}", True)
    for slot, position in enumerate(writer.region.outputs):
        if writer.region.values[position].kind != ir.TOTAL:
            writer.store(slot)
    writer.depth -= 1
    for k, total in enumerate(writer.totals):
        how = writer.region.values[total].op.removeprefix("total_")
        whole = triton_ops.REDUCE[how].format(f"a{total}", 0)
        writer.put(f"tl.store(part + {k} * tl.num_programs(0) + tl.program_id(0), {whole})")


def _tiles(writer: Writer) -> None:
    """``tile`` and ``rows``: every value of a tile is in registers at once."""
    writer.open_space("(R, BLOCK)" if writer.style == TILE else "(R, 1)")
    writer.columns("" if writer.style == TILE else "0")
    writer.head_rows()
    for slot, position in enumerate(writer.region.outputs):
        if writer.region.values[position].kind != ir.TOTAL:
            writer.store(slot)
    for total in writer.totals:
        value = writer.region.values[total]
        if writer.style == ROWS and writer.region.values[value.args[0]].kind == ir.FULL:
            how = value.op.removeprefix("total_")
            arg = writer.value(value.args[0])
            kept = f"_keep({arg}, m, {triton_ops.NEUTRAL[how]}, FREE)"
            row = triton_ops.REDUCE[how].format(kept, 1) + "[:, None]"
            writer.put(f"a{total} = {triton_ops.COMBINE[how].format(f'a{total}', row)}")
        else:
            writer.accumulate(total, f"a{total}", True)
    writer.close_totals()


def final(fused: ir.Fused, number: int) -> str:
    """The text of ``_f<number>``: adds the partials and computes what follows, in one program."""
    writer = Writer(fused, FLAT)
    region = fused.region
    slots = [slot for slot, v in enumerate(region.outputs) if region.values[v].kind == ir.TOTAL]
    arguments = [f"p{i}" for i in range(len(fused.inputs))]
    arguments += [f"s{i}" for i in range(len(fused.scalars))] + [f"o{slot}" for slot in slots]
    arguments += ["part", "count", "BLOCK: tl.constexpr"]
    for k, total in enumerate(writer.totals):
        how = region.values[total].op.removeprefix("total_")
        neutral = triton_ops.NEUTRAL[how]
        writer.put(f"a{total} = tl.full((BLOCK,), {neutral}, tl.float32)")
        writer.put("for start in range(0, count, BLOCK):")
        writer.put("    i = start + tl.arange(0, BLOCK)")
        load = f"tl.load(part + {k} * count + i, mask=i < count, other={neutral})"
        writer.put(f"    a{total} = {triton_ops.COMBINE[how].format(f'a{total}', load)}")
        writer.put(f"v{total} = {triton_ops.REDUCE[how].format(f'a{total}', 0)}")
        writer.names[total] = f"v{total}"
    for slot in slots:
        writer.put(f"tl.store(o{slot}, {writer.value(region.outputs[slot])})")
    text = "\n".join(["@triton.jit", f"def _f{number}({', '.join(arguments)}):", *writer.lines])
    return triton_ops.computed(region, text)
