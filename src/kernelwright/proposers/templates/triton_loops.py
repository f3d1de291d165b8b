# SPDX-License-Identifier: Apache-2.0
"""Rows too long for registers, walked block by block, once per level of reductions that depend on each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.proposers.templates import ir, triton_online, triton_ops, triton_scans

if TYPE_CHECKING:
    from kernelwright.proposers.templates.triton_kernels import Writer


def loop(writer: Writer, early: list[int]) -> None:
    """One pass over the row per level of reductions; FULL values are recomputed in each pass that needs them.

    Outputs of ``early`` are written in the first pass and read back in the others.
    """
    region, level = writer.region, triton_online.passes(writer.region)
    writer.open_space("(R, 1)")
    writer.head_rows()
    hint = writer.hint
    wide = [t for t in writer.totals if region.values[region.values[t].args[0]].kind == ir.FULL]
    full = [slot for slot, position in enumerate(region.outputs) if region.values[position].kind == ir.FULL]
    # Everything is written in the last pass: writes in an earlier one push the row out of L2 before it is read again.
    written = max((level[region.outputs[slot]] for slot in full), default=0)
    for number in range(max(level) + 1):
        sums = [i for i, v in enumerate(region.values) if v.op in ir.ROW_REDUCTIONS and level[i] == number + 1]
        totals = [t for t in wide if level[t] == number]
        slots = [slot for slot in full if slot not in early] if number == written else []
        slots += early if number == 0 else []
        if not sums and not totals and not slots:
            continue
        again = "evict_first" if early and not number else "evict_last"
        writer.hint = hint if number == max(level) else again
        one_pass(writer, sums, totals, slots, early if number else [])
    writer.hint = hint
    for slot, position in enumerate(region.outputs):
        if region.values[position].kind == ir.ROW:
            writer.store(slot)
    for total in writer.totals:
        if total not in wide:
            writer.accumulate(total, f"a{total}", True)
    writer.close_totals()


def one_pass(writer: Writer, sums: list[int], totals: list[int], slots: list[int], again: list[int]) -> None:
    """One loop over the row; what ``sums`` and ``totals`` name is known, and ``slots`` are written, after it."""
    region = writer.region
    merged = walk(writer, sums + totals, slots, again)
    for merge in merged:
        triton_online.finish(writer, merge)
    for i in _alone(sums + totals, merged):
        if region.values[i].op == "row_argmax":
            triton_scans.close_place(writer, i)
            continue
        how = region.values[i].op.split("_")[1]
        whole = triton_ops.REDUCE[how].format(f"w{i}", 1) + "[:, None]"
        if i in totals:
            writer.put(f"a{i} = {triton_ops.COMBINE[how].format(f'a{i}', whole)}")
        else:
            writer.put(f"v{i} = {whole}")
            writer.names[i] = f"v{i}"


def _alone(sums: list[int], merged: list[triton_online.Merge]) -> list[int]:
    paired = {position for merge in merged for position in (merge.first, merge.second)}
    return [i for i in sums if i not in paired]


def walk(
    writer: Writer, sums: list[int], slots: list[int], again: list[int] | tuple[()] = ()
) -> list[triton_online.Merge]:
    """The loop itself: accumulators ``w<position>`` of every reduction, one lane per column of a block."""
    region = writer.region
    merged = [merge for merge in triton_online.merges(region) if merge.first in sums]
    alone = _alone(sums, merged)
    if not sums and not slots:
        return []
    for i in alone:
        writer.outside(region.values[i].args[0])
        if region.values[i].op == "row_argmax":
            triton_scans.open_place(writer, i)
            continue
        how = region.values[i].op.split("_")[1]
        writer.put(f"w{i} = tl.full((R, BLOCK), {triton_ops.NEUTRAL[how]}, tl.float32)")
    for merge in merged:
        triton_online.begin(writer, merge)
        writer.outside(merge.over)
    for slot in slots:
        writer.outside(region.outputs[slot])
    targets = [region.values[i].args[0] for i in sums] + [region.outputs[slot] for slot in slots]
    triton_scans.open_loop(writer, triton_scans.wanted(region, targets))
    before = dict(writer.names)
    writer.columns("start")
    for slot in again:
        position = region.outputs[slot]
        step = "c * inner" if region.strided else "c"
        writer.put(f"v{position} = tl.load(o{slot} + base + {step}, mask=m).to(tl.float32)")
        writer.names[position] = f"v{position}"
    for merge in merged:
        triton_online.step(writer, merge)
    for i in alone:
        if region.values[i].op == "row_argmax":
            triton_scans.step_place(writer, i)
        else:
            writer.accumulate(i, f"w{i}", True)
    for slot in slots:
        writer.store(slot)
    writer.names = before
    writer.depth -= 1
    return merged
