# SPDX-License-Identifier: Apache-2.0
"""What admitting a task and proving one candidate will take, told from the first look at its reference.

Whoever has less time hears so after two calls, not after minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.errors import BudgetTooSmall
from kernelwright.judge import calls, health, refusals, room, skeletons
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance
from kernelwright.judge.variants import AS_GIVEN, HEAVY

Say = Callable[[str], None]
"""What hears, in a few words each, what is being done."""

ADMISSION = {"cpu": (3.0, 9.0, 6e-8), "cuda": (3.0, 9.0, 2e-9)}
"""Admission takes so many draws, calls (two of them in float64), and seconds per element that goes in or out."""
PROOF = {"cpu": (5.0, 25.0, 2e-7), "cuda": (5.0, 25.0, 2.5e-8)}
"""The same for a coarse judgement and the proof of one candidate: two processes, the variants, the timed rounds.
Seen on 2 loaded cores: 35 and 67 s where 26 and 70 were expected (cross-entropy of 32768 x 4096), 24 and 86 for 20 and
54 (a product of 1024 x 8192 x 8192). On an H200, 0.5 and 6.7 s for 268 million elements, baselines warm."""
DOUBLE = {"ordinary": (4.0, 40.0), "heavy": (4.0, 12.0)}
"""Calls in float64 that an admission and a proof take, of cases judged variant by variant and of heavy ones; with the
honest errors, each draw of which takes three. What they take beyond USUAL calls of eager is not in the above."""
USUAL = 4.0
GRACE_S, LATEST = 120.0, 2.0
"""Refused is what is expected to take longer than both: this, for a candidate may be far faster than the reference, and
so many times what is left of the budget."""
SHAPES, SHAPES_S = 96, 1.0
"""Calls, and seconds of them, after which answers are taken to be of one shape: of 200 numbers below 30 one is missing
in a draw of 29, and a race ended there."""
GIVEN = Variant(name=AS_GIVEN, required=True)
WORTH_SAYING_S = 5.0
"""A step that is expected to take longer is announced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """Seconds, to within a factor of two."""

    draw: float
    call: float
    double: float
    """A call in float64; 0 where none was made yet."""
    admission: float
    proof: float

    def words(self) -> str:
        """What was seen, and what follows from it."""
        seen = f"a call of the reference takes {_time(self.call)}, drawing its inputs {_time(self.draw)}"
        if self.double > USUAL * self.call:
            seen += f", a call in float64 {_time(self.double)}"
        return f"{seen}: expect about {_time(self.admission)} of admission, {_time(self.proof)} for a first proof"


def look(instance: Instance, left: float | None, say: Say) -> None:
    """Say what is to be expected. Raises NotEnoughMemory, what ``settle`` raises, and TaskError for answers whose shape
    depends on values."""
    room.check_answers(instance)
    _of_one_shape(instance)
    _of_one_structure(instance)
    expected = foresee(instance)
    if expected.admission > WORTH_SAYING_S:
        say(expected.words())
    settle(expected, instance.reference.task.name, left)


def _of_one_shape(instance: Instance) -> None:
    """Some more calls, where operators are there that make shapes out of values."""
    each = instance.draw_seconds + instance.call_seconds
    for seed in range(min(SHAPES, int(SHAPES_S / max(each, 1e-6))) if instance.sized else 0):
        try:
            answers = instance.eager(instance.draw(GIVEN, instance.seed + 2 + seed), None)
        except calls.CAUGHT as error:
            health.pass_on(error)
            continue
        refusals.of_one_shape(instance.reference, instance.out_specs, answers)


def _of_one_structure(instance: Instance) -> None:
    """A call of each variant, where numbers that are no tensors are answered: whether any element is positive is true
    of most draws, and a program that says so of the others too was refused for it."""
    usual = skeletons.shown(instance.out_skeleton)
    for variant in instance.offered(instance.seed) if skeletons.NUMBER.search(usual) else ():
        try:
            found = skeletons.shown(instance.answered(instance.model, instance.draw(variant, instance.seed)).skeleton)
        except calls.CAUGHT as error:
            health.pass_on(error)
            continue
        if found != usual:
            got = f"{usual:.200} as given, {found:.200} of {variant.name}"
            raise refusals.of_numbers(instance.reference.task.name, got)


def look_again(instance: Instance, left: float | None, say: Say) -> None:
    """The same once a call in float64 was made, where that took far longer than eager's: torch fuses some layers (those
    of an LSTM) in float32 alone. Raises what ``settle`` raises."""
    if instance.double_seconds <= USUAL * instance.call_seconds:
        return
    expected = foresee(instance)
    if expected.admission > WORTH_SAYING_S:
        say(expected.words())
    settle(expected, instance.reference.task.name, left)


def foresee(instance: Instance) -> Foresight:
    """From the first draws and calls of an instance, and the elements that go in and out of a call."""
    kind = "cpu" if instance.device.type == "cpu" else "cuda"
    dearer = max(0.0, instance.double_seconds - USUAL * instance.call_seconds)
    doubles = DOUBLE["heavy" if instance.work > HEAVY or instance.huge else "ordinary"]
    elements = sum(math.prod(spec.shape) for spec in (*instance.specs, *instance.out_specs))

    def cost(shares: tuple[float, float, float]) -> float:
        return shares[0] * instance.draw_seconds + shares[1] * instance.call_seconds + shares[2] * elements

    return Foresight(
        draw=instance.draw_seconds,
        call=instance.call_seconds,
        double=instance.double_seconds,
        admission=cost(ADMISSION[kind]) + doubles[0] * dearer,
        proof=cost(PROOF[kind]) + doubles[1] * dearer,
    )


def settle(found: Foresight, task: str, left: float | None) -> None:
    """Raises BudgetTooSmall where a proof would come long after ``left`` seconds (None: there is no hurry)."""
    needed = found.admission + found.proof
    if left is None or needed <= max(GRACE_S, LATEST * left):
        return
    raise BudgetTooSmall(
        f"The budget cannot hold a proof for {task}, so nothing was tried.",
        got=f"{max(left, 0.0):.0f} s left of it; {found.words()}",
        expected=f"a budget of about {_time(needed)}",
        what_next=f"--budget {math.ceil(needed / 60.0)}m, or smaller sizes in the file",
    )


def _time(seconds: float) -> str:
    if seconds < 1.0:
        return f"{1e3 * seconds:.0f} ms"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
