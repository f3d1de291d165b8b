# SPDX-License-Identifier: Apache-2.0
"""How inputs lie in memory: in larger steps, with gaps, turned, a step late, or one row for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from kernelwright.judge import skeletons
from kernelwright.judge.buffers import TensorSpec

PAD, GAP = 3, 16
"""Elements between the rows of ``padded``, and the blocks of one axis in ``gap0``, ``gap1``. Their unit step is 1, and
rows of the latter lie close, so a look at that says that all is as usual. Torch's attention on a GPU reads vectors of
16 bytes whatever the step between batches: by 3 floats that would end the judge's context."""
ALIGNED = 16
"""Bytes of a vector on a GPU."""
LATE, WIDE = "late", "wide"
"""So many elements late, and so many between rows: they begin where vectors do, whatever the type."""
EXPANDED = "expanded"
"""The first axis has steps of zero, as ``x.expand(96, 64)`` has: one row for all, which lies in memory once."""


def expands(shape: Sequence[int], dtype: torch.dtype | str) -> bool:
    """Whether an input can lie ``expanded``: floats of two axes and more. Whole numbers that never repeat, as places to
    write to, would."""
    kind = skeletons.dtype(dtype) if isinstance(dtype, str) else dtype
    return len(shape) > 1 and shape[0] > 1 and 0 not in shape and kind.is_floating_point


def layout_of(shape: Sequence[int], layout: str) -> tuple[tuple[int, ...], int]:
    """(strides, storage offset) in elements of a layout: strided has unit step 2, rows of padded are PAD longer than
    they seem, blocks of axis 0 in gap0 GAP, offset starts one element late. In wide and late it
    is ALIGNED elements instead."""
    strides, step = [], 2 if layout == "strided" else 1
    rows = {"padded": PAD, WIDE: ALIGNED}.get(layout, 0)
    longer = {int(layout[3:]) + 1: GAP} if layout.startswith("gap") else {len(shape) - 1: rows}
    order = list(range(len(shape)))
    if layout == "transposed" and len(shape) >= 2:
        order[-1], order[-2] = order[-2], order[-1]
    sizes = {}
    for axis in reversed(order):
        sizes[axis] = step
        step = step * max(int(shape[axis]), 1) + longer.get(axis, 0)
    strides = [sizes[axis] for axis in range(len(shape))]
    return tuple(strides), {"offset": 1, LATE: ALIGNED}.get(layout, 0)


def lay_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values in another layout, in storage of their own; ``expanded``, the first row of them for all."""
    if layout == "contiguous" or values.numel() == 0:
        return values
    if layout == EXPANDED:
        return values[:1].clone().expand(values.shape) if expands(values.shape, values.dtype) else values
    stride, offset = layout_of(values.shape, layout)
    span = offset + 1 + sum((n - 1) * s for n, s in zip(values.shape, stride, strict=True))
    base = torch.zeros(span, dtype=values.dtype, device=values.device)
    view = base.as_strided(values.shape, stride, offset)
    return view.copy_(values)


def spec_of(spec: TensorSpec, layout: str) -> TensorSpec:
    """Where an input of that shape lies in a buffer."""
    if 0 in spec.shape or layout == "contiguous":
        return spec
    stride, offset = layout_of(spec.shape, layout)
    if layout == EXPANDED and expands(spec.shape, spec.dtype):
        stride = (0, *stride[1:])
    return TensorSpec(shape=spec.shape, stride=stride, offset=offset, dtype=spec.dtype)


def of_gradient(spec: TensorSpec, layout: str, device: torch.device) -> TensorSpec:
    """Where an incoming gradient of that shape lies. On a GPU it begins at a multiple of ALIGNED bytes, as what
    autograd makes does but for odd slices: of any other the backward pass of torch's own attention ends the context."""
    made = spec_of(spec, layout)
    if device.type != "cuda" or not made.offset:
        return made
    return replace(made, offset=max(1, ALIGNED // skeletons.dtype(made.dtype).itemsize))


def write(target: torch.Tensor, values: torch.Tensor) -> None:
    """Copy ``values`` to ``target``, to each place in memory once."""
    if target.dim() and target.stride(0) == 0 and target.numel():
        target, values = target[:1], values[:1]
    target.copy_(values)
