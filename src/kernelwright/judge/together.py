# SPDX-License-Identifier: Apache-2.0
"""What is done to each call of a window on a device, done to all of them at once.

A window of short calls holds 256. Filling them, poisoning their outputs and holding their answers against eager's took
a handful of kernels for each, and waited for each: on an H200 140 of the 420 ms of a round in which the calls
themselves of all programs took 60. Here it is a kernel for each input and output, and one answer that is waited for.
On a CPU, where windows hold few calls, nothing of this is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from kernelwright.judge import numerics
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.calls import Given

LEAST = 8
"""Calls of a window from which on it pays."""
MOST_BYTES = 4 << 30
"""Inputs of more bytes are dealt with call by call: calls that large take longer than a launch, and all at once they
would need room twice."""
PART_BYTES = 256 << 20
"""Memory that calls are read in parts of, so that copies of a part fit anywhere."""

Leaves = Sequence[torch.Tensor]


def fits(buffers: Buffers, values: Sequence[Leaves]) -> bool:
    """Whether as many of a program's first call sets as these are inputs of can be dealt with at once."""
    return (
        len(values) >= LEAST
        and len(values) <= len(buffers.inputs)
        and any(leaf.is_cuda for leaf in values[0])
        and len(values) * sum(leaf.nbytes for leaf in values[0]) <= MOST_BYTES
        and not any(isinstance(leaves, Given) and leaves.incoming is not None for leaves in values)
    )


def stacked(values: Sequence[Leaves]) -> list[torch.Tensor]:
    """The inputs of all calls, leaf by leaf, calls first."""
    return [torch.stack(column) for column in zip(*values, strict=True)]


def fill(buffers: Buffers, stacks: Leaves) -> None:
    """Write the inputs of call sets, from the first on, and poison their outputs; not waited for."""
    calls = len(stacks[0])
    for index, stack in enumerate(stacks):
        buffers.across("input", index)[:calls].copy_(stack)
    for kind, specs in (("output", buffers.plan.outputs), ("gradient", buffers.plan.gradients)):
        for index in range(len(specs)):
            target = buffers.across(kind, index)[:calls]
            if target.numel():
                numerics.poison_(target)


def changed(buffers: Buffers, stacks: Leaves) -> list[bool]:
    """By call, whether an input is not, bit by bit but for the sign of zero, what was handed in. NaN counts."""
    found = torch.zeros(calls := len(stacks[0]), dtype=torch.bool, device=stacks[0].device)
    for index, stack in enumerate(stacks):
        now = buffers.across("input", index)[:calls]
        for part in _parts(now):
            found[part] |= _flat(now[part] != stack[part]).any(1)
    return list(found.tolist())


def distances(ours: Buffers, theirs: Buffers, calls: int) -> list[list[float]]:
    """``spot_checks.distances`` of the first ``calls``, but inf wherever that has to look more closely: at what is not
    finite, at answers that are nothing but zeros, and at exact values that differ."""
    columns: list[torch.Tensor] = []
    regions = [("output", i) for i in range(len(ours.plan.outputs))]
    regions += [("gradient", i) for i in range(len(ours.plan.gradients))]
    for kind, index in regions:
        mine, other = (buffers.across(kind, index)[:calls] for buffers in (ours, theirs))
        pairs = [apart(mine[part], other[part]) for part in _parts(mine)]
        columns += [torch.cat([pair[side] for pair in pairs]) for side in range(len(pairs[0]))]
    return [list(row) for row in torch.stack(columns, 1).tolist()]


