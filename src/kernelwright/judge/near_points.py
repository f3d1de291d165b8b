# SPDX-License-Identifier: Apache-2.0
"""Values that all lie close to a point where a function is zero or infinite, and stay on their side of it.

Probabilities of a model that is sure, points that are close to each other in hyperbolic space, angles between vectors
that are nearly parallel. Scales, shifts and negation leave the domain of such a function, or never take all elements of
an input that far: who clipped a probability at 1 - 1e-6 passed. Formulas that cancel there (acosh as a logarithm, an
arccosine by an arcsine) err by what a rounding of the input does, and that counts as honest (``rounding``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelwright.judge import borders, numerics
from kernelwright.judge.dealing import below

CLOSE = "close to one"
POINTED = "pointed"
"""Said of a reference that has a logarithm, or another function with a zero or a pole at one."""
_FUNCTIONS = {"log", "log2", "log10", "acosh", "acos", "asin", "atanh", "erfinv", "log1p", "logit", "special_logit"}
"""Operators with such a point at 1 or -1, log1p for one less a probability."""
NEAREST, FURTHEST = 20, 7
"""By how many powers of two the distance from the point becomes smaller, at the most and the least."""


def pointed(func: Any) -> bool:
    """Whether an operator is one of these."""
    return borders.named(func) in _FUNCTIONS


def close(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """All elements of an input of floats, or by lot of several, lie so close to 1, or to -1, which is 1 where none is
    negative."""
    fits = [i for i, leaf in enumerate(leaves) if leaf.numel() > 1 and leaf.is_floating_point() and leaf.itemsize > 2]
    fits = [i for i in fits if numerics.finite(leaves[i])]
    if not fits:
        return list(leaves)
    chosen = {i for i in fits if below(2, rng)} or {fits[below(len(fits), rng)]}
    share = 2.0 ** -(FURTHEST + below(NEAREST - FURTHEST + 1, rng))
    least = min(float(leaves[i].min()) for i in chosen)
    point = -1.0 if least < 0 and below(2, rng) else 1.0
    return [point + (leaf - point) * share if i in chosen else leaf for i, leaf in enumerate(leaves)]
