# SPDX-License-Identifier: Apache-2.0
"""Two reductions of a row in one pass: the maximum with the sum of exponentials, the sum with the squared deviations.

A row too long for registers is otherwise read once for each. Methods: Milakov and Gimelshein, "Online normalizer
calculation for softmax" (2018); Welford (1962), with lanes combined as by Chan, Golub and LeVeque (1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.proposers.templates import ir, promotion

if TYPE_CHECKING:
    from kernelwright.proposers.templates.triton_kernels import Writer

HEADER = """
@triton.jit
def _online(top, total, x):
    # One exponential an element: of the two factors exp(top - new) and exp(x - new), one is always 1. Of base 2, with
    # log2(e) in two parts: what its argument rounds is no more than what x - top does, and adds up at random.
    d = tl.where(x == float("-inf"), x, x - top)
    a = -tl.abs(d)
    e = tl.exp2(tl.fma(a, 1.44269502162933349609375, a * 1.92596298909109e-08))
    return _nan_max(top, x), tl.where(d > 0.0, tl.fma(total, e, 1.0), total + e)


@triton.jit
def _welford(mean, squares, x, inverse):
    delta = x - mean
    new = mean + delta * inverse
    return new, squares + delta * (x - new)
"""

SOFTMAX, VARIANCE = "softmax", "variance"


@dataclass(frozen=True, slots=True)
class Merge:
    """``second`` can be accumulated beside ``first``, both over ``over``."""

    kind: str
    first: int
    second: int
    over: int
    center: int
    """What is subtracted before squaring or exponentiating."""


def merges(region: ir.Region) -> list[Merge]:
    """Every such pair; a first reduction belongs to at most one pair."""
    found: list[Merge] = []
    for position, value in enumerate(region.values):
        if value.op != "row_sum":
            continue
        merge = _of_exponentials(region, position) or _of_squares(region, position)
        if merge is not None and all(merge.first != other.first for other in found):
            found.append(merge)
    return found


def _difference(region: ir.Region, position: int) -> tuple[int, int] | None:
    value = region.values[position]
    return (value.args[0], value.args[1]) if value.op == "sub" else None


def _of_exponentials(region: ir.Region, position: int) -> Merge | None:
    power = region.values[region.values[position].args[0]]
    pair = _difference(region, power.args[0]) if power.op == "exp" else None
    if pair is None:
        return None
    over, top = pair
    found = region.values[top]
    if found.op != "row_max" or found.args[0] != over:
        return None
    return Merge(SOFTMAX, top, position, over, top)


def _of_squares(region: ir.Region, position: int) -> Merge | None:
    square = region.values[region.values[position].args[0]]
    if square.op != "mul" or square.args[0] != square.args[1]:
        return None
    pair = _difference(region, square.args[0])
    if pair is None:
        return None
    over, center = pair
    mean = region.values[center]
    if mean.op not in ("div", "mul") or region.values[mean.args[-1]].kind != ir.SCALAR:
        return None
    total = region.values[mean.args[0]]
    if total.op != "row_sum" or total.args[0] != over:
        return None
    return Merge(VARIANCE, mean.args[0], position, over, center)


def passes(region: ir.Region) -> list[int]:
    """Per value: how many passes over the row must be complete before it is known."""
    beside = {merge.second: merge.first for merge in merges(region)}
    found: list[int] = []
    for position, value in enumerate(region.values):
        before = max((found[arg] for arg in value.args), default=0)
        if position in beside:
            found.append(found[beside[position]])
        else:
            found.append(before + (value.op in ir.ROW_REDUCTIONS))
    return found


def early_slots(fused: ir.Fused) -> list[int]:
    """Outputs that need no reduction and make one tensor of several: written first, they are cheaper to read again.

    Only those that memory holds as exactly as registers do.
    """
    region = fused.region
    level = passes(region)
    found = []
    for slot, position in enumerate(region.outputs):
        read = {region.values[i].index for i in cone(region, position) if region.values[i].op == "input"}
        exact = (
            region.values[position].kind == ir.FULL and promotion.KINDS[fused.outputs[slot].dtype] == region.float_type
        )
        exact = exact and not fused.outputs[slot].dtype.endswith("float16")
        if exact and level[position] == 0 and len(read) > 1 and max(level):
            found.append(slot)
    return found


def cone(region: ir.Region, position: int) -> set[int]:
    """A value and all it is computed from."""
    found: set[int] = set()
    stack = [position]
    while stack:
        at = stack.pop()
        if at not in found:
            found.add(at)
            stack.extend(region.values[at].args)
    return found


def begin(writer: Writer, merge: Merge) -> None:
    """The two accumulators, before the loop."""
    neutral = 'float("-inf")' if merge.kind == SOFTMAX else "0.0"
    writer.put(f"w{merge.first} = tl.full((R, BLOCK), {neutral}, tl.float32)")
    writer.put(f"w{merge.second} = tl.full((R, BLOCK), 0.0, tl.float32)")


def step(writer: Writer, merge: Merge) -> None:
    """One block of the row, inside the loop (``start`` and the mask ``m`` are known)."""
    first, second = f"w{merge.first}", f"w{merge.second}"
    x = writer.value(merge.over)
    if merge.kind == SOFTMAX:
        kept = f'_keep({x}, m, float("-inf"), FREE)'
        writer.put(f"{first}, {second} = _online({first}, {second}, {kept})")
        return
    done = "start" if writer.low == "0" else f"(start - {writer.low})"
    writer.put(f"inverse = tl.full((), 1.0, tl.float32) / ({done} // BLOCK + 1)")
    writer.put(f"mean{merge.first}, square{merge.first} = _welford({first}, {second}, {x}, inverse)")
    writer.put(f"{first} = _keep(mean{merge.first}, m, {first}, FREE)")
    writer.put(f"{second} = _keep(square{merge.first}, m, {second}, FREE)")


def finish(writer: Writer, merge: Merge) -> None:
    """Lanes combined, after the loop; both values of the region are known from here."""
    first, second = merge.first, merge.second
    if merge.kind == SOFTMAX:
        writer.put(f"v{first} = tl.reduce(w{first}, 1, _nan_max)[:, None]")
        writer.put(f"v{second} = tl.sum(w{second} * libdevice.exp(w{first} - v{first}), 1)[:, None]")
        writer.names |= {first: f"v{first}", second: f"v{second}"}
        return
    writer.put("lanes = ((cols - tl.arange(0, BLOCK) + BLOCK - 1) // BLOCK).to(tl.float32)[None, :]")
    writer.put(f"v{first} = tl.sum(w{first} * lanes, 1)[:, None]")
    writer.names[first] = f"v{first}"
    center = writer.value(merge.center)
    writer.put(f"off{second} = w{first} - {center}")
    writer.put(f"v{second} = tl.sum(w{second} + off{second} * off{second} * lanes, 1)[:, None]")
    writer.names[second] = f"v{second}"


def leave(writer: Writer, merge: Merge) -> None:
    """Lanes of one part of a row combined, after the loop: ``x<position>`` are the partial results of both.

    Of the second, what belongs to this part alone: exponentials against its own maximum, squares about its own mean.
    """
    first, second = merge.first, merge.second
    if merge.kind == SOFTMAX:
        writer.put(f"x{first} = tl.reduce(w{first}, 1, _nan_max)[:, None]")
        shares = f'tl.where(w{first} == float("-inf"), 0.0, w{second} * libdevice.exp(w{first} - x{first}))'
        writer.put(f"x{second} = tl.sum({shares}, 1)[:, None]")
    else:
        span = f"{writer.stop} - {writer.low}"
        writer.put(f"lanes = tl.maximum(({span} - tl.arange(0, BLOCK) + BLOCK - 1) // BLOCK, 0)")
        writer.put("lanes = lanes.to(tl.float32)[None, :]")
        writer.put(f"x{first} = tl.sum(w{first} * lanes, 1)[:, None]")
        writer.put(f"off{second} = w{first} - x{first} / tl.maximum({span}, 1)")
        writer.put(f"x{second} = tl.sum(w{second} + off{second} * off{second} * lanes, 1)[:, None]")
    writer.left |= {f"x{first}", f"x{second}"}
