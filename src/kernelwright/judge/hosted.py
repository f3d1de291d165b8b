# SPDX-License-Identifier: Apache-2.0
"""Small answers of a device, brought to the host in one transfer and measured there.

A device that several processes use is given to one after the other: on an H200 a kernel that is waited for took 20 us,
beside one more process that does the same 274, beside three 550, beside seven 1100. An answer measured there is waited
for a dozen times, and four judges of small tasks spent most of what they shared of a device on that: 3,600 waits a
proof, of which measuring was two fifths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernelwright.judge.native import PASSES
from kernelwright.judge.numerics import held_bytes

MOST_BYTES = 4 << 20
"""What is brought at the most: compiled passes read it in a millisecond, as long as a device takes to be waited for."""
ALIGNED = 16
"""Bytes that the largest element has."""


def brought(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors on the host where they are small, on a device, and the host has what reads them soon; as they are
    else."""
    apart = any(tensor.is_cuda for tensor in tensors) and all(t.layout is torch.strided for t in tensors)
    return together(tensors) if apart and held_bytes(tensors) <= MOST_BYTES and PASSES.awaited() else list(tensors)


def pair(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Both as ``brought`` at once."""
    found = brought([*one, *other])
    return found[: len(one)], found[len(one) :]


def together(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies on the host of strided tensors, in row-major order, of one transfer."""
    plain = [tensor.detach().resolve_conj().resolve_neg() for tensor in tensors]
    flat = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in plain]
    sizes = [math.ceil(part.numel() / ALIGNED) * ALIGNED for part in flat]
    padded = [torch.nn.functional.pad(part, (0, size - part.numel())) for part, size in zip(flat, sizes, strict=True)]
    parts = torch.cat(padded).cpu().split(sizes)
    return [
        part[: tensor.nbytes].view(tensor.dtype).view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)
    ]
