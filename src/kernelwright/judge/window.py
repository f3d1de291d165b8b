# SPDX-License-Identifier: Apache-2.0
"""One timed window of a confined program: the readings, and what its calls had left behind when it said done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelwright.judge import fetch, load, whereabouts
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.whereabouts import Whereabouts


@dataclass(frozen=True, slots=True)
class Window:
    """One timed window, by the judge's clock, in microseconds."""

    call_us: float
    """From waking the program to its word that all calls are done and the device is idle."""
    deliver_us: float
    """From asking for the results to their being in the shared buffers."""
    strain: load.Strain
    """Until then: threads kept waiting, fresh pages."""
    deliver_cpu_us: float
    """CPU time its whole process used meanwhile: unlike wall time, it does not see who else wants the CPU. Wall time
    where the results are those the program itself delivered: a second process of its own may have made them."""
    self_us: tuple[float, ...]
    """What the program claims the calls took in total; never a result, only a cross-check."""
    aliases: tuple[tuple[int, int], ...]
    """(output leaf, input leaf) pairs that share storage, as the program says of its last call; where results were
    looked for, as the judge sees it too."""
    whereabouts: Whereabouts | None
    """Where the results lay: of a ``watched`` program on a CPU."""


class Harvest:
    """What the calls of one window left behind, taken while the program stands still: results, and ``written`` inputs.

    What is put in their place afterwards, by the program's own delivery, does not count. On a CPU.
    """

    def __init__(
        self, pid: int, buffers: Buffers | None, order: Sequence[int], written: Sequence[int], *, grad: bool
    ) -> None:
        self._pid, self._order, self._grad = pid, order, grad
        self._buffers = buffers if order else None
        self._written = written
        self._results: list[list[torch.Tensor]] | None = None
        self._inputs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.fault = ""
        """Why there are no results, where the program is to blame."""
        self.whereabouts: Whereabouts | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing that counts is left for the delivery."""
        return self._buffers is None or self._results is not None

    @property
    def taken(self) -> bool:
        """Whether the results are here: a program that copied them too could do something else in that time."""
        return self._results is not None

    def read(self, notes: bytes, *, watched: bool, spared: frozenset[int] | None = None) -> None:
        """Take it from the stopped program's memory, as far as this can be done. ``watched``: look where it lies, and
        leave rubbish there but for the leaves ``spared`` (None: all)."""
        buffers, order = self._buffers, self._order
        if buffers is None or not fetch.due(buffers, len(order), grad=self._grad):
            return
        wanted = fetch.specs(buffers.plan, grad=self._grad)
        found = fetch.read(self._pid, notes, wanted, len(order))
        if isinstance(found, str):
            self.fault = found
            return
        self._results = found
        inputs = [buffers.inputs[index][leaf] for index in order for leaf in self._written]
        self._inputs = [(now, now.clone()) for now in inputs]
        if watched and found is not None:
            self.whereabouts = seen = whereabouts.look(self._pid, notes, buffers, order, wanted)
            if spared is not None:
                places = {(place.call, place.leaf) for place in seen.results if place.leaf not in spared}
                self.fault = fetch.spoil(self._pid, notes, wanted, places)

    def put(self) -> None:
        """Put it in the place of what the program delivered itself."""
        for target, left in self._inputs:
            target.copy_(left)
        if self._results is not None and self._buffers is not None:
            fetch.put(self._buffers, self._order, self._results, grad=self._grad)
