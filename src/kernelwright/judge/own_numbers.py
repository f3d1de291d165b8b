# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a reference draws by a generator of its own, in a run in float64.

A code book made in ``forward`` by ``torch.Generator().manual_seed(7)`` is the same in every call, and another one where
torch is asked for doubles. The float64 run of such a reference disagreed with its own result, six orders of summation
moved nothing, and an honest program was refused whose errors were nine tenths of eager's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

NAMES = {f"aten::{name}" for name in ("randn", "rand", "normal", "normal_", "uniform_")}


def drawn(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator draws floats by a generator that it is given."""
    return func._schema.name in NAMES and kwargs.get("generator") is not None


def of_single(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """The numbers that it draws where nothing is raised, in double precision: in float32 where no type is said, or into
    what is a double by now."""
    if func._schema.is_mutable:
        target: torch.Tensor = args[0]
        single = torch.empty(target.shape, dtype=torch.float32, device=target.device)
        return target.copy_(func(single, *args[1:], **kwargs))
    if any(argument.name == "dtype" for argument in func._schema.arguments):
        kwargs = {**kwargs, "dtype": kwargs.get("dtype") or torch.float32}
    else:  # means or deviations of each number
        args = [one.float() if isinstance(one, torch.Tensor) else one for one in args]
    made: torch.Tensor = func(*args, **kwargs)
    return made.to(torch.float64)
