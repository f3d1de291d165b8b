# SPDX-License-Identifier: Apache-2.0
"""Borders that a buffer holds: a threshold for each channel, edges of buckets, ends of a clamp.

Drawn numbers have 24 bits and meet no other drawn one, and the honest error would move either of them. So in draws of
their own buffers have few bits, of which nothing is moved (``borders``), and inputs are some of their elements: who
wrote > for >=, bucketized with the other side, or cut a gradient off at an end of its clamp passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge import borders, inputs, numerics
from kernelwright.judge.dealing import below

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

HELD = "on borders in buffers"
BITS = 14
"""Significant bits that buffers have then: of a thousand places from 0 to 1 all still differ."""
SHARE = 1 / 4
"""Of elements that become one of a buffer's."""


class Held:
    """Whether a reference compares values with what a buffer holds; ``model``: whose buffers."""

    def __init__(self, model: torch.nn.Module | None) -> None:
        still = [] if model is None else [*model.buffers(), *(p for p in model.parameters() if not p.requires_grad)]
        self._places = {_place(one) for one in still if _has(one)}
        self.found = False

    def note(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """One operator."""
        if not self._places or self.found or borders.named(func) not in borders.COMPARED:
            return
        sides = [_place(arg) in self._places for arg in (*args, *kwargs.values()) if _has(arg)]
        self.found = any(sides) and not all(sides)


def _has(value: Any) -> bool:
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return strided and value.is_floating_point() and value.itemsize > 1 and value.numel() > 0


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def cut(values: torch.Tensor, moving: str = HELD) -> torch.Tensor:
    """The nearest numbers of BITS significant bits, where weights are drawn for that."""
    if moving != HELD or not _has(values) or not numerics.finite(values):
        return values
    mantissa, exponent = torch.frexp(values.to(torch.float64))
    return torch.ldexp((mantissa * 2.0**BITS).round(), exponent - BITS).to(values.dtype)


def planted(
    instance: Instance, leaves: list[torch.Tensor], seed: int, state: Sequence[tuple[str, torch.Tensor]] | None
) -> list[torch.Tensor]:
    """Some elements of each input of floats are those of a buffer, at the same place where it fits."""
    trained = {name for name, value in instance.model.named_parameters(remove_duplicate=False) if value.requires_grad}
    held = [value for name, value in state or instance.first_state if name not in trained and _has(value)]
    held, out, rng = [value for value in held if numerics.finite(value)], list(leaves), None
    for index, leaf in enumerate(leaves):
        if not held or not _has(leaf) or leaf.numel() < 2 or index in instance.bonds.symmetric:
            continue
        rng = rng or inputs.generator(seed ^ 0xB0D, instance.device)
        which = torch.randint(len(held), leaf.shape, generator=rng, device=leaf.device)
        chosen = torch.rand(leaf.shape, generator=rng, device=leaf.device) < SHARE
        low, most = float(leaf.min()), 2 * float(leaf.abs().max())
        for number, value in enumerate(held):
            numbers = _laid(value.to(leaf.dtype), leaf, rng)
            there = chosen & (which == number) & (numbers.abs() <= most) & ((numbers > 0) | (low < 0))
            out[index] = torch.where(there, numbers, out[index])
    return out


def _laid(value: torch.Tensor, leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Elements of a buffer for all places of an input: along its last axes, or another that is as long, or any."""
    axes = [axis for axis, size in enumerate(leaf.shape) if value.dim() == 1 and size == len(value) > 1]
    if axes:
        axis = axes[below(len(axes), rng)]
        return value.view([-1 if dim == axis else 1 for dim in range(leaf.dim())]).expand(leaf.shape)
    fits = value.dim() <= leaf.dim() and value.dim() > 1
    if fits and all(a in (1, b) for a, b in zip(reversed(value.shape), reversed(leaf.shape), strict=False)):
        return value.expand(leaf.shape)
    return value.reshape(-1)[torch.randint(value.numel(), leaf.shape, generator=rng, device=leaf.device)]
