# SPDX-License-Identifier: Apache-2.0
"""Whether a reference stays within its domain: its answers are finite, or infinite as exact arithmetic says.

Masked logits are infinite by design. While finite answers were asked for, a reference that gives them was tried in
hardly any variant, and a log_softmax without its maximum passed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import numerics

if TYPE_CHECKING:
    from kernelwright.judge.buffers import TensorSpec
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State

Answers = Sequence[torch.Tensor]


def shaped(outputs: Answers, specs: Sequence[TensorSpec]) -> bool:
    """Whether the outputs are of these shapes."""
    return [tuple(out.shape) for out in outputs] == [spec.shape for spec in specs]


def pattern(outputs: Answers | None) -> tuple[bool, ...] | None:
    """Which outputs are finite; None where there are none."""
    return None if outputs is None else tuple(bool(torch.isfinite(out).all()) for out in outputs)


def infinite(outputs: Answers) -> frozenset[int]:
    """Outputs that hold infinities and no NaN."""
    odd = [index for index, finite in enumerate(pattern(outputs) or ()) if not finite]
    return frozenset(index for index in odd if not bool(torch.isnan(outputs[index]).any()))


def regular(instance: Instance, leaves: Answers, state: State | None, outputs: Answers) -> bool:
    """Every output is finite, or one that is infinite in the task's own call, and here where it is so in float64.

    Float64 is not asked of what overflows or vanishes in the output's own precision only: there, an honest program in
    another order has a finite number. NaN stays out.
    """
    odd = [index for index, finite in enumerate(pattern(outputs) or ()) if not finite]
    if not set(odd) <= instance.infinite & infinite(outputs):
        return False
    if not odd:
        return True
    exact, _ = instance.oracle(leaves, state)
    return all(bool((numerics.classes(outputs[i]) == numerics.classes(exact[i])).all()) for i in odd)
