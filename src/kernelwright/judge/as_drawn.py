# SPDX-License-Identifier: Apache-2.0
"""Inputs that only ever come as a task draws them, where its contract says so: unit quaternions, probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

WORDS = "comes only as get_inputs draws it (contract.as_drawn); other values are not in the proof"


def held(instance: Instance, leaves: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    """Copies of those among the leaves of a draw, by position."""
    return {index: leaves[index].clone() for index in instance.contract.as_drawn}


def put(own: Mapping[int, torch.Tensor], made: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A changed draw with its own ones again, but where their shape is another."""
    same = {index for index, leaf in own.items() if leaf.shape == made[index].shape}
    return [own[index] if index in same else leaf for index, leaf in enumerate(made)]


def said(instance: Instance) -> list[str]:
    """What a proof says of them."""
    names = {index: instance.names[index] or str(index) for index in instance.contract.as_drawn}
    return [f"input {index}{'' if name == str(index) else f' ({name})'} {WORDS}" for index, name in names.items()]
