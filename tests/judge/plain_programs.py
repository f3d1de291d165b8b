# SPDX-License-Identifier: Apache-2.0
"""Programs that are no process, and checks of one, for the tests of the judge."""

from __future__ import annotations

import contextlib
from typing import Any

from kernelwright.judge.bench import Bench
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.correctness import Correctness
from kernelwright.judge.load import Strain
from kernelwright.judge.program import Program
from kernelwright.judge.window import Window


def _never() -> Program:
    raise AssertionError("no program is needed")


def checks_of(bench: Bench) -> Correctness:
    """Those of a candidate that is asked through a program of one's own."""
    return Correctness(bench=bench, entry="x.py::Model", start=_never, shared=contextlib.nullcontext, seed=5)


class Obedient:
    """A program that answers a window with what it was given, twice as large, but for one call of all it ever had."""

    def __init__(self, wrong: int) -> None:
        self.wrong, self.windows, self.calls = wrong, list[int](), 0
        self.stage, self.buffers = "verify", None

    def bind(self, plan: Any) -> Buffers:
        self.buffers = Buffers.create(plan, "cpu")
        return self.buffers

    def checked(self, order: list[int], *, grad: bool, hidden: bool) -> Window:
        return self.window(order, grad=grad)

    def window(self, order: list[int], *, grad: bool) -> Window:
        assert self.buffers is not None
        self.windows.append(len(order))
        for call in order:
            self.calls += 1
            answer = 2 * self.buffers.inputs[call][0]
            self.buffers.outputs[call][0].copy_(-1 - answer if self.calls == self.wrong else answer)
        return Window(1.0, 1.0, Strain(0.0, 0), 1.0, (1.0,), (), None)
