# SPDX-License-Identifier: Apache-2.0
"""Programs that are right on a GPU but where an input begins at no multiple of 16 bytes, as ``x[1:]`` may.

Kernels that read vectors fail there, with a misaligned address or with numbers that lie before the input: on an H200
torch's own attention answers NaN in half precision, and in float32 it ends the context; where rows lie three elements
further apart than they are long it is as wrong. Who wrote such a kernel, or called one, is judged once more without
such inputs, and granted for others; the drop-in looks at addresses and steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kernelwright.judge.layouts import ALIGNED, LATE, WIDE
from kernelwright.trial import CaseResult, Outcome, Rejected, Timed

if TYPE_CHECKING:
    from kernelwright.judge.bench import Bench
    from kernelwright.judge.inputs import Variant
    from kernelwright.judge.stages import Judgement

NAME = "offset inputs"
"""What these calls are called, in reasons and in proofs."""
_MOVED = {"offset": LATE, "padded": WIDE}


def judged(made: Callable[..., Judgement]) -> Outcome | None:
    """The outcome of a judgement, or of a second one in which inputs begin where vectors do, where the first ended on
    such that do not and the contract leaves that open. ``made``: another judgement each time, with more fields."""
    first = made()
    outcome = first.run()
    if not (isinstance(outcome, Rejected) and fails_there(outcome) and left_open(first.bench)):
        return outcome
    detail = f"{outcome.stage}: {outcome.reason}"[:300]
    failed = CaseResult(name=NAME, required=False, passed=False, detail=detail, error_ratio=0.0, calls=1)
    said = f"granted for inputs that begin, as their rows do, at multiples of {ALIGNED} bytes alone"
    again = made(aligned=True, results=[failed], conditions=[said]).run()
    return again if isinstance(again, Timed) else outcome


def left_open(bench: Bench) -> bool:
    """Whether a task leaves it to its programs where inputs may begin: on a GPU, where vectors are read."""
    return bench.device.type == "cuda" and not bench.contract.any_address


def fails_there(outcome: Rejected) -> bool:
    """Whether it was such a call that a program was refused for."""
    return outcome.stage == "verify" and f": {NAME}" in outcome.reason


def moved(chosen: Sequence[Variant]) -> list[Variant]:
    """The same variants, but inputs and rows that began at odd addresses begin as much later as vectors allow."""
    named = [(v, _MOVED.get(v.layout, v.layout)) for v in chosen]
    return [v if how == v.layout else replace(v, layout=how, name=v.name.replace(v.layout, how)) for v, how in named]
