# SPDX-License-Identifier: Apache-2.0
"""How cubic interpolations round: their weights are polynomials of a fraction with coefficients up to 6.

With A = -0.75 the outer two weights are ((A (t + 1) - 5 A) (t + 1) + 8 A) (t + 1) - 4 A, of which the steps are of size
2 to 6 and the result is below 0.15, or A t (1 - t)^2, which rounds by a 16th of that. So the weights add up to 1 to
within several roundings only. Beside numbers 24 sizes from zero that is all of the error: the first form, along rows
and columns one after the other, was 2.6 times what torch errs by, and refused in each draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge.noise import finite

if TYPE_CHECKING:
    from kernelwright.judge.rounding import Rounded

aten = torch.ops.aten
WEIGHTS = 7.0
"""Deviation of what the weights of both axes add up to, in unit roundoffs: by the first form 5.1 of one axis (of
10^5 fractions)."""


def cubic(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """``aten.upsample_bicubic2d``, its weights off by WEIGHTS of the sizes around each place."""
    out: torch.Tensor = func(*args, **kwargs)
    around = aten.upsample_bilinear2d.default(args[0].abs(), *args[1:], **kwargs)
    return mode.roughen(out + mode.bells(out) * finite(around * (WEIGHTS * mode.unit)))


RULES = {aten.upsample_bicubic2d.default: cubic}
