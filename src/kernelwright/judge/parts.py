# SPDX-License-Identifier: Apache-2.0
"""What a module does of its own where it stands alone, and does not do as a part of a larger one.

A module loads, moves and lists the parts it has by what torch's own class does with each, never by a method of theirs:
whoever makes what it computes with in a ``load_state_dict`` of its own has that of older weights when the model it is a
part of loads a checkpoint. No answer of the program alone shows that, so a proof says it. It is the program's word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

UNASKED = (
    "load_state_dict", "to", "cuda", "cpu", "float", "half", "bfloat16", "double", "type", "to_empty", "eval",
    "requires_grad_", "zero_grad", "share_memory", "parameters", "named_parameters", "buffers", "named_buffers",
)  # fmt: skip
"""Methods that a larger module does not ask its parts for; ``state_dict``, ``train`` and ``_apply`` it does."""
WORDS = "proved for a module that stands alone: as a part of a larger one it is not asked for its own"


def own(module: Any) -> list[str]:
    """Which of UNASKED a module has of its own, or of a class that is not torch's."""
    if not isinstance(module, torch.nn.Module):
        return []
    return [name for name in UNASKED if name in vars(module) or not _torchs(type(module), name)]


def _torchs(kind: type, name: str) -> bool:
    made = next((held for held in kind.__mro__ if name in vars(held)), torch.nn.Module)
    return made.__module__.partition(".")[0] == "torch"


def words(told: Any, theirs: Sequence[str]) -> str:
    """What a proof says of the methods that a program ``told``, but for those that the reference has too; empty for
    nothing. Only names that are known are repeated."""
    mine = [name for name in UNASKED if isinstance(told, list) and name in told and name not in theirs]
    return f"{WORDS} {', '.join(mine)}" if mine else ""
