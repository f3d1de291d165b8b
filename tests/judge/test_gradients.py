# SPDX-License-Identifier: Apache-2.0
"""Gradients asked for as users of a layer ask for them, of programs in a process of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from plain_tasks import GRADIENTS, task

from kernelwright.judge.bench import Bench
from kernelwright.judge.checks import Wrong
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.program import Program
from kernelwright.judge.verification import Verification

INPUTS = "[torch.randn(8, 8)]"
WEIGHT = "self.w = torch.nn.Parameter(torch.ones(8, 8))"
REFERENCE = "torch.tanh(x @ self.w.t())"
KEPT = """k = self.w._version, self.w.data_ptr(){}
if k != getattr(self, "k", None):
    self.k, self.c = k, self.w.t()
return torch.tanh(x @ self.c)"""
Start = Callable[..., Program]


def checked(
    program: Start, check: str, forward: str, fails: str, reference: str = REFERENCE, inputs: str = INPUTS
) -> None:
    """One check of a program, and with which words it fails ("": it passes)."""
    made = task(reference, inputs, init=WEIGHT.replace("torch.nn", "nn"), contract=GRADIENTS)
    bench = Bench(made, "cpu")

    def start() -> Program:
        return program(forward, init=WEIGHT, load=False)

    checks = Verification(bench=bench, entry="new.py::ModelNew", start=start, shared=contextlib.nullcontext, seed=5)
    checks.points = tuple(bench.points(5))
    with (
        checks._loaded() as main,
        pytest.raises((Wrong, ChildFailure), match=fails) if fails else contextlib.nullcontext(),
    ):
        main.stage = "verify"
        getattr(checks, check)(main, checks.points[0])


@pytest.mark.parametrize(
    ("forward", "fails"),
    [
        (KEPT.format(""), "after a call under torch.no_grad"),
        (KEPT.format(", torch.is_grad_enabled()"), ""),
        ("return torch.tanh(x @ self.w.t())", ""),
    ],
)
def test_gradients_follow_a_call_without_them(program: Start, forward: str, fails: str) -> None:
    """A view that was made there has none, and is the same weight still."""
    checked(program, "_without_gradients", forward, fails)


PARAMETERS = "for p in self.parameters(): p.{}"
FREED = PARAMETERS.format("requires_grad_({})\nreturn torch.tanh(x @ self.w.t())")


@pytest.mark.parametrize("inputs", [INPUTS, "[torch.ones(8, 8, dtype=torch.int64)]"])
@pytest.mark.parametrize(("on", "fails"), [("True", "changed requires_grad of w"), ("p.requires_grad", "")])
def test_a_frozen_weight_is_frozen_after_a_call(program: Start, inputs: str, on: str, fails: str) -> None:
    """Also where it is all that may have a gradient."""
    forward, reference = FREED.format(on), REFERENCE
    if "int64" in inputs:
        forward, reference = forward.replace("x @", "x.float() @"), reference.replace("x @", "x.float() @")
    checked(program, "_some_gradients", forward, fails, reference, inputs)


def test_a_reference_that_sets_weights_free_may_be_followed(program: Start) -> None:
    reference = "torch.tanh(x @ self.w.requires_grad_(True).t())"
    checked(program, "_some_gradients", FREED.format("True"), "", reference)


@pytest.mark.parametrize("reference", [REFERENCE, "self.w + x"])
@pytest.mark.parametrize(
    ("how", "fails"), [("grad = None", "changed .grad"), ("grad.zero_()", "changed .grad"), ("dim()", "")]
)
def test_what_stood_in_grad_stands_there_after_a_call(program: Start, reference: str, how: str, fails: str) -> None:
    """Of four micro batches the last one alone was left. Also where gradients are parts of the incoming one."""
    forward = PARAMETERS.format(f"{how.replace('grad.', 'grad is None or p.grad.')}\nreturn {reference}")
    checked(program, "_accumulated", forward, fails, reference)


def test_a_reference_that_empties_grad_may_be_followed(program: Start) -> None:
    reference = "torch.tanh(x @ (setattr(self.w, 'grad', None) or self.w))"
    checked(program, "_accumulated", f"return {reference}", "", reference)
