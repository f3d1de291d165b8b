# SPDX-License-Identifier: Apache-2.0
"""What is done to each call of a window on a device, done to all of them at once.

A window of short calls holds 256. Filling them, poisoning their outputs and holding their answers against eager's took
a handful of kernels for each, and waited for each: on an H200 140 of the 420 ms of a round in which the calls
themselves of all programs took 60. Here it is a kernel for each input and output, and one answer that is waited for.
On a CPU, where windows hold few calls, nothing of this is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    wide = torch.float32 if theirs.dtype in (torch.float16, torch.bfloat16) else theirs.dtype
    gap = (ours - theirs).abs_()
    scale = torch.linalg.vector_norm(theirs, dim=1, dtype=wide).to(torch.float64)
    far = torch.linalg.vector_norm(gap, dim=1, dtype=wide).to(torch.float64)
    top = gap.amax(1).to(torch.float64) * math.sqrt(theirs.shape[1])
    plain = far.isfinite() & scale.isfinite() & (scale > 0)
    own = gap.div_(theirs.abs()).nan_to_num_(0.0, 1.0).clamp_(max=1.0).mean(1, dtype=wide).to(torch.float64)
    return tuple(torch.where(plain, size, math.inf) for size in (far / scale, top / scale, own))


def _flat(calls: torch.Tensor) -> torch.Tensor:
    """A row for each call, whose values may be single numbers."""
    return calls.reshape(calls.shape[0], -1)


def _parts(tensor: torch.Tensor) -> list[slice]:
    """Calls in parts of about PART_BYTES."""
    each = max(1, tensor[0].numel() * tensor.element_size())
    step = max(1, PART_BYTES // each)
    return [slice(start, start + step) for start in range(0, tensor.shape[0], step)]
