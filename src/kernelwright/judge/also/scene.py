# SPDX-License-Identifier: Apache-2.0
"""What is measured besides: one task, the programs, and how each is started afresh and asked for a first result."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch

from kernelwright.candidate import Candidate
from kernelwright.judge import race
from kernelwright.judge.bench import Bench, Point
from kernelwright.judge.build import build
from kernelwright.judge.checks import Wrong
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.loading import load
from kernelwright.judge.program import Program
from kernelwright.judge.programs import Programs
from kernelwright.trial import CaseResult, Rejected

STAGE = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One program: the candidate, or a baseline as the candidate that it is run as."""

    name: str
    candidate: Candidate
    own: Path | None
    """Folder in which it keeps what it compiles while it runs; None where it compiles nothing."""
    includes: Path | None = None
    """See ``Programs.fork``: what it built goes by it."""
    seconds: float
    """How long a window of it may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that a measurement here needs."""

    bench: Bench
    contenders: Sequence[Contender]
    """Baselines as they were raced, eager first, and the candidate last."""
    programs: Programs
    cache: Path
    """Where built candidates are."""
    alone: Callable[[], AbstractContextManager[None]]
    """The device, alone."""
    seed: int
    leaves: list[torch.Tensor]
    """Inputs of everybody's first call."""

    @property
    def point(self) -> Point:
        """The timed case."""
        return self.bench.timed

    def dice(self, salt: int) -> random.Random:
        """Random numbers that follow from the seed, others for every measurement."""
        return random.Random(self.seed * 31 + salt)

    def started(self, contender: Contender) -> Program:
        """A fresh process of a contender, loaded and bound to one call set. Raises ChildFailure."""
        folder = self.folder(contender, self.cache)
        own, includes = contender.own, contender.includes
        started = self.programs.fork(self.device, folder, contender.seconds, own, includes=includes)
        return self.loaded(contender, started)

    def folder(self, contender: Contender, cache: Path) -> Path:
        """Where a contender is built. Raises ChildFailure where it cannot be."""
        made = build(contender.candidate, self.device, cache)
        if isinstance(made, Rejected):
            raise ChildFailure(made.stage, made.reason, made.detail)
        return made

    def loaded(self, contender: Contender, program: Program) -> Program:
        """The same program with its entry, its weights and one call set. Raises ChildFailure."""
        instance = self.point.instance
        program.stage = STAGE
        try:
            load(program, contender.candidate.entry, instance)
            self.point.bind(program, self.point.as_given, 1)
        except BaseException:
            program.close()
            raise
        return program

    def first_call(self, program: Program) -> None:
        """One call of a program on the inputs that everybody gets first."""
        assert program.buffers is not None
        race.fill(program.buffers, 0, self.leaves)
        program.window([0], grad=self.bench.contract.gradients)

    def checked(self, program: Program) -> None:
        """Compare the answer to ``first_call`` in full. Raises Wrong."""
        assert program.buffers is not None
        point, buffers = self.point, program.buffers
        state = point.instance.first_state
        result = point.checker.check(point.as_given, self.leaves, state, buffers.answers(0), list(buffers.inputs[0]))
        if not result.passed:
            raise Wrong(STAGE, f"{result.name}: {result.detail}", result.detail)

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda:N``."""
        return str(self.bench.device)

    def each(self, what: str, look: Callable[[Contender], dict[str, float]]) -> list[tuple[str, str]]:
        """``look`` at every contender: named numbers as text. A baseline that fails gets its reason, once."""
        pairs = []
        for contender in self.contenders:
            try:
                found = look(contender)
            except (ChildFailure, Wrong) as failure:
                if contender is self.contenders[-1]:
                    raise
                pairs.append((f"{what}.{contender.name}", f"not measured: {failure}"[:300]))
                continue
            pairs += [(f"{what}.{contender.name}.{name}", f"{value:.6g}") for name, value in found.items()]
        return pairs


def failed(result: CaseResult) -> Rejected:
    """The rejection for a call that was wrong."""
    return Rejected(stage=STAGE, reason=f"a call was wrong: {result.name}: {result.detail}"[:600], detail=result.detail)
