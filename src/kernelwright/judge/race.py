# SPDX-License-Identifier: Apache-2.0
"""Programs against each other on one case: interleaved windows on fresh values, timed calls are checked calls.

In each round all programs get the same fresh values, so rounds are pairs. Before a window the outputs are poisoned
and the cache is walked cold; which calls are compared in full is decided after the programs have answered.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.judge import measure, numerics
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.child import Program
from kernelwright.judge.cold import Cold
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.timing_plan import TimingPlan
from kernelwright.trial import CaseResult

WARM_WINDOWS = 8
WARM_US = 200_000.0
SUSPICION = 8.0
"""A timed call whose distance from eager is this many times the largest honest one seen is compared in full."""
SAMPLE = 1 << 18
"""Elements of a call compared with eager's when the level is coarse."""

Leaves = list[torch.Tensor]
Check = Callable[[Leaves, Any, Leaves, Leaves], CaseResult]
"""(inputs, state, outputs, inputs afterwards) to the verdict on one call."""


class Mismatch(Exception):
    """A timed call of the candidate was wrong."""

    def __init__(self, result: CaseResult) -> None:
        super().__init__(result.detail)
        self.result = result


class Lost(Exception):
    """A baseline's program died or misbehaved: the race must be run again without the old process."""

    def __init__(self, name: str, failure: ChildFailure) -> None:
        super().__init__(name, str(failure))
        self.name, self.failure = name, failure


@dataclass(slots=True)
class Racer:
    """One program in the race: its lane and the shared buffers of its call sets."""

    name: str
    program: Program
    buffers: Buffers
    check: Check
    lane: measure.Lane
    checks: list[CaseResult] = field(default_factory=list)
    sampled: int = 0
    """Calls compared with eager's own outputs only."""


@dataclass(slots=True)
class Race:
    """The programs and how they are run: eager first (the measure of honest delivery), the candidate last."""

    racers: list[Racer]
    plan: TimingPlan
    draw: Callable[[], Leaves]
    """Fresh inputs of one call."""
    draw_state: Callable[[], Any] | None
    """Fresh weights, or None where they are frozen or absent."""
    state: Any
    dice: random.Random
    grad: bool
    thorough: bool
    """Compare every element of every timed call with eager's; else a sample of one call per window."""
    threads: int
    device: torch.device
    tolerated: float = 0.0
    """Largest distance from eager among calls that passed in full."""
    _cold: Cold = field(init=False)

    def run(self) -> int:
        """Race until the plan is spent; the number of rounds run."""
        self._cold = Cold(self.device, self.plan.flush_bytes)
        for racer in self.racers:
            with self._blame(racer):
                self._warm(racer)
        lanes = [racer.lane for racer in self.racers]
        return measure.rounds_until(
            self._round,
            lambda: len(measure.clean_rounds(lanes)),
            least=self.plan.least,
            most=self.plan.most,
            seconds=self.plan.seconds,
        )

    def _warm(self, racer: Racer) -> None:
        """Windows that are not counted: first touch of pages, autotuners, and the steady state of the allocator.

        A fresh process needs several: on a 2-core virtual machine one call of 16 MB in and out fell from 8.1 to 1.7 ms
        over six windows, while a baseline that had been running for a while stood at 3.5 ms from the first.
        """
        self._fill(racer, [self.draw() for _ in range(self.plan.sets)])
        spent_us = 0.0
        for _ in range(WARM_WINDOWS):
            if spent_us > WARM_US:
                return
            spent_us += racer.program.window(list(range(self.plan.sets)), grad=self.grad).call_us

    @contextlib.contextmanager
    def _blame(self, racer: Racer) -> Iterator[None]:
        """A failure of the candidate is its own; one of a baseline is not the candidate's fault."""
        try:
            yield
        except ChildFailure as failure:
            if racer is self.racers[-1]:
                raise
            raise Lost(racer.name, failure) from failure

    def _round(self, index: int) -> None:
        torch.set_num_threads(1)  # no pool of ours spins while a program is timed
        values = [self.draw() for _ in range(self.plan.sets)]
        if self.draw_state is not None and index > 0:
            self.state = self.draw_state()
            for racer in self.racers:
                with self._blame(racer):
                    racer.program.set_state(self.state)
        order = list(range(self.plan.sets))
        for racer in self.dice.sample(self.racers, len(self.racers)):
            self._fill(racer, values)
            self._cold.walk()
            with self._blame(racer):
                measure.run_empty(racer.lane, grad=self.grad)
                measure.run_window(racer.lane, self.dice.sample(order, len(order)), grad=self.grad)
        torch.set_num_threads(self.threads)
        self._examine(index, values)

    def _fill(self, racer: Racer, values: list[Leaves]) -> None:
        for index, leaves in enumerate(values):
            fill(racer.buffers, index, leaves)

    def _examine(self, index: int, values: list[Leaves]) -> None:
        """Compare in full a secret call of the candidate, and of each baseline in the first round; the rest cheaply."""
        eager, *others = self.racers
        chosen = self.dice.randrange(self.plan.sets)  # one call for all of them: its oracle is computed once
        for racer in others:
            candidate = racer is self.racers[-1]
            budget = self.plan.full_checks if candidate else 1
            if len(racer.checks) < budget:
                self._full(racer, values, chosen)
            if candidate:
                self._cheap(racer, eager, values, chosen)

    def _full(self, racer: Racer, values: list[Leaves], call: int) -> None:
        outputs, inputs = racer.buffers.answers(call), racer.buffers.inputs[call]
        result = racer.check(values[call], self.state, list(outputs), list(inputs))
        racer.checks.append(result)
        if result.passed:
            self.tolerated = max(self.tolerated, distance(outputs, self.racers[0].buffers.answers(call), None))
        elif racer is self.racers[-1]:
            raise Mismatch(result)

    def _cheap(self, racer: Racer, eager: Racer, values: list[Leaves], checked: int) -> None:
        calls = range(self.plan.sets) if self.thorough else [self.dice.randrange(self.plan.sets)]
        for call in calls:
            if call == checked and racer.checks:
                continue
            sample = None if self.thorough else self.dice.getrandbits(30)
            far = max(
                distance(racer.buffers.answers(call), eager.buffers.answers(call), sample),
                distance(racer.buffers.inputs[call], eager.buffers.inputs[call], sample),  # as the calls left them
            )
            if far > SUSPICION * max(self.tolerated, 1e-7):
                self._full(racer, values, call)
            else:
                racer.sampled += 1


