# SPDX-License-Identifier: Apache-2.0
"""A program keeps nothing of one instance for another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from plain_tasks import task

from kernelwright.judge.bench import Bench
from kernelwright.judge.checks import Wrong
from kernelwright.judge.program import Program
from kernelwright.judge.verification import Verification

FORWARD = """v = self.w._version
if _known.get({0}, (None,))[0] != v:
    _known[{0}] = v, self.w.detach() * 2
return x * _known[{0}][1]"""


@pytest.mark.parametrize(("forward", "wrong"), [(FORWARD.format("0"), True), (FORWARD.format("id(self)"), False)])
def test_weights_of_another_instance_are_no_answer(program: Callable[..., Program], forward: str, wrong: bool) -> None:
    """Both were loaded once, so their weights were written to as often."""
    init = "self.w = torch.nn.Parameter(torch.ones(8))"
    bench = Bench(task("x * self.w * 2", "[torch.randn(4, 8)]", init=init.replace("torch.nn", "nn")), "cpu")

    def start() -> Program:
        return program(forward, init=init, head="_known = {}", load=False)

    checks = Verification(bench=bench, entry="new.py::ModelNew", start=start, shared=contextlib.nullcontext, seed=5)
    checks.points = bench.points(5)
    with pytest.raises(Wrong, match="two instances") if wrong else contextlib.nullcontext():
        checks._two_of_them()
