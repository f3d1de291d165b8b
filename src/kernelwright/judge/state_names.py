# SPDX-License-Identifier: Apache-2.0
"""The names of parameters and buffers, a candidate's beside the reference's. What is saved of one must load into the
other, so a buffer too many is refused as well as one too few.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.judge.plain import WrongStructure

if TYPE_CHECKING:
    import torch


def differences(own: Collection[str], names: Sequence[str]) -> str:
    """In words, which of a candidate's ``own`` names the reference's do not hold, and which they lack; empty for none.

    Their order is its own business: weights are loaded by name.
    """
    extra, lacking = [name for name in own if name not in names], [name for name in names if name not in own]
    said = []
    if extra:
        what, way = _listed(extra), "register_buffer(name, tensor, persistent=False), or a plain attribute, stays out"
        said.append(f"{what} in the candidate's state_dict and not in the reference's: {way} of it")
    if lacking:
        said.append(f"{_listed(lacking)} missing from it: parameters and buffers keep the reference's names")
    return "; ".join(said)


def requiring(module: Any) -> list[str]:
    """Parameters that require a gradient, under all their names: an optimizer moves these and nothing else."""
    found: Sequence[tuple[str, torch.Tensor]] = list(module.named_parameters(remove_duplicate=False))
    return [name for name, value in found if value.requires_grad]


def trained(module: Any, names: Collection[str], theirs: Collection[str] | None) -> None:
    """Refuse a program of which an optimizer would move other entries of the state (``names``) than of the reference's
    (``theirs``; None: nobody asks). By its own word, as it was constructed."""
    if theirs is None or not hasattr(module, "named_parameters"):
        return
    mine = [name for name in requiring(module) if name in names]
    more, less = [name for name in mine if name not in theirs], [n for n in theirs if n in names and n not in mine]
    if more:
        raise WrongStructure(
            f"parameters that require a gradient: got {', '.join(more):.200}, expected none of these: an optimizer "
            "would move what the reference holds still (requires_grad=False, or a buffer)"
        )
    if less:
        raise WrongStructure(
            f"parameters that require a gradient: got none of {', '.join(less):.200}, expected all of these: no "
            "optimizer would move them (a buffer, or requires_grad=False)"
        )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - 8
    return ", ".join(names[:8]) + (f" and {more} more" if more > 0 else "") + (" are" if len(names) > 1 else " is")
