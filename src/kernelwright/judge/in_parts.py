# SPDX-License-Identifier: Apache-2.0
"""Large tensors of random numbers on the host, drawn in parts side by side.

torch draws them in one thread: of a verdict on inputs of 16 MiB (an addition and a LayerNorm, two cores) that was 13 %
of all time, and it is the more of it the more cores there are. 4 Mi normal numbers take 7.3 ms for 12.9 on two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.judge import lanes

LARGE, PARTS = 1 << 20, lanes.FEWEST
"""Elements from which on a tensor is drawn so, and how many parts it has, however many threads draw: the numbers of
a seed are the same on all machines."""
FILLS: dict[Any, Any] = {torch.randn: torch.Tensor.normal_, torch.rand: torch.Tensor.uniform_}
PLAIN = frozenset({"size", "dtype", "device", "layout", "requires_grad", "pin_memory"})
"""What is given to these where they make an ordinary tensor by the default generator."""
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class InParts(TorchFunctionMode):
    """Inside, ``torch.randn`` and ``torch.rand`` draw many numbers by generators of their own, one a part, whose seeds
    follow from the default one: who seeds that one draws the same again."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every function inside."""
        kwargs = kwargs or {}
        fill = FILLS.get(func) if kwargs.keys() <= PLAIN else None
        if fill is None:
            return func(*args, **kwargs)
        made = torch.empty(*args, **kwargs)
        if made.numel() < LARGE or made.device.type != "cpu" or made.dtype not in DTYPES:
            return func(*args, **kwargs)
        seeds = torch.randint(2**62, (PARTS,)).tolist()
        parts = made.detach().view(-1).tensor_split(PARTS)
        lanes.each(
            lambda at: fill(parts[at], generator=torch.Generator().manual_seed(seeds[at])), range(PARTS)
        )  # fmt: skip
        return made