def apart(mine: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """(RMS, largest) distance of each call over the RMS of the other's, and the mean of what each element is off in
    parts of itself, in float64."""
    calls = mine.shape[0]
    if mine.numel() == 0:
        zeros = torch.zeros(calls, dtype=torch.float64, device=mine.device)
        return zeros, zeros, zeros
    if not (mine.is_floating_point() or mine.is_complex()):
        differ = _flat(mine != other).any(1)
        found = torch.where(differ, math.inf, 0.0).to(torch.float64)
        return found, found, found
    ours, theirs = _flat(numerics.real(mine)), _flat(numerics.real(other))
    step = max(1, PART_BYTES // (calls * theirs.element_size()))
    blocks = [_gaps(*block) for block in zip(ours.split(step, 1), theirs.split(step, 1), strict=True)]
    scales, fars, tops, owns = (torch.stack(column) for column in zip(*blocks, strict=True))
    scale, far = (norms[0] if len(blocks) == 1 else torch.linalg.vector_norm(norms, dim=0) for norms in (scales, fars))
    top, own = tops.amax(0) * math.sqrt(theirs.shape[1]), owns.sum(0) / theirs.shape[1]
    plain = far.isfinite() & scale.isfinite() & (scale > 0)
    return tuple(torch.where(plain, size, math.inf) for size in (far / scale, top / scale, own))


def _gaps(ours: torch.Tensor, theirs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of each call the norm of the other's, that of the distance, its largest, and the sum of what each element is off
    in parts of itself, in float64."""
    wide = torch.float32 if theirs.dtype in (torch.float16, torch.bfloat16) else theirs.dtype
    gap = (ours - theirs).abs_()
    scale = torch.linalg.vector_norm(theirs, dim=1, dtype=wide)
    far, top = torch.linalg.vector_norm(gap, dim=1, dtype=wide), gap.amax(1)
    own = gap.div_(theirs.abs()).nan_to_num_(0.0, 1.0).clamp_(max=1.0).sum(1, dtype=wide)
    return tuple(found.to(torch.float64) for found in (scale, far, top, own))


def of_answers(calls: Sequence[tuple[Leaves, Leaves, Leaves, Leaves]]) -> list[list[float]]:
    """Of calls (inputs, answers, inputs afterwards, eager's answers) whether an input was written, and the distances of
    the answers: a row each, inf as ``distances``, but that what is finite is measured where the same is not. Waited for
    once, or twice where something is not finite."""
    alike = all(_shapes(call) == _shapes(calls[0]) for call in calls)
    size = sum(tensor.nbytes for part in calls[0] for tensor in part)
    step = max(1, PART_BYTES // max(size, 1)) if alike else 1
    parts = [[list(zip(*some, strict=True)) for some in zip(*calls[start : start + step], strict=True)]
             for start in range(0, len(calls), step)]  # fmt: skip
    rows = torch.cat([_rows(part, apart) for part in parts]).tolist()
    if not all(math.isfinite(value) for row in rows for value in row):
        again = torch.cat([_rows(part, apart_where_finite) for part in parts]).tolist()
        rows = [[min(pair) for pair in zip(*both, strict=True)] for both in zip(rows, again, strict=True)]
    return rows


def _shapes(call: Sequence[Leaves]) -> list[list[tuple[torch.Size, torch.dtype]]]:
    return [[(tensor.shape, tensor.dtype) for tensor in part] for part in call]


def _rows(part: Sequence[Sequence[Leaves]], measure: Callable[..., tuple[torch.Tensor, ...]]) -> torch.Tensor:
    """Of calls whose tensors lie leaf by leaf here: whether inputs were written, and the distances of answers."""
    before, ours, after, eager = part
    pairs = [(_stack(mine), _stack(other)) for mine, other in zip(ours, eager, strict=True)]
    written = torch.zeros(len(ours[0]), dtype=torch.bool, device=pairs[0][0].device)
    for now, then in zip(after, before, strict=True):
        written |= _flat(unlike(_stack(now), _stack(then))).any(1)
    columns = [column for pair in pairs for column in measure(*pair)]
    return torch.stack([written.to(torch.float64), *columns], 1)


def _stack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Tensors of several calls as one; of one call itself, which may be a good part of a device."""
    return torch.stack([*tensors]) if len(tensors) > 1 else tensors[0][None]


def unlike(mine: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where two tensors differ; NaN and NaN do not."""
    return (mine != other) & ((mine == mine) | (other == other))


def apart_where_finite(mine: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """``apart`` of what is finite; inf where what is not differs, and for exact values that do. Where the finite values
    of both are nothing but zeros they lie 0 apart."""
    if mine.numel() == 0 or not (mine.is_floating_point() or mine.is_complex()):
        return apart(mine, other)
    ours, theirs = _flat(numerics.real(mine)), _flat(numerics.real(other))
    keep = ours.isfinite() & theirs.isfinite()
    alike = ~(unlike(ours, theirs) & ~keep).any(1)
    ours, theirs = ours.where(keep, 0), theirs.where(keep, 0)
    found = apart(ours, theirs)
    none = (ours == theirs).all(1) & (theirs == 0).all(1)
    kept = keep.sum(1).clamp_(min=1).to(torch.float64) / ours.shape[1]
    scaled = found[0], found[1] * kept.sqrt(), found[2] / kept
    return tuple(torch.where(alike, torch.where(none, 0.0, size), math.inf) for size in scaled)


def _flat(calls: torch.Tensor) -> torch.Tensor:
    """A row for each call, whose values may be single numbers."""
    return calls.reshape(calls.shape[0], -1)


def _parts(tensor: torch.Tensor) -> list[slice]:
    """Calls in parts of about PART_BYTES."""
    each = max(1, tensor[0].numel() * tensor.element_size())
    step = max(1, PART_BYTES // each)
    return [slice(start, start + step) for start in range(0, tensor.shape[0], step)]
