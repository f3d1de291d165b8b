# SPDX-License-Identifier: Apache-2.0
"""Numbers of sizes that no contract's scales reach, for references whose answers float32 still holds there.

Who adds 1e-10 to what is divided by, or counts 1e-8 as zero, is right for numbers of usual sizes, and so is who begins
a maximum from -1e9, takes whole parts by way of 32 bits, seeks a median by halves of a range, or replaces small pivots.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from kernelwright.judge import borders, factors
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.domains import factored
from kernelwright.judge.inputs import Variant

SLIGHT, WIDE, VAST = 2.0**-26, 2.0**40, 2.0**100
"""Scales: squares and cubes of the first are far from float32's least number; the second is beyond 32 bits and not
beyond 64; of the last nothing is but sums, differences, and products with usual numbers."""
SLIGHTER = 2.0**-100, 2.0**-50
"""Of these the first for references that have no size of their own: of the second float32 still holds squares. An
epsilon of 1e-30 shows at the first, and at 2^-80 did not."""
LEAST = 2.0**-40
"""For such references too: float32 holds cubes of it, so what vanishes there is somebody's threshold."""
HELD = 2.0**-63, 2.0**63
"""Between these float32 holds squares of all numbers of that size."""
_LENIENT = frozenset({"slighter", "vaster"})
FREE = _LENIENT | {"least", "slighter, by design", "vaster, by design"}
"""Groups of draws for such references alone: what a program adds to be safe is of some size. Others, as a softmax, have
equal answers for slight numbers that are not, of which some honest program may choose another."""
GUARDED = frozenset({SLIGHT, WIDE, VAST})
"""Those at which a reference has to be as precise as ever."""
CHOOSES, PARTS, SOLVES, SPLITS, SAFE = "chooses", "parts", "solves", "splits", "safe"
"""Said of a reference that takes largest and smallest numbers, whole parts, of one that factors matrices, or finds
eigenvalues or singular ones, and of one that takes a root of squares by ``hypot``, whose point is that none is lost."""
_PARTS = {"floor", "ceil", "trunc", "round", "frac"}
_SPLITTING = {"_linalg_eigh", "_linalg_svd", "linalg_eig"}
_CHOOSING = {
    *("amax", "amin", "aminmax", "max", "min", "maximum", "minimum", "fmax", "fmin", "cummax", "cummin", "argmax"),
    *("argmin", "sort", "topk", "kthvalue", "median", "max_pool2d_with_indices", "max_pool2d"),
}


TRAITS: dict[str, Callable[[Any], bool]] = {
    CHOOSES: lambda func: borders.named(func) in _CHOOSING,
    PARTS: lambda func: borders.named(func) in _PARTS,
    SOLVES: factored,
    SPLITS: lambda func: borders.named(func) in _SPLITTING,
    SAFE: lambda func: borders.named(func) == "hypot",
}
"""Whether an operator makes a reference such a one."""


def guarded(variant: Variant) -> bool:
    """Whether a finite answer does not show that a reference takes these inputs: it has to be as precise as ever, or to
    have no size of its own."""
    alike = variant.change == factors.ALIKE  # of whose vectors any are right
    return alike or variant.group in FREE or bool({abs(variant.scale), *variant.factors} & GUARDED)


def drawn(specs: Sequence[TensorSpec], traits: Collection[str]) -> list[Variant]:
    """All numbers close to zero, and far from it, where every input is of a format that has such numbers. For who
    ``CHOOSES`` or takes ``PARTS`` far on both sides, on each, and one alone. A reference takes them where it is as
    precise as ever, or of FREE groups where it has no size of its own. ``SOLVES``: squeezed matrices, and such whose
    directions are alike; these for who ``SPLITS`` too."""
    if any(spec.dtype.startswith(("float16", "float8")) for spec in specs):
        return []
    found, safe = [Variant(name=f"scale {SLIGHT:.2g}", required=True, scale=SLIGHT)], ", by design" * (SAFE in traits)
    found += [Variant(name=f"scale {s:.2g}", required=True, scale=s, group=f"slighter{safe}") for s in SLIGHTER]
    found.append(Variant(name=f"scale {LEAST:.2g}", required=True, scale=LEAST, group="least"))
    if {CHOOSES, PARTS} & set(traits):
        far = WIDE if PARTS in traits else VAST
        sizes = {far, WIDE}  # whose squares are no infinities: who takes 1e10 for one is wrong there
        found += [Variant(name=f"scale {size:.2g}", required=True, scale=size) for size in sorted(sizes)]
        found += [Variant(name=f"all at {s * far:.2g}", required=True, change="far", scale=s * far) for s in (-1, 1)]
        found.append(Variant(name=f"one at {far:.2g}", required=True, change="outliers", factors=(far,)))
    else:
        found.append(Variant(name=f"scale {VAST:.2g}", required=True, scale=VAST, group=f"vaster{safe}"))
    if SOLVES in traits:
        found.append(Variant(name=factors.CONDITION, required=True, change=factors.CONDITION, draws=3))
    if {SOLVES, SPLITS} & set(traits):
        found.append(Variant(name=factors.ALIKE, required=True, change=factors.ALIKE, draws=4))
    return found


def without_lost(
    variant: Variant, answers: Sequence[torch.Tensor], eager: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Answers to draws of FREE groups so far from one that squares vanish or are infinite, with eager's in the place of
    zeros and of what is not finite. Torch takes a standard deviation in float64 on a CPU: none in float32 passed there,
    and no absolute value of a complex number by its squares."""
    if variant.group not in _LENIENT or HELD[0] <= abs(variant.scale) <= HELD[1]:
        return list(answers)
    return [_without(got, own) for got, own in zip(answers, eager, strict=True)]


def _without(got: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    alike = (got.shape, got.dtype) == (own.shape, own.dtype)
    if not alike or not (got.is_floating_point() or got.is_complex()):
        return got
    return torch.where((got == 0) | ~got.isfinite(), own.to(got.device), got)
