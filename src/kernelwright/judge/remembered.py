# SPDX-License-Identifier: Apache-2.0
"""Calls whose truth is known, for the next program that answers them.

A large one takes five times its outputs (eager's answer, the oracle's in float64, its elements in the order of their
bands), and while a proof ran three checkers held one each: a softmax of 6 GiB, of which an H200 should have room for
eight copies, filled it. So on a device one large call is remembered at the most, whoever asked, and none while the next
is made.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch

from kernelwright.judge import health
from kernelwright.judge.variants import HEAVY
from kernelwright.judge.weights import State

MANY_BYTES, LARGE_BYTES = 128 << 20, 1 << 30
"""Size of the exact outputs of a call up to which several calls are remembered; and from which on a device is asked for
room."""
SEVERAL = 4


class Known(Protocol):
    """What is known about one call."""

    leaves: Sequence[torch.Tensor]
    state: State | None
    exact: list[torch.Tensor]


T = TypeVar("T", bound=Known)


class Remembered(Generic[T]):
    """The last calls of one checker, whose outputs (``bytes_of_exact`` in float64) come of ``work`` multiply-adds."""

    def __init__(self, device: torch.device, work: int, bytes_of_exact: int) -> None:
        self._large = device.type != "cpu" and bytes_of_exact > LARGE_BYTES
        self._device, self._most = device, 1 if bytes_of_exact > MANY_BYTES or work > HEAVY else SEVERAL
        self._calls: list[T] = []
        if self._large:
            _LARGE.add(self)

    def find(self, leaves: Sequence[torch.Tensor], state: State | None) -> T | None:
        """What is known about this very call."""
        return next((known for known in self._calls if known.leaves is leaves and known.state is state), None)

    def make_room(self) -> None:
        """Before a call is looked at: forget large ones, other checkers' too."""
        if not self._large:
            return
        for other in _LARGE:
            other._calls = []
        health.make_room(self._device)

    def add(self, known: T) -> None:
        """Remember one more, or that one as the last."""
        if not any(one is known for one in self._calls):
            self._calls = [known, *self._calls[: self._most - 1]]
        if self._large:
            torch.cuda.empty_cache()  # what was made on the way: the programs that are asked next need it


_LARGE: weakref.WeakSet[Remembered[Any]] = weakref.WeakSet()
