# SPDX-License-Identifier: Apache-2.0
"""Modules that learn their sizes from their first call (``nn.LazyLinear``): that is made before anybody reads their
weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from kernelwright.judge import refusals
from kernelwright.judge.inputs import seeded

if TYPE_CHECKING:
    from kernelwright.judge.reference import Reference


def settled(
    reference: Reference, model: torch.nn.Module, given: Callable[[int], Any], seed: int, *, training: bool
) -> torch.nn.Module:
    """The same module in this mode, called once on what ``given`` draws where weights of it have no shape yet. Running
    statistics stay as they are made."""
    if any(map(is_lazy, (*model.parameters(), *model.buffers()))):
        arguments = refusals.arguments(reference, given(seed), model.eval().forward)
        with seeded(seed), torch.no_grad():
            model(*arguments)
    model.train(training)
    return model
