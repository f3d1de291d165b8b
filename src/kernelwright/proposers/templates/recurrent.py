# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers of torch's in a trace: torch.export makes one operator of each, and follows every step to do so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

MOST_STEPS, MOST_OPEN_STEPS = 256, 16
"""Steps that recurrent layers of torch's may make in a trace, with sizes given and open: each takes 4 ms and 0.1 s
(a GRU of 6 layers over 512: 14 s and 5 minutes), and none of them could be fused with another."""


class TooManySteps(ValueError):
    """A trace would take minutes."""


@contextmanager
def short(model: torch.nn.Module, most: int) -> Iterator[None]:
    """Raises TooManySteps where recurrent layers of torch's would make more steps in one call of ``model``."""
    steps = 0

    def begin(*_: object) -> None:
        nonlocal steps
        steps = 0

    def count(layer: torch.nn.Module, args: tuple[Any, ...]) -> None:
        nonlocal steps
        assert isinstance(layer, torch.nn.RNNBase)
        given = args[0] if isinstance(args[0], torch.Tensor) else args[0].data  # packed: all sequences in one
        size = given.shape[1 if given.dim() == 3 and layer.batch_first else 0]
        length = size.node.hint if isinstance(size, torch.SymInt) else size
        steps += int(length or 1) * layer.num_layers * (2 if layer.bidirectional else 1)
        if steps > most:
            raise TooManySteps(f"{type(layer).__name__} of {steps} steps: a trace would follow each of them")

    layers = [part for part in model.modules() if isinstance(part, torch.nn.RNNBase)]
    hooks = [layer.register_forward_pre_hook(count) for layer in layers]
    if hooks:
        hooks.append(model.register_forward_pre_hook(begin, prepend=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
