# SPDX-License-Identifier: Apache-2.0
"""Parameters that no output of the reference depends on: ``.grad`` stays None, and every optimizer leaves them alone.

With ``+ 0.0 * spare.sum()`` it is zeros, and AdamW decays the parameter: from a norm of 6.57 to 5.94 in 100 steps. One
that is unused by what a call happened to bring is another matter: of experts looked at one by one those that no token
chose have None, and zeros where all are one product. So it is unused in several calls with other weights, and none of
its like is used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

CALLS = 4
"""With other weights each, in all of which it is unused."""
KIND = "parameter:"


def of_call(instance: Instance, leaves: Sequence[torch.Tensor], state: Any) -> set[str]:
    """Those that this call does not use, by the names of gradients, less layers of a list of which it uses another."""
    instance.giver.give(instance.model, state)
    absent = instance.answered(instance.model, leaves).absent
    used = {_like(name) for name, _ in instance.gradients if name not in absent}
    return {name for name in absent if name.startswith(KIND) and _like(name) not in used}


def words(name: str) -> str:
    """What is said of a program that has one."""
    return (
        f"the gradient of {name}: got a tensor, expected None, as the reference's is, whose outputs do not depend on "
        "it: an optimizer with weight decay moves what has zeros (leave it out of the call)"
    )


def _like(name: str) -> str:
    return re.sub(r"\d+", "#", name)
