# SPDX-License-Identifier: Apache-2.0
"""Whether a verdict on a task would mean anything: every known-wrong program must be told from the reference."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelwright.errors import NotAdmitted, TaskDoesNotImport
from kernelwright.judge import agreement, calls, decoys, extremes, numerics, refusals
from kernelwright.judge.decoys import Decoy
from kernelwright.judge.draws import Draws
from kernelwright.judge.foresight import Say
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance, State
from kernelwright.judge.reference import Reference, last_line
from kernelwright.judge.variants import AS_GIVEN, HEAVY, HUGE_NOTE
from kernelwright.judge.verify import Checker

_WORDS = {
    "degenerate": "the result does not depend on what is computed: {name} passes as an answer",
    "input": "{name}: the result is the same, so nothing shows whether a program reads it",
    "partial": "{name}: passes, so a program that leaves work out would pass too",
    "own": "{name} of the task's own decoys passes",
}
SLOW_S = 1.0
"""Where a call of the reference takes longer, every decoy is announced."""
_PUBLISHED = ("degenerate", "input")
_NOTES = {
    "parameter": "{name} without any effect on the result",
    "exact input": "{name} without any effect on the result",
    "precision": "{name} loses no more than the contract allows here, so it would pass",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The verdict on a task. ``reasons`` is empty exactly where it is admitted."""

    admitted: bool
    reasons: tuple[str, ...]
    decoys: tuple[tuple[str, str], ...]
    """(decoy, what rejected it); a decoy that passed or did not apply says so."""
    notes: tuple[str, ...]

    def raise_if_refused(self, task: str) -> None:
        """Raises NotAdmitted with the reasons in words."""
        if not self.admitted:
            raise NotAdmitted(
                f"Task {task} is not admitted: a known-wrong program passes.",
                got="; ".join(self.reasons),
                expected="every decoy rejected, every floating input with influence",
                what_next="change the inputs or the program so that the result depends on all of it",
            )


_Call = tuple[list[torch.Tensor], State, list[torch.Tensor]]


@dataclass(slots=True, eq=False)
class _Standing:
    """A decoy that nothing has rejected yet."""

    decoy: Decoy
    applied: int = 0
    equal: bool = True
    """Bit for bit the reference's answer wherever it applied."""


@dataclass(frozen=True, slots=True)
class Known:
    """The timed case with a call as given, on the first weights, that need not be drawn and computed again."""

    instance: Instance
    checker: Checker
    leaves: list[torch.Tensor]
    tight: bool = False
    """The device has hardly room for what is made on the way to a truth."""

    def settle(self, given: Variant) -> None:
        """Measure the honest error of such calls, scaled for others later, before programs need the room: of an RMSNorm
        of 7 GiB a draw of it takes 50 GiB."""
        for yardstick in self.checker.truth(given, self.leaves, self.instance.first_state).yardsticks:
            if yardstick is not None:
                yardstick.raise_floor()


def admit(
    reference: Reference, *, seed: int = 20, known: Known | None = None, say: Say = lambda text: None
) -> Admission:
    """Run every decoy through the cases and variants until something rejects it; ``say`` hears of each that takes long.

    The timed case as given comes first, its other variants last: a decoy is cheaper to reject on the small cases.
    Where one call of the timed case is heavy, only what a note on it asks for comes before the small cases.
    Raises what building the instances raises, and TaskDoesNotImport for a ``decoys.py`` that fails to execute.
    """
    timed = reference.task.timed_case()
    first = reference.instance(timed) if known is None else known.instance
    standing = [_Standing(decoy) for decoy in _all_decoys(first, seed)]
    order = [item.decoy.name for item in standing]
    court = _Court(standing, seed, [*first.notes, *_unseen(first, seed)], say)
    main = _Bar(first, Checker(first, seed=seed) if known is None else known.checker, seed, known)
    given, *others = first.offered(seed)
    if known is not None and known.tight:
        known.settle(given)
    shown = [item for item in standing if not (first.work > HEAVY or first.huge) or item.decoy.kind in _PUBLISHED]
    court.hear(main, given, shown)
    names = [item.decoy.name for item in shown if item in court.standing and item.applied]
    names = [name for name in names if court.kinds[name] in _PUBLISHED]
    if names:
        court.notes.append(f"on the task's own inputs and first weights these pass: {', '.join(names)}")
    for case in sorted(reference.task.cases, key=lambda case: math.prod(size for _, size in case.axes)):
        if case != timed and court.standing:
            instance = reference.instance(case)
            bar = _Bar(instance, Checker(instance, seed=seed), seed, None)
            for variant in instance.offered(seed):
                court.hear(bar, variant, court.standing)
    court.hear(main, given, [item for item in court.standing if item not in shown])
    for variant in others:
        court.hear(main, variant, court.standing)
    found = _conclude(court.standing, order, court.rejected, court.notes)
    return found if found.admitted else dataclasses.replace(found, reasons=(*_blank(main, given), *found.reasons))


def _blank(bar: _Bar, given: Variant) -> list[str]:
    """Outputs without a finite number on the task's own inputs: why no wrong program shows."""
    found = bar.call(given)
    pairs = enumerate(found[2][: len(bar.instance.out_specs)] if found else ())
    blank = [index for index, out in pairs if out.numel() and not bool(torch.isfinite(out).any())]
    return [
        f"output {index} holds no finite number, NaN or infinity alone, on the task's own inputs" for index in blank
    ]


def _unseen(instance: Instance, seed: int) -> list[str]:
    """Notes where not every parameter is ignored in turn, or not every variant tried."""
    every, some = decoys.parameters(instance), decoys.looked_at(instance, seed)
    note = f"of {len(every)} parameters {len(some)} were ignored in turn, drawn at random: each costs a call"
    return [*([note] if len(some) < len(every) else []), *([HUGE_NOTE] if instance.huge else [])]


