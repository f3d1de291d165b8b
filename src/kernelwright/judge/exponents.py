# SPDX-License-Identifier: Apache-2.0
"""Weights that a reference takes an exponential of: a softplus of a factor, the decays of a scan, a gate.

What is right for an argument about zero is wrong further off: log(1 + exp(a)) of a softplus has lost half of its bits
at -10. Inputs come at a scale of 20 for it; the weights of a constructor never do, and few of those that are moved are
far below zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelwright.judge import borders

DEVIATION = 10.0
"""Of weights that are exponents: a quarter of normal numbers that large lies between -17 and -5."""
FAR = 100.0
"""The same of weights that no bare exponential is taken of, but a softmax, softplus or sigmoid, which have no infinite
results: who leaves out the maximum of a softmax has one at 89."""
BARE = {"exp", "exp2", "expm1"}
MOST = 4 * DEVIATION
"""How far from zero a weight of which a bare exponential is taken may be moved. From 89 on that is infinite: a decay by
exp(-inf) is a zero for whoever goes step by step, and the difference of two infinities for whoever adds up logarithms
of decays in chunks, as kernels of state space models do."""
FEW = 1 << 12
"""Elements up to which they are spread evenly over the law: of eight one lies there in every draw."""
SINGLE = 6
"""Elements below which each is one to two deviations large, of either sign: a law has none of so few far off in most
draws."""
HELD = 1 << 20
"""Elements of a tensor at the most that is followed."""
_SAME = {"alias", "view", "_unsafe_view", "detach", "expand", "unsqueeze", "squeeze", "t", "transpose", "permute",
         "_to_copy", "clone", "neg", "abs", "mul", "div", "add", "sub", "reshape", "clamp"}  # fmt: skip
"""Operators after which a weight is still one: another shape or type, a number added or multiplied with."""
_JOINS = {"cat", "stack"}
"""Operators that put it beside others: a sink of attention is one more logit."""


class Followed:
    """Which of some weights come to be exponents; ``gates``: single numbers in buffers are followed too."""

    def __init__(self, model: torch.nn.Module | None, gates: bool = False) -> None:
        named: list[tuple[str, torch.Tensor]] = []
        if model is not None:
            named += model.named_parameters(remove_duplicate=False)
            named += [pair for pair in model.named_buffers() if gates and pair[1].numel() == 1]
        self._names: dict[int, list[str]] = {}
        for name, value in named:
            if value.numel() and value.numel() <= HELD and value.is_floating_point():
                self._names.setdefault(value.untyped_storage().data_ptr(), []).append(name)
        self._kept: dict[int, tuple[torch.Tensor, int]] = {}
        self.found: dict[str, float] = {}
        """How large they become at the most, by name."""

    def note(self, func: Any, args: Sequence[Any], out: Any) -> None:
        """One operator has run."""
        if not self._names:
            return
        joined = borders.named(func) in _JOINS
        tensors = [arg for arg in (args[0] if joined else args) if isinstance(arg, torch.Tensor)]
        if len(tensors) != 1 and not joined:
            return
        places = (self._kept[id(one)][1] if id(one) in self._kept else _place(one) for one in tensors)
        place = next((place for place in places if place in self._names), None)
        if place is None:
            return
        if borders.exponential(func):
            most = DEVIATION if borders.named(func) in BARE else FAR
            self.found |= {name: min(most, self.found.get(name, FAR)) for name in self._names[place]}
        elif (joined or borders.named(func) in _SAME) and isinstance(out, torch.Tensor):
            self._kept[id(out)] = out, place

    def names(self, value: torch.Tensor) -> Sequence[str]:
        """Of the weight that a tensor is, or comes from."""
        place = self._kept[id(value)][1] if id(value) in self._kept else _place(value) if self._names else 0
        return self._names.get(place, ())


def _place(value: torch.Tensor) -> int:
    plain = value.layout is torch.strided and value.device.type != "meta"
    return value.untyped_storage().data_ptr() if plain and value.numel() else 0


def bounded(moved: torch.Tensor, seen: torch.Tensor, deviation: float) -> torch.Tensor:
    """An exponent as training may have ``moved`` it, no further from zero than MOST (bare ones), or than it was."""
    if deviation > DEVIATION or moved is seen or not moved.is_floating_point() or not moved.numel():
        return moved
    most = max(MOST, float(seen.abs().max()))
    return moved.clamp(-most, most)


def spread(value: torch.Tensor, rng: torch.Generator, deviation: float) -> torch.Tensor:
    """Normal numbers of a deviation in the place of a weight, float of any shape; of few elements large ones."""
    count = value.numel()
    if count < SINGLE:  # the law has the half of one element within 0.7 deviations
        signs = 2.0 * torch.randint(2, (count,), generator=rng, device=value.device) - 1.0
        signs[0] = -1.0 if deviation <= DEVIATION else 1.0  # bits are lost below zero, and overflow is above
        made = signs * (1.0 + torch.rand(count, generator=rng, device=value.device))
    elif count > FEW:
        made = torch.randn(count, generator=rng, device=value.device)
    else:
        order = torch.randperm(count, generator=rng, device=value.device)
        within = torch.rand(count, generator=rng, device=value.device, dtype=torch.float64)
        made = torch.special.ndtri(((order + within) / count).clamp(1e-6, 1 - 1e-6))
    return (made * deviation).reshape(value.shape).to(value.dtype)
