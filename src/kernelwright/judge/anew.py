# SPDX-License-Identifier: Apache-2.0
"""An instance that is made when those before are gone, and lies where one of them was, if that can be had.

Whoever tells modules or weights by their address, as ``id(self)`` or ``data_ptr()``, takes it for that one.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch

MOST, FEW, BYTES = 512, 8, 16 << 20
"""How many modules are made, all alive at once, until one lies where another was, and what their weights may take
together: 64 were too few in one proof of three. Of weights few: with many alive nothing of a heap is where it was."""
SECONDS = 0.05
"""How long others are made after the first, which may have a table to compute."""


def places_of(module: Any) -> set[int]:
    """Where a module and its weights lie."""
    weights = module.state_dict().values() if isinstance(module, torch.nn.Module) else ()
    return {id(module), *(weight.data_ptr() for weight in weights if isinstance(weight, torch.Tensor))}


def made_anew(construct: Callable[[], Any], known: set[int], *, itself: bool) -> Any:
    """A new one. ``known``: places of those that are gone; ``itself``: the module's own counts, else its weights'."""
    gc.collect()
    alive, most, until = list[Any](), MOST if itself else FEW, time.monotonic() + SECONDS
    while True:
        alive.append(construct())
        places = {id(alive[-1])} if itself else places_of(alive[-1]) - {id(alive[-1])}
        modules, size = _parts(alive[-1])
        full = len(alive) * modules >= most or len(alive) * size > BYTES or time.monotonic() > until
        if full or places & known:
            return alive[-1]


def _parts(module: Any) -> tuple[int, int]:
    """How many modules it is, and bytes of its weights."""
    if not isinstance(module, torch.nn.Module):
        return 1, 0
    return sum(1 for _ in module.modules()), sum(weight.nbytes for weight in module.parameters())