class _Bar:
    """One case that decoys are brought before."""

    def __init__(self, instance: Instance, checker: Checker, seed: int, known: Known | None) -> None:
        self.instance, self.checker, self.seed, self.known = instance, checker, seed, known
        self._decoys: dict[str, Decoy] | None = None
        self._draws: dict[str, Draws] = {}

    def drawn_by(self, name: str) -> Draws:
        """The random outputs of the decoy of that name so far: of all in one, calls that are as chance has them would
        excuse those of others that are not."""
        return self._draws.setdefault(name, Draws())

    def decoy(self, name: str, otherwise: Decoy) -> Decoy:
        """The decoy of that name made for this case."""
        if self._decoys is None:
            self._decoys = {decoy.name: decoy for decoy in _all_decoys(self.instance, self.seed)}
        return self._decoys.get(name, otherwise)

    def call(self, variant: Variant) -> _Call | None:
        """A call of the variant and eager's answer, or None where the reference does not accept it.

        A finite answer shows that it does; only where there is none is ``usable`` asked, which costs a call more, and
        of numbers as small or large as few references take.
        """
        if self.known is not None and variant.name == AS_GIVEN:
            leaves, state = self.known.leaves, self.instance.first_state
            return leaves, state, self._of_one_shape(self.checker.truth(variant, leaves, state).eager)
        leaves = self.instance.draw(variant, self.seed + 11)
        state = self.instance.first_state
        if variant.fresh_weights:
            state = self.instance.draw_state(self.seed + 13, variant.moved)
        try:
            eager = self.instance.eager(leaves, state)
        except calls.CAUGHT:
            if variant.name == AS_GIVEN or self.instance.usable(variant, self.seed):
                raise
            return None
        if variant.name == AS_GIVEN:
            self._of_one_shape(eager)
        shown = all(numerics.finite(out) for out in eager[: len(self.instance.out_specs)])
        shown = shown and not extremes.guarded(variant)
        return (leaves, state, eager) if shown or self.instance.usable(variant, self.seed) else None

    def _of_one_shape(self, eager: list[torch.Tensor]) -> list[torch.Tensor]:
        refusals.of_one_shape(self.instance.reference, self.instance.out_specs, eager)
        return eager


class _Court:
    """The decoys that nothing has rejected yet, and what rejected the others."""

    def __init__(self, standing: list[_Standing], seed: int, notes: list[str], say: Say) -> None:
        self.standing, self.seed, self.notes, self.say = list(standing), seed, notes, say
        self.kinds = {item.decoy.name: item.decoy.kind for item in standing}
        self.rejected: dict[str, str] = {}

    def hear(self, bar: _Bar, variant: Variant, items: Sequence[_Standing]) -> None:
        """Bring some of the decoys before one variant of a case."""
        for item in items:
            item.decoy = bar.decoy(item.decoy.name, item.decoy)
        items = [item for item in items if item.decoy.applies]
        found = bar.call(variant) if items and variant.required else None
        if found is None:
            return
        for number, item in enumerate(items, 1):
            if bar.instance.call_seconds > SLOW_S:
                self.say(f"admission: known-wrong program {number} of {len(items)}, {item.decoy.name}")
            bar.checker.draws = bar.drawn_by(item.decoy.name)
            verdict = _try(bar.checker, variant, *found, item)
            if verdict:
                self.rejected[item.decoy.name] = verdict
        self.standing = [item for item in self.standing if item.decoy.name not in self.rejected]


def _all_decoys(instance: Instance, seed: int) -> list[Decoy]:
    try:
        own = decoys.own(instance)
    except Exception as error:
        raise TaskDoesNotImport(
            f"The decoys of {instance.reference.task.name} raise when they are executed.",
            got=last_line(error),
            expected="source that defines nn.Module classes",
            what_next="mend decoys.py at the line named above",
        ) from error
    return [*decoys.standard(instance, seed), *own]


def _try(
    checker: Checker,
    variant: Variant,
    leaves: list[torch.Tensor],
    state: State,
    eager: list[torch.Tensor],
    item: _Standing,
) -> str:
    """What rejected the decoy on this call, or nothing."""
    try:
        answer = item.decoy.answer(variant, leaves, state, eager)
    except calls.CAUGHT as error:
        return f"{variant.name}: {decoys.outcome_of_error(error)}"
    if answer is None:
        return ""
    item.applied += 1
    result = checker.check(variant, leaves, state, answer, None, brief=True)
    if not result.passed:
        return f"{result.name}: {result.detail}"
    item.equal = item.equal and len(answer) == len(eager) and all(map(agreement.same, answer, eager))
    return ""


def _conclude(
    standing: Sequence[_Standing], order: Sequence[str], rejected: dict[str, str], notes: list[str]
) -> Admission:
    reasons = []
    for item in standing:
        name, kind = item.decoy.name, item.decoy.kind
        if item.applied == 0:
            rejected[name] = "does not apply"
        elif kind in _NOTES:
            rejected[name] = "passes (noted)"
            notes.append(_NOTES[kind].format(name=name))
        elif kind == "partial" and item.equal:
            rejected[name] = "the same program, bit for bit"
            notes.append(f"{name}: changes nothing on this task")
        else:
            rejected[name] = "PASSES"
            reasons.append(_WORDS[kind].format(name=name))
    return Admission(
        admitted=not reasons,
        reasons=tuple(reasons),
        decoys=tuple((name, rejected[name]) for name in order),
        notes=tuple(dict.fromkeys(notes)),
    )
