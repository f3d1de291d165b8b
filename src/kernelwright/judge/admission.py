# SPDX-License-Identifier: Apache-2.0
"""Whether a verdict on a task would mean anything: every known-wrong program must be told from the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelwright.errors import NotAdmitted, TaskDoesNotImport
from kernelwright.judge import decoys
from kernelwright.judge.decoys import Decoy
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance, State
from kernelwright.judge.reference import Reference, last_line
from kernelwright.judge.verify import Checker

_WORDS = {
    "degenerate": "the result does not depend on what is computed: {name} passes as an answer",
    "input": "{name}: the result is the same, so nothing shows whether a program reads it",
    "partial": "{name}: passes, so a program that leaves work out would pass too",
    "own": "{name} of the task's own decoys passes",
}
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


@dataclass(slots=True)
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


def admit(reference: Reference, *, seed: int = 20, known: Known | None = None) -> Admission:
    """Run every decoy through the cases and variants until something rejects it.

    Raises what building the instances raises, and TaskDoesNotImport for a ``decoys.py`` that fails to execute.
    """
    timed = reference.task.timed_case()
    cases = [timed, *(case for case in reference.task.cases if case != timed)]
    first = reference.instance(timed) if known is None else known.instance
    standing = [_Standing(decoy) for decoy in _all_decoys(first, seed)]
    order = [item.decoy.name for item in standing]
    rejected: dict[str, str] = {}
    notes: list[str] = list(first.notes)
    for position, case in enumerate(cases):
        instance = reference.instance(case) if position else first
        if position and standing:
            fresh = {decoy.name: decoy for decoy in _all_decoys(instance, seed)}
            for item in standing:
                item.decoy = fresh.get(item.decoy.name, item.decoy)
        standing = _thin_out(instance, standing, seed, rejected, notes, None if position else known)
        if not standing:
            break
    return _conclude(standing, order, rejected, notes)


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


def _thin_out(
    instance: Instance,
    standing: list[_Standing],
    seed: int,
    rejected: dict[str, str],
    notes: list[str],
    known: Known | None,
) -> list[_Standing]:
    """The decoys that no variant of this case rejects."""
    checker = Checker(instance, seed=seed) if known is None else known.checker
    for number, variant in enumerate(instance.each_variant(seed)):
        if not variant.required:
            continue
        leaves = known.leaves if known is not None and number == 0 else instance.draw(variant, seed + 11)
        state = instance.draw_state(seed + 13) if variant.fresh_weights else instance.first_state
        eager = instance.eager(leaves, state)
        left = []
        for item in standing:
            verdict = _try(checker, variant, leaves, state, eager, item)
            if verdict:
                rejected[item.decoy.name] = verdict
            else:
                left.append(item)
        if number == 0:
            notes += _published_degenerate(left)
        standing = left
        if not standing:
            break
    return standing


def _published_degenerate(left: Sequence[_Standing]) -> list[str]:
    names = [item.decoy.name for item in left if item.applied and item.decoy.kind in ("degenerate", "input")]
    return [f"on the task's own inputs and first weights these pass: {', '.join(names)}"] if names else []


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
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AttributeError) as error:
        return f"{variant.name}: {decoys.outcome_of_error(error)}"
    if answer is None:
        return ""
    item.applied += 1
    item.equal = item.equal and len(answer) == len(eager) and all(map(_identical, answer, eager))
    result = checker.check(variant, leaves, state, answer, None)
    return "" if result.passed else f"{result.name}: {result.detail}"


def _identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num())


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
