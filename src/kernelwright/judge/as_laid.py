# SPDX-License-Identifier: Apache-2.0
"""What eager answers in half precision where its inputs lie row by row: another kernel, and other rounding, than where
they do not.

Torch's attention on a CPU keeps its probabilities in 16 bits for inputs that lie in order, as fused kernels do, and in
32 for others, where it is 100 times as exact of small results. A program that puts its inputs in order and calls the
same operator is as honest as that operator.

And what rounding comes to where the numbers have a pattern (``almost``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import almost, numerics
from kernelwright.judge.calls import Given
from kernelwright.judge.floors import NO_FLOOR, Spread
from kernelwright.judge.weights import ALIKE, PATTERNED

if TYPE_CHECKING:
    from kernelwright.judge.inputs import Variant
    from kernelwright.judge.instance import Instance, State
    from kernelwright.judge.yardstick import Yardstick

ONE_FOR_ALL = "one for all"
HALF = ("float16", "bfloat16")


def allow(
    instance: Instance,
    variant: Variant,
    leaves: Sequence[torch.Tensor],
    state: State | None,
    yardsticks: Sequence[Yardstick | None],
) -> None:
    """Let eager's error on the same call with inputs in order count too, where outputs are of half precision; in wider
    ones, ``almost.LINED_UP`` times the honest error where inputs or weights have a pattern, or are equal and under an
    exponential: of a contrastive loss at a temperature of 100 a logsumexp leaves 7e-7 where log_softmax has 1e-6."""
    alike = variant.moved == ALIKE or variant.change == ONE_FOR_ALL and instance.steep
    if variant.change in almost.CHANGES or variant.moved == PATTERNED or alike:
        for yardstick in yardsticks:
            if yardstick is not None and yardstick.dtype.itemsize > 2:
                yardstick.times = almost.LINED_UP
                yardstick.bases(NO_FLOOR)
    if variant.layout == "contiguous" or not any(spec.dtype in HALF for spec in instance.out_specs):
        return
    made = Given(leaf.clone(memory_format=torch.contiguous_format) for leaf in leaves)
    made.incoming = leaves.incoming if isinstance(leaves, Given) else None
    for yardstick, out in zip(yardsticks, instance.eager(made, state), strict=True):
        if yardstick is not None and yardstick.plain and numerics.finite(out):
            yardstick.spread = _larger(yardstick.spread, yardstick.scale.measure(out))
            yardstick.bases(NO_FLOOR)


def _larger(one: Spread, other: Spread) -> Spread:
    bands = tuple(max(pair) for pair in zip(one.bands, other.bands, strict=True))
    return Spread(rms=max(one.rms, other.rms), peak=max(one.peak, other.peak), bands=bands, chunk=one.chunk)