def fill(buffers: Buffers, index: int, leaves: Leaves) -> None:
    """Write one call's inputs into a set and poison its outputs."""
    for target, leaf in zip(buffers.inputs[index], leaves, strict=True):
        target.copy_(leaf)
    for tensor in (*buffers.outputs[index], *buffers.grads[index]):
        numerics.poison_(tensor)
    if buffers.outputs[index][0].is_cuda:
        torch.cuda.synchronize(buffers.outputs[index][0].device)


def distance(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], sample: int | None) -> float:
    """Largest over outputs of RMS(ours - theirs) / RMS(theirs); inf where one is finite and the other is not.

    With ``sample`` (a secret number) only a run of SAMPLE elements of each output is read.
    """
    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        if sample is not None and mine.numel() > SAMPLE and mine.is_contiguous() and other.is_contiguous():
            start = sample % (mine.numel() - SAMPLE)
            mine, other = mine.view(-1)[start : start + SAMPLE], other.view(-1)[start : start + SAMPLE]
        worst = max(worst, _apart(mine, other))
    return worst


def _apart(mine: torch.Tensor, other: torch.Tensor) -> float:
    if mine.numel() == 0:
        return 0.0
    if not (mine.is_floating_point() or mine.is_complex()):
        return 0.0 if torch.equal(mine, other) else float("inf")
    gap = (mine - other).abs()
    scale = float(torch.linalg.vector_norm(other, dtype=_wide(other)))
    far = float(torch.linalg.vector_norm(gap, dtype=_wide(gap)))
    if far != far or scale != scale or scale == float("inf"):
        same = torch.equal(torch.isfinite(mine), torch.isfinite(other))
        if not same:
            return float("inf")
        keep = torch.isfinite(mine)
        return _apart(mine[keep], other[keep])
    if scale == 0.0:
        return 0.0 if far == 0.0 else float("inf")
    return far / scale


def _wide(tensor: torch.Tensor) -> torch.dtype:
    return torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.real.dtype
