# SPDX-License-Identifier: Apache-2.0
"""Values of an input that mean something else to the reference, and that ``get_inputs`` may never draw.

A class to be ignored, the row of a padding, a number that positions are compared with, NaN where it is looked for: who
leaves that out answers right as long as it does not come. So the operators that look at an input itself say which
values they look for, and some elements of that input, and of no other, become those.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from kernelwright.judge.whole import INTEGERS, in_place

Marks = tuple[tuple[int, tuple[float, ...]], ...]
"""By input, the values."""
COMPARED = {"eq", "ne", "gt", "ge", "lt", "le"}
IGNORING = {"nll_loss_forward": 4, "nll_loss2d_forward": 4, "embedding": 2, "_embedding_bag": 8,
            "_embedding_bag_forward_only": 8}  # fmt: skip
"""Operators whose second argument may hold a number that does not count, and which of their arguments that is."""
SWEPT = {"nan_to_num", "nansum", "isnan", "nanmedian", "nanquantile"}
"""Operators that look for NaN."""
NOT_ASKED_FOR = (-100,)
"""What torch ignores unless something is said: programs for targets that are all there need not know of it."""
SHARE = 1 / 8
"""Of the elements of a marked input, those that are a value that it is looked for."""


def met(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[torch.Tensor, float] | None:
    """The tensor that an operator looks for one value in, and the value."""
    name = str(func._schema.name).removeprefix("aten::").rstrip("_")
    if name in IGNORING:
        place = IGNORING[name]
        number = args[place] if len(args) > place else -1
        named = isinstance(number, int) and (number >= 0 or name.startswith("nll")) and number not in NOT_ASKED_FOR
        return (args[1], float(number)) if named else None
    if name in SWEPT or name in ("eq", "ne") and args[0] is args[1]:
        return (args[0], math.nan) if args[0].is_floating_point() else None
    if name not in COMPARED or len(args) < 2 or args[0].dtype not in INTEGERS:
        return None
    number = args[1]
    whole = isinstance(number, int) and not isinstance(number, bool) and number not in NOT_ASKED_FOR
    return (args[0], float(number)) if whole else None


def of_inputs(found: Iterable[tuple[int, float]], leaves: Sequence[torch.Tensor]) -> Marks:
    """Of values looked for, by the storage that they were looked for in, those of inputs."""
    places = {leaf.untyped_storage().data_ptr(): index for index, leaf in enumerate(leaves) if leaf.numel() > 1}
    values: dict[int, set[float]] = {}
    for place, number in found:
        if place in places:
            values.setdefault(places[place], set()).add(number)
    return tuple((index, tuple(sorted(numbers))) for index, numbers in sorted(values.items()))


def planted(leaf: torch.Tensor, values: Sequence[float], rng: torch.Generator) -> torch.Tensor:
    """Some elements, and one at least, are such values; what lies in order does so still."""
    if leaf.numel() < 2 or not values or in_place(leaf):
        return leaf
    chance = torch.rand(leaf.shape, generator=rng, device=leaf.device)
    which = torch.randint(len(values), leaf.shape, generator=rng, device=leaf.device)
    numbers = torch.tensor(values, dtype=torch.float64, device=leaf.device)[which]
    return torch.where(chance <= max(SHARE, float(chance.min())), numbers.to(leaf.dtype), leaf)
