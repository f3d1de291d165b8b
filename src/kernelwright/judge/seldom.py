# SPDX-License-Identifier: Apache-2.0
"""Random outputs that were the same in all runs of a call, where the next one may be another.

A class of which the likelihood is 0.01 is drawn in none of 36 runs two times in three: an honest program that drew it
was told that it is wrong, in one call of a hundred at such inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelwright.judge import measure

RUNS, SECONDS = 2000, 2.0
"""Further runs of the reference, or so long, of which one must have drawn the same there. What happens once in as many
is refused still, in one call of 5000 at the most for each such result."""
CLOSE, MOST_CLOSE = 64.0, 0.1
"""Distance in roundings of its type, and at the most in parts, of itself and the size (RMS) of all, up to which an
element is the same: rounded otherwise. Numbers far from zero, of two classes, lie as close as 2e-4."""


def places(value: torch.Tensor, usual: torch.Tensor) -> torch.Tensor:
    """Where a result is another than the usual one, not but for rounding."""
    if not value.is_floating_point():
        return value != usual
    close = min(CLOSE * torch.finfo(value.dtype).eps, MOST_CLOSE)
    one, other = value.to(torch.float64), usual.to(torch.float64)
    near = close * float(other.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
    return ~torch.isclose(one, other, rtol=close, atol=near, equal_nan=True)


def drawn(found: torch.Tensor, value: torch.Tensor, run: Callable[[int], torch.Tensor]) -> bool:
    """Whether at each of these places, if there are any, one of the further runs, which ``run`` makes by number, has
    what ``value`` has. The last one that is missing ends it, or the time."""
    missing, began = found.clone(), measure.clock()
    for number in range(RUNS):
        if not bool(missing.any()) or measure.clock() - began > 1e9 * SECONDS:
            break
        missing &= places(run(number), value)
    return bool(found.any()) and not bool(missing.any())
