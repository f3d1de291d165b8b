# SPDX-License-Identifier: Apache-2.0
"""Triton text of what depends on a position in a row: running sums and products, and the place of a maximum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.proposers.templates import ir, triton_online

if TYPE_CHECKING:
    from kernelwright.proposers.templates.triton_kernels import Writer


def supported(region: ir.Region) -> bool:
    """One direction for all scans; nothing beside them that counts blocks; no single element of a scan."""
    scans = {i for i, value in enumerate(region.values) if value.op in ir.SCANS}
    back = {region.values[i].op.endswith("_back") for i in scans}
    counted = any(merge.kind == triton_online.VARIANCE for merge in triton_online.merges(region))
    if len(back) > 1 or (back == {True} and counted):
        return False
    picks = [value.args[0] for value in region.values if value.op == "pick"]
    return not any(scans & triton_online.cone(region, picked) for picked in picks)


def running(writer: Writer, position: int) -> str:
    """The value of a scan in this block; in a loop over blocks ``h<position>`` is what came before it."""
    op = writer.region.values[position].op
    prod, back = "prod" in op, op.endswith("_back")
    source = _before(writer, position) if op.endswith("_before") else _kept(writer, position, "1.0" if prod else "0.0")
    text = f"tl.{'cumprod' if prod else 'cumsum'}({source}, 1{', reverse=True' if back else ''})"
    if not writer.looped:
        return text
    sign = "*" if prod else "+"
    whole = f"tl.reduce({source}, 1, _times)" if prod else f"tl.sum({source}, 1)"
    writer.put(f"l{position} = {text} {sign} h{position}")
    writer.put(f"h{position} = h{position} {sign} {whole}[:, None]")
    return f"l{position}"


def _kept(writer: Writer, position: int, neutral: str) -> str:
    arg = writer.value(writer.region.values[position].args[0])
    writer.put(f"k{position} = _keep({arg}, m, {neutral}, FREE)")
    return f"k{position}"


def _before(writer: Writer, position: int) -> str:
    """The elements one column to the left: a sum of the elements before each one is the plain sum of these."""
    at, edge, mask = f"b{position}", f"bc{position}", f"bm{position}"
    writer.put(f"{at} = c - 1")
    writer.put(f"{edge} = _and(cm, {at} >= 0)")
    writer.put(f"{mask} = _and(m, {at} >= 0)")
    text = writer.elsewhere(writer.region.values[position].args[0], f"g{position}_", (at, mask, edge))
    writer.put(f"k{position} = tl.where({mask}, {text}, 0.0)")
    return f"k{position}"


def wanted(region: ir.Region, targets: list[int]) -> list[int]:
    """The scans that some of the targets are computed from."""
    cones: set[int] = set().union(*(triton_online.cone(region, target) for target in targets))
    return sorted(i for i in cones if region.values[i].op in ir.SCANS)


def open_loop(writer: Writer, scans: list[int]) -> None:
    """The carries of the scans, and a loop over the blocks of a row in their direction."""
    for i in scans:
        start = "1.0" if "prod" in writer.region.values[i].op else "0.0"
        writer.put(f"h{i} = tl.full((R, 1), {start}, tl.float32)")
    back = any(writer.region.values[i].op.endswith("_back") for i in scans)
    over = f"{writer.low}, {writer.stop}, BLOCK"
    walked = f"tl.range({over}, num_stages=STAGES)" if writer.staged and not scans else f"range({over})"
    writer.put(f"for {'turn' if back else 'start'} in {walked}:")
    writer.depth += 1
    if back:
        writer.put(f"start = ({writer.stop} - 1) // BLOCK * BLOCK - turn")


def open_place(writer: Writer, position: int) -> None:
    """Accumulators of the place of a maximum: per lane, the value and its column."""
    writer.put(f'w{position} = tl.full((R, BLOCK), float("-inf"), tl.float32)')
    writer.put(f"n{position} = tl.zeros((R, BLOCK), tl.int32) + tl.arange(0, BLOCK)[None, :]")


def step_place(writer: Writer, position: int) -> None:
    """One block of the row; a NaN comes before any number, and the first of equals stays."""
    x = _kept(writer, position, 'float("-inf")')
    writer.put(f"ahead = ({x} > w{position}) | (({x} != {x}) & (w{position} == w{position}))")
    writer.put(f"n{position} = tl.where(ahead, c, n{position})")
    writer.put(f"w{position} = tl.where(ahead, {x}, w{position})")


def close_place(writer: Writer, position: int) -> None:
    """The smallest column of those lanes that hold the maximum."""
    best = f"tl.reduce(w{position}, 1, _nan_max, keep_dims=True)"
    writer.put(f"hit = (w{position} == {best}) | (w{position} != w{position})")
    writer.put(f"v{position} = tl.min(tl.where(hit, n{position}, cols), 1)[:, None].to(tl.int64)")
    writer.names[position] = f"v{position}"
