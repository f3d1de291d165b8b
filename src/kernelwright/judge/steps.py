# SPDX-License-Identifier: Apache-2.0
"""Operators that round what they are given to a grid of their own: quantisers, and samples of the nearest pixel.

Their steps lie at halves of a scale, or between two pixels. Programs come there by formulas of their own, x / s or
x * (1 / s), and where such a number is not exact in all of them the honest error has either side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from kernelwright.judge.rounding import Rounded

aten = torch.ops.aten
QUANTISERS = {
    "fake_quantize_per_tensor_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "fake_quantize_per_channel_affine_cachemask",
}
"""Operators of values, scale and zero point first, and the least and the largest whole number last."""
PACKERS = {"quantize_per_tensor": 3, "quantize_per_channel": 4}
"""Operators of the same three first whose results have a type of whole numbers, and which argument that is. They take
no values but float32."""
ENDS = {torch.qint8: (-128, 127), torch.quint8: (0, 255)}
"""The least and the largest of these types; qint32's are out of reach."""
SAMPLERS = {
    "grid_sampler_2d": 1, "grid_sampler_3d": 1, "grid_sampler_2d_backward": 2, "grid_sampler_3d_backward": 2,
}  # fmt: skip
"""Operators that sample images at a grid, and which argument that is; how comes next, then padding and corners."""
NEAREST, BETWEEN = 1, 0
"""Samples of the nearest pixel; and of those between, the gradient of which jumps at every pixel."""
NEAR = 4
"""Steps of a scale to either side of zero that are planted: beyond them lie more of the same."""
MOST = 64
"""Scales, or pixels along an axis, whose steps are read: of more, the first ones."""


def met(name: str, args: Sequence[Any]) -> Iterator[float]:
    """Where the steps of an operator lie; none where it has none."""
    if name in QUANTISERS or name in PACKERS:
        scales = _scales(args[1])
        zero = int(args[2]) if isinstance(args[2], int) or args[2].numel() == 1 else 0
        low_high = ENDS.get(args[PACKERS[name]], ()) if name in PACKERS else (int(args[-2]), int(args[-1]))
        ends = [end - zero + half for end, half in zip(low_high, (-0.5, 0.5), strict=False)]
        for scale in scales[:MOST]:
            yield from (scale * number for number in (*ends, *(n + 0.5 for n in range(-NEAR, NEAR))))
    elif jumps(name, args):
        first = SAMPLERS[name]
        half = 0.5 if args[first + 1] == NEAREST else 0.0
        for size in set(args[first - 1].shape[2:]):
            for number in range(-1, min(int(size), MOST)):
                place = number + half
                if not args[first + 3]:
                    yield (2 * place + 1) / size - 1
                elif size > 1:
                    yield 2 * place / (size - 1) - 1


def jumps(name: str, args: Sequence[Any]) -> bool:
    """Whether an operator has steps of this kind."""
    if name not in SAMPLERS:
        return name in QUANTISERS or name in PACKERS
    first = SAMPLERS[name]
    return bool(args[first + 1] == NEAREST or (first == 2 and args[first + 1] == BETWEEN))


def _scales(given: Any) -> list[float]:
    return (
        [float(s) for s in given.detach().reshape(-1).tolist()] if isinstance(given, torch.Tensor) else [float(given)]
    )


def quantised(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Values over a scale, which is a number of its own in every program unless it is a power of two."""
    values = args[0].to(torch.float64)
    moved = mode.roughen(mode.roughen(values.clone()))
    if all(math.frexp(scale)[0] == 0.5 for scale in _scales(args[1])):
        moved = mode.but_few(values, moved)
    moved = moved.to(args[0].dtype)
    return _rough(mode, func(moved, *args[1:], **kwargs))


def sampled(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A grid is rounded at the size of the place that it becomes, unless it has few bits."""
    name = func._schema.name.removeprefix("aten::")
    if jumps(name, args):
        grid = args[SAMPLERS[name]]
        moved = mode.but_few(grid, grid + mode.noise(grid) * (grid.abs() + 1.0) * mode.unit)
        args = (*args[: SAMPLERS[name]], moved, *args[SAMPLERS[name] + 1 :])
    return _rough(mode, func(*args, **kwargs))


def _rough(mode: Rounded, out: Any) -> Any:
    if isinstance(out, tuple):
        return tuple(_rough(mode, value) for value in out)
    return mode.roughen(out) if isinstance(out, torch.Tensor) and out.dtype is torch.float64 else out


RULES = {
    **{getattr(aten, name).default: quantised for name in QUANTISERS},
    **{getattr(aten, name).default: sampled for name in SAMPLERS},
}
SINGLE_RULES = {
    **{getattr(aten, name).default: quantised for name in PACKERS},
    aten.quantize_per_tensor.tensor_qparams: quantised,
}
"""Of operators that take float32."""
