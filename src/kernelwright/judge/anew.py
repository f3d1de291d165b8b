# SPDX-License-Identifier: Apache-2.0
"""An instance that is made when those before are gone, with its weights where theirs were.

Whoever tells weights by their address takes them for those. Left to the heap a 6 KB weight lay where another one had
been in one of three rounds, so weights are put there. A module comes to an old place of itself, in every second round.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import is_lazy

MADE, MOVED, THERE = "made", "moved", "there"
"""Where its weights lie: as its constructor left them; elsewhere, as after ``to``; where those of the last one did."""


class Anew:
    """Makes instances, and holds the memory of weights that are gone."""

    def __init__(self) -> None:
        self._last: dict[str, torch.Tensor] = {}
        self._held: list[torch.Tensor] = []
        """What a program noted in a constructor of where weights lie is still memory."""

    def gone(self, module: Any) -> None:
        """Note where its weights lie, before it is given up."""
        self._last = {name: weight.detach() for name, weight in _weights(module).items()}
        self._held += self._last.values()

    def made(self, construct: Callable[[], Any], how: str) -> Any:
        """Another one, its weights as its constructor left them."""
        gc.collect()
        module = construct()
        for name, weight in _weights(module).items() if how != MADE else ():
            self._held.append(weight.detach())
            there = self._last.get(name) if how == THERE else torch.empty_like(weight)
            if there is not None and there.shape == weight.shape and there.dtype == weight.dtype:
                there.copy_(weight.detach())
                weight.data = there
        return module


def _weights(module: Any) -> dict[str, torch.Tensor]:
    """Parameters and buffers themselves, by name, but for those that have no shape yet."""
    found = module.state_dict(keep_vars=True) if isinstance(module, torch.nn.Module) else {}
    return {name: one for name, one in found.items() if isinstance(one, torch.Tensor) and not is_lazy(one)}
