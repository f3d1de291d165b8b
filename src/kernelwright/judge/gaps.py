# SPDX-License-Identifier: Apache-2.0
"""The bytes inside a region that no element of its tensor lies at: between strided elements, before an offset one.

They belong to whoever owns the tensor that an input is a slice of. So they are guards like the bytes around a region:
a row that is stored over its end shows there, and what is read there is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import skeletons

if TYPE_CHECKING:
    from kernelwright.judge.buffers import TensorSpec


def rows(
    flat: torch.Tensor, specs: Sequence[TensorSpec], offsets: Sequence[int]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The elements of every region that has gaps, as rows of bytes, and which of them nobody owns. ``specs`` are those
    of one set, ``offsets`` of all sets."""
    for index, spec in enumerate(specs):
        size = skeletons.dtype(spec.dtype).itemsize
        nobodys = between(spec)
        if nobodys is not None:
            for at in offsets[index :: len(specs)]:
                yield flat[at : at + spec.nbytes()].view(-1, size), nobodys.to(flat.device)


def between(spec: TensorSpec) -> torch.Tensor | None:
    """Which elements of a region are none of its tensor's; None where all are, or the tensor is empty."""
    span = spec.nbytes() // skeletons.dtype(spec.dtype).itemsize
    if 0 in spec.shape or (0 not in spec.stride and span <= math.prod(spec.shape)):
        return None
    found = torch.ones(span, dtype=torch.bool)
    found.as_strided(spec.shape, spec.stride, spec.offset).fill_(False)
    return found if bool(found.any()) else None
