# SPDX-License-Identifier: Apache-2.0
"""What the inputs of a task have in common in its own draws, said beside a refusal by others.

A program for unit quaternions, or for weights that add up to one, is right on all that the task draws, and refused
where an input is scaled: nothing promises what its draws have. Who reads "scale 0.001" alone has to search for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import calls, inputs
from kernelwright.trial import Rejected

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

DRAWS = 3
MOST = 1 << 22
"""Elements of all inputs of a call at the most: more are not drawn again for a word."""
CLOSE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""How far a sum or a norm is from one; of halves 2 %."""
OWN = ("as given", "fresh weights")
"""What a reason has in it that is about the task's own values."""


def said(instance: Instance, refused: Rejected) -> Rejected:
    """The refusal, with what all of the task's own draws have in common where it is about other values."""
    own = any(f": {name}: " in refused.reason for name in OWN)
    elements = sum(torch.Size(spec.shape).numel() for spec in instance.specs)
    values = any(words in refused.reason for words in (" the honest error ", " elements differ "))
    if refused.stage not in ("verify", "time") or own or elements > MOST or not values:
        return refused
    try:
        drawn = [instance._raw(instance.seed + number)[0] for number in range(DRAWS)]
    except calls.CAUGHT:
        return refused
    words = [
        f"input {index}{'' if name in ('', str(index)) else f' ({name})'} {found}"
        for index, name in enumerate(instance.names)
        if (found := of([draw[index] for draw in drawn]))
    ]
    if not words:
        return refused
    note = f"; the task's own draws of {', '.join(words)}, which contract.as_drawn would promise; other values came"
    return replace(refused, reason=refused.reason + note)


def of(leaves: Sequence[torch.Tensor]) -> str:
    """What draws of one input have in common, shape ``(..., n)``, or nothing."""
    one = leaves[0]
    if one.dtype not in inputs.FLOATS or one.dim() == 0 or one.shape[-1] < 2 or not one.numel():
        return ""
    close = CLOSE.get(leaves[0].dtype, 2e-2)
    wide = [leaf.double() for leaf in leaves]
    if all(bool(((leaf.square().sum(-1).sqrt() - 1).abs() <= close).all()) for leaf in wide):
        return "have rows of norm one"
    if any(bool((leaf < 0).any()) for leaf in wide):
        return ""
    if all(bool(((leaf.sum(-1) - 1).abs() <= close).all()) for leaf in wide):
        return "have rows that add up to one"
    return "are never negative" if all(bool((leaf > 0).any()) for leaf in wide) else ""
