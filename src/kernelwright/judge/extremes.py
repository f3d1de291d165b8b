# SPDX-License-Identifier: Apache-2.0
"""Numbers of sizes that no contract's scales reach, for references whose answers float32 still holds there.

Who adds 1e-10 to what is divided by, or counts 1e-8 as zero, is right for numbers of usual sizes, and so is who begins
a maximum from -1e9, takes whole parts by way of 32 bits, seeks a median by halves of a range, solves by a few steps or
reads an exponent off a logarithm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from kernelwright.judge import borders, factors
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.domains import factored
from kernelwright.judge.inputs import Variant

SLIGHT, WIDE, VAST = 2.0**-26, 2.0**40, 2.0**100
"""Scales: squares and cubes of the first are far from float32's least number; the second is beyond 32 bits and not
beyond 64; of the last nothing is but sums, differences, and products with usual numbers."""
SLIGHTER = 2.0**-80, 2.0**-50
"""Of these the first at which a reference is precise: of the second float32 still holds squares."""
GUARDED = frozenset({SLIGHT, WIDE, VAST, *SLIGHTER})
"""Those at which a reference has to be as precise as ever."""
CHOOSES, PARTS, SCALES, BITS, SOLVES = "chooses", "parts", "scales", "bits", "solves"
"""Said of a reference that takes largest and smallest numbers, whole parts, roots of sums of squares that do not
overflow, exponents of floats, and of one that factors matrices."""
_PARTS = {"floor", "ceil", "trunc", "round", "frac"}
_CHOOSING = {
    *("amax", "amin", "aminmax", "max", "min", "maximum", "minimum", "fmax", "fmin", "cummax", "cummin", "argmax"),
    *("argmin", "sort", "topk", "kthvalue", "median", "max_pool2d_with_indices", "max_pool2d"),
}


TRAITS: dict[str, Callable[[Any], bool]] = {
    CHOOSES: lambda func: borders.named(func) in _CHOOSING,
    PARTS: lambda func: borders.named(func) in _PARTS,
    SCALES: lambda func: borders.named(func) == "hypot",
    BITS: lambda func: borders.named(func) == "frexp",
    SOLVES: factored,
}
"""Whether an operator makes a reference such a one."""


def guarded(variant: Variant) -> bool:
    """Whether a reference has to be as precise as ever on these inputs."""
    return bool({abs(variant.scale), *variant.factors} & GUARDED)


def drawn(specs: Sequence[TensorSpec], traits: Collection[str]) -> list[Variant]:
    """All numbers close to zero, and for who ``CHOOSES``, takes ``PARTS`` or ``SCALES`` all far from it, on both sides
    and on each, or one, where every input is of a format that has such numbers. A reference takes them where it is as
    precise as ever. ``SOLVES``, ``BITS``: matrices of ``factors.CONDITION``, numbers ``factors.BESIDE`` powers of two.
    """
    if any(spec.dtype.startswith(("float16", "float8")) for spec in specs):
        return []
    found = [Variant(name=f"scale {SLIGHT:.2g}", required=True, scale=SLIGHT)]
    found += [Variant(name=f"scale {s:.2g}", required=True, scale=s, group="slighter") for s in SLIGHTER]
    far = WIDE if PARTS in traits else VAST
    if {CHOOSES, PARTS, SCALES} & set(traits):
        found.append(Variant(name=f"scale {far:.2g}", required=True, scale=far))
    if {CHOOSES, PARTS} & set(traits):
        found += [Variant(name=f"all at {s * far:.2g}", required=True, change="far", scale=s * far) for s in (-1, 1)]
        found.append(Variant(name=f"one at {far:.2g}", required=True, change="outliers", factors=(far,)))
    if SOLVES in traits:
        found.append(Variant(name=factors.CONDITION, required=True, change=factors.CONDITION, draws=2))
    if BITS in traits:  # scaled to where a logarithm of the number below rounds to that of the power
        found.append(Variant(name=factors.BESIDE, required=True, change=factors.BESIDE, scale=2.0**-12, draws=2))
    return found
