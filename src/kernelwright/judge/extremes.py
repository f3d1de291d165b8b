# SPDX-License-Identifier: Apache-2.0
"""Numbers of sizes that no contract's scales reach, for references whose answers float32 still holds there.

Who adds 1e-10 to what is divided by, or counts 1e-8 as zero, is right for numbers of usual sizes, and so is who begins
a maximum from -1e9 or takes whole parts by way of 32 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kernelwright.judge import borders
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.inputs import Variant

SLIGHT, WIDE, VAST = 2.0**-26, 2.0**40, 2.0**100
"""Scales: squares and cubes of the first are far from float32's least number; the second is beyond 32 bits and not
beyond 64; of the last nothing is but sums, differences, and products with usual numbers."""
GUARDED = frozenset({SLIGHT, WIDE, VAST})
"""Those at which a reference has to be as precise as ever."""
CHOOSES, PARTS = "chooses", "parts"
"""Said of a reference that takes largest and smallest numbers, and of one that takes whole parts."""
_PARTS = {"floor", "ceil", "trunc", "round", "frac"}
_CHOOSING = {
    *("amax", "amin", "aminmax", "max", "min", "maximum", "minimum", "fmax", "fmin", "cummax", "cummin", "argmax"),
    *("argmin", "sort", "topk", "kthvalue", "median", "max_pool2d_with_indices", "max_pool2d"),
}


def chooses(func: Any) -> bool:
    """Whether an operator makes a reference one that chooses."""
    return borders.named(func) in _CHOOSING


def parts(func: Any) -> bool:
    """Whether an operator takes whole parts."""
    return borders.named(func) in _PARTS


def drawn(specs: Sequence[TensorSpec], traits: Collection[str]) -> list[Variant]:
    """All numbers close to zero, and for who ``CHOOSES`` or takes ``PARTS`` all far from it, on both sides and on each,
    where every input is of a format that has such numbers. A reference takes them where it is as precise as ever."""
    if any(spec.dtype.startswith(("float16", "float8")) for spec in specs):
        return []
    found = [Variant(name=f"scale {SLIGHT:.2g}", required=True, scale=SLIGHT)]
    if CHOOSES in traits or PARTS in traits:
        far = WIDE if PARTS in traits else VAST
        found.append(Variant(name=f"scale {far:.2g}", required=True, scale=far))
        found += [Variant(name=f"all at {s * far:.2g}", required=True, change="far", scale=s * far) for s in (-1, 1)]
    return found
