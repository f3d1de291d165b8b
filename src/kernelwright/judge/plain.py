# SPDX-License-Identifier: Apache-2.0
"""What a program hands back, where it is none that the plan knows; and its failures in bounded words."""

from __future__ import annotations

import inspect
import traceback
from typing import Any

import torch

from kernelwright.judge import wires


class WrongStructure(Exception):
    """The returned object does not match the plan."""


def takes(module: Any, names: list[str]) -> None:
    """Refuse a program that takes arguments of the reference's ``names`` in another order: it is called by position
    here, and whoever names them would exchange them."""
    try:
        own = list(inspect.signature(getattr(module, "forward", module)).parameters)
    except (TypeError, ValueError):  # code without a signature
        return
    known = [name for name in own if name in names]
    if known != [name for name in names if name in own]:
        mine, theirs = ", ".join(own), ", ".join(names)
        raise WrongStructure(f"it takes ({mine:.300}), the reference ({theirs:.300}): by name they would be exchanged")


def check(what: str, leaf: torch.Tensor, target: torch.Tensor) -> None:
    """Refuse anything but a plain tensor of the target's shape, dtype and device."""
    if type(leaf) not in (torch.Tensor, torch.nn.Parameter):
        raise WrongStructure(f"{what} is a {type(leaf).__name__}, expected a torch.Tensor")
    got = (tuple(leaf.shape), leaf.dtype, leaf.device, leaf.layout)
    expected = (tuple(target.shape), target.dtype, target.device, target.layout)
    if got != expected:
        raise WrongStructure(f"{what} is {_words(got)}, expected {_words(expected)}")


def _words(facts: tuple[Any, ...]) -> str:
    return f"{list(facts[0])} {facts[1]} on {facts[2]}, {facts[3]}".replace("torch.", "")


def describe(error: BaseException) -> dict[str, str]:
    """A failure as two bounded texts: ``kind`` for a program, ``text`` for a person, ``detail`` with the trace."""
    try:
        said = str(error)
        trace = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - candidate code writes __str__ too
        said, trace = "an exception that cannot be printed", ""
    out_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in said
    kind = "structure" if isinstance(error, WrongStructure) else "memory" if out_of_memory else "raised"
    text = said if kind == "structure" else f"{type(error).__name__}: {said}"
    return {"kind": kind, "text": text[:500], "detail": trace[-wires.TEXT :]}
