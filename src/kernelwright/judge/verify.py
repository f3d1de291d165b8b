# SPDX-License-Identifier: Apache-2.0
"""The verdict on correctness: every output leaf of every checked call against the oracle, pooled into one proof.

This is the only file that constructs ``Verified``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelwright.judge import (
    agreement,
    as_laid,
    calls,
    choices,
    distribution,
    draws,
    extremes,
    finite,
    health,
    hosted,
    numerics,
    one_order,
    orders,
)
from kernelwright.judge.conditioned import Conditioned
from kernelwright.judge.floors import NO_FLOOR, SOME, Floors, Spread
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance, State
from kernelwright.judge.logarithms import told
from kernelwright.judge.numerics import Comparison
from kernelwright.judge.pooled import failure, pool
from kernelwright.judge.remembered import Remembered
from kernelwright.judge.stored import Further
from kernelwright.judge.taken import ANSWERED
from kernelwright.judge.variants import LIGHT
from kernelwright.judge.yardstick import Magnitudes, Yardstick, compare
from kernelwright.trial import CaseResult, Verified

ILL_CONDITIONED, CARELESS = 1024.0, 256.0
"""Eager is named as less precise than its dtype from here on: half precision errs by several thousand roundings."""
IMPLAUSIBLE = 0.05
"""A float64 run further than this from eager (relative, RMS) computes something else: half precision errs by 0.002."""
ORDINARY = 16.0
"""Roundings that eager may err by before anybody asks whether the reference is ill-conditioned."""
RELATED_CALLS = 8
"""Of so many calls with random results one is asked whether these belong together, of the first ones each."""
REMEMBERED_BYTES = 128 << 20
"""Size of the answers of a call up to which eager's of others are kept."""
DETAIL = 600
"""Characters of evidence kept per case."""
ORACLES = "", "exact", "float64", "float64-trace", "orders-of-summation"

Drawn = dict[str, list[tuple[Sequence[Spread], list[float]]]]
"""By variant: draws of the honest error per output, each with the size of the outputs on which it was made."""


@dataclass(slots=True)
class Truth:
    """What is known about one call: eager's answer, the oracle's, and the honest error per output."""

    leaves: Sequence[torch.Tensor]
    state: State | None
    eager: list[torch.Tensor]
    exact: list[torch.Tensor]
    yardsticks: list[Yardstick | None]
    """Per output; None for exact dtypes."""
    kind: str


class Checker:
    """Judges the calls of one case. Not thread-safe. ``seed`` decides the draws of the honest floor.

    ``drawn``: floors of other checkers of the same case, by variant, where they are dear to measure.
    """

    def __init__(self, instance: Instance, *, seed: int = 0, drawn: Drawn | None = None) -> None:
        self.instance, self.contract, self.seed = instance, instance.contract, seed
        self.specs, self.oracle = instance.all_specs(), ""
        self.notes: list[str] = []
        exact = 8 * sum(math.prod(spec.shape) for spec in self.specs)
        self.recent = Remembered[Truth](instance.device, instance.work, exact)
        self._eager: list[tuple[Sequence[torch.Tensor], State | None, list[torch.Tensor]]] = []
        """The last calls that ``accepts`` asked about, with their answers."""
        self.drawn: Drawn = {} if drawn is None else drawn
        self._count, self._agreed, self.draws, self.kinds = 0, False, draws.Draws(), Conditioned()

    def check(
        self,
        variant: Variant,
        leaves: Sequence[torch.Tensor],
        state: State | None,
        got_outputs: Sequence[torch.Tensor],
        got_inputs_after: Sequence[torch.Tensor] | None = None,
        *,
        brief: bool = False,
    ) -> CaseResult:
        """Compare one call: outputs with the truth, inputs (as the call left them) with what was handed in. ``brief``:
        nobody asks how many elements of a wrong answer are wrong.

        ``got_outputs``: outputs, ``instance.gradients`` and, without ``got_inputs_after``, inputs that calls write to.
        """
        self.instance.adopt(leaves)
        if written := self._written(leaves, got_inputs_after):
            return self._result(variant, passed=False, detail=written, ratio=math.inf)
        if got_inputs_after is not None:
            got_outputs = [*got_outputs, *(got_inputs_after[index] for index in self.contract.mutates)]
        if len(got_outputs) != len(self.specs):
            detail = f"got {len(got_outputs)} outputs, expected {len(self.specs)}"
            return self._result(variant, passed=False, detail=detail, ratio=math.inf)
        if self.contract.random:
            return self._check_random(variant, leaves, state, got_outputs)
        truth = self.truth(variant, leaves, state)
        answers = [got.to(self.instance.device) for got in got_outputs]
        answers = extremes.without_lost(variant, answers, truth.eager)
        found = [self._leaf(index, answers, truth, brief) for index in range(len(answers))]
        found = one_order.held(self.instance, truth, answers, found, self.contract.bits_lost)
        compared = told(self.instance, leaves, state, found, self.contract.bits_lost)
        assert len(compared) == len(self.specs), "an output was not compared"
        at, worst = max(enumerate(compared), key=lambda pair: pair[1].error_ratio)
        detail = self._words(at, worst, got_outputs[at], truth, brief)
        return self._result(variant, passed=not detail, detail=detail, ratio=worst.error_ratio)

    def _words(self, index: int, found: Comparison, answer: torch.Tensor, truth: Truth, brief: bool = False) -> str:
        """Empty where ``found`` keeps the contract."""
        lost, place = found.bits_lost, found.worst_index
        if lost <= self.contract.bits_lost:
            return ""
        bits = "" if math.isinf(lost) else f" ({lost:.1f} bits lost, {self.contract.bits_lost:g} allowed)"
        shown = numerics.shown(answer, truth.exact[index], place, brief=brief) if bits else ""
        shown += f"; {orders.judged_by(self.instance.without_double)}" if self.instance.without_double else ""
        return f"{self._label(index)}{numerics.at(self.specs[index].shape, place)}: {found.detail}{bits}{shown}"

    def _check_random(
        self, variant: Variant, leaves: Sequence[torch.Tensor], state: State | None, got: Sequence[torch.Tensor]
    ) -> CaseResult:
        """Every output as a sample of the reference's distribution, and not the same sample as in the last call; what
        is the same in all of its runs as any other output."""
        self._count += 1
        given = self.instance, leaves, state, self.seed * 4099 + self._count * 64
        run = functools.partial(draws.run, *given)
        runs = [run(number) for number in range(distribution.RUNS + distribution.HELD_OUT)]
        rounding = functools.cache(functools.partial(draws.rounding, *given, runs))
        got = [value.to(self.instance.device) for value in got]
        columns, truth, detail = list(zip(*runs, strict=True)), None, ""
        self.weaken("exact")
        for index, (value, column) in enumerate(zip(got, columns, strict=True)):
            dtype, said = getattr(torch, self.specs[index].dtype), ""
            if value.dtype != dtype or value.shape != column[0].shape:
                said = f"got {value.dtype}{list(value.shape)}, expected {dtype}{list(column[0].shape)}"
            elif value.numel() and draws.settled(column):
                if truth is None:
                    exact, kind = self.instance.oracle(leaves, state)
                    made = self._yardsticks(variant, leaves, state, runs[0], exact)[1]
                    truth = Truth(leaves, state, runs[0], exact, made, kind)
                got[index], said = self.draws.usual(index, value, column[0], run)
                detail = detail or self._words(index, self._leaf(index, got, truth, False), got[index], truth)
            elif value.numel():
                said = self.draws.told(index, value, column, rounding)
            detail = detail or (f"{self._label(index)}: {said}" if said else "")
        if not detail and len(got) > 1 and (self._count <= RELATED_CALLS or self._count % RELATED_CALLS == 0):
            detail = distribution.unrelated(got, columns, [*map(self._label, range(len(got)))])
        return self._result(variant, passed=not detail, detail=detail, ratio=math.inf if detail else 0.0)

    def truth(self, variant: Variant, leaves: Sequence[torch.Tensor], state: State | None) -> Truth:
        """Eager, oracle and floors for one call; remembered for the next program that answers the same call."""
        if (known := self.recent.find(leaves, state)) is not None:
            return known
        self.recent.make_room()
        answered = [answer for one, other, answer in self._eager if one is leaves and other is state]
        self._eager = [known for known in self._eager if known[0] is not leaves or known[1] is not state]
        eager = answered[0] if answered else self.instance.eager(leaves, state)
        while True:
            exact, kind = self.instance.oracle(leaves, state)
            floors, yardsticks = self._yardsticks(variant, leaves, state, eager, exact)
            doubtful = kind != "orders-of-summation" and not self._plausible(eager, exact, floors, yardsticks)
            if not doubtful or finite.overflowed(self.instance, leaves, state):
                break
            self.instance.distrust_double(orders.DISAGREES, leaves, state)
            self.drawn.clear()
        self.weaken(kind)
        self._remark(eager, exact, floors, yardsticks)
        truth = Truth(leaves, state, eager, exact, yardsticks, kind)
        self.recent.add(truth)
        return truth

    def accepts(self, variant: Variant, leaves: Sequence[torch.Tensor], state: State | None) -> bool:
        """Whether the reference takes such inputs, and stays finite on them. Its answer serves the check of this call.

        ``Instance.usable`` asks it of inputs of its own: on a case of 16 MB that was a quarter of a check.
        """
        try:
            eager = self.instance.eager(leaves, state)
        except calls.CAUGHT as error:
            health.pass_on(error)
            return False
        self.answered(leaves, state, eager)
        outputs = eager[: len(self.instance.out_specs)]
        shaped = all(tuple(out.shape) == spec.shape for out, spec in zip(outputs, self.specs, strict=False))
        return shaped and finite.within(self.instance, variant, leaves, state, outputs)

    def answered(self, leaves: Sequence[torch.Tensor], state: State | None, eager: list[torch.Tensor]) -> None:
        """What eager answered to a call that ``truth`` will be asked about soon; of a large one no other is kept."""
        own = [] if state is self.instance.first_state else [value for _, value in state or ()]
        alone = numerics.held_bytes([*leaves, *own, *eager]) > REMEMBERED_BYTES // ANSWERED
        self._eager = [(leaves, state, eager), *([] if alone else self._eager[: ANSWERED - 1])]

    def _plausible(
        self,
        eager: Sequence[torch.Tensor],
        exact: Sequence[torch.Tensor],
        floors: Further,
        yardsticks: Sequence[Yardstick | None],
    ) -> bool:
        """Whether eager and the oracle compute the same: they differ by little, or as much as rounding explains, or did
        so once, and now chose others of nearly equal numbers. Floors hold no rounding of halves: that is asked for."""
        for index, (out, truth, yardstick) in enumerate(zip(eager, exact, yardsticks, strict=True)):
            if yardstick is None or not out.numel():
                continue
            size, error = yardstick.sizes(out, truth)
            if error > max(IMPLAUSIBLE * size, torch.finfo(out.dtype).smallest_normal):
                rounded = floors.whole(index).rms * max(1.0, numerics.unit_roundoff(out.dtype) * 2.0**24)
                if error > 64 * rounded and error > 64 * floors.explained(index):
                    return self._agreed and self.instance.sorts
        self._agreed = True
        return True

    def recall(self, truth: Truth) -> None:
        """Take what is known about a call, which others may have pushed out since, or another checker found out."""
        self.weaken(truth.kind)
        self.recent.add(truth)

    def _yardsticks(
        self,
        variant: Variant,
        leaves: Sequence[torch.Tensor],
        state: State | None,
        eager: Sequence[torch.Tensor],
        exact: Sequence[torch.Tensor],
    ) -> tuple[Further, list[Yardstick | None]]:
        """All that answers to this call are held against, measured once; the floors only where somebody asks.

        They are most of what a check costs (eight runs of the reference in float64), and an answer that errs by no
        more than eager itself needs none.
        """
        eager, exact = hosted.pair(eager, exact)
        self.instance.units.look(eager, exact)
        scales, dear, self._count = [Magnitudes(out) for out in exact], self.instance.work > LIGHT, self._count + 1
        floors = Further(self._floors(variant, leaves, state, scales), self.instance, leaves, state, scales)
        made = [
            None
            if out.dtype in numerics.EXACT_DTYPES
            else Yardstick(
                out, true, functools.partial(floors.at, index), size, functools.partial(floors.beyond, index), dear=dear
            )
            for index, (out, true, size) in enumerate(zip(eager, exact, scales, strict=True))
        ]
        outputs, wanted = len(self.instance.out_specs), len(self.instance.wanted or ())
        for yardstick in made[outputs : outputs + wanted]:
            if yardstick is not None:
                yardstick.may_lack = not self.contract.special_values
        as_laid.allow(self.instance, variant, leaves, state, made)
        return floors, made

    def _remark(
        self,
        eager: Sequence[torch.Tensor],
        exact: Sequence[torch.Tensor],
        floors: Floors,
        yardsticks: Sequence[Yardstick | None],
    ) -> None:
        """Say so where the reference is ill-conditioned, or itself far less precise than its dtype."""
        for index, (out, yardstick) in enumerate(zip(eager, yardsticks, strict=True)):
            if yardstick is None or not out.numel():
                continue
            unit = numerics.unit_roundoff(out.dtype)
            size, error = yardstick.sizes(out, exact[index])
            if error <= ORDINARY * unit * size:
                continue
            floor = floors.whole(index)
            if floor.rms > ILL_CONDITIONED * unit * size > 0:
                self._say(f"{self._label(index)} is ill-conditioned: honest rounding moves it by over 2^10 units")
            elif error > CARELESS * max(floor.rms, unit * size) > 0:
                self._say(f"{self._label(index)}: eager itself is over 2^8 times less precise than its dtype allows")

    def _say(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def weaken(self, kind: str) -> None:
        """The proof names the weakest oracle that was used."""
        self.oracle = max(self.oracle, kind, key=ORACLES.index)

    def _floors(
        self, variant: Variant, leaves: Sequence[torch.Tensor], state: State | None, exact: Sequence[Magnitudes]
    ) -> Floors:
        """Drawn for this call where that is cheap; else once per variant, scaled with the size of the outputs. Of few
        numbers that says nothing of their addends: a sum of 4 Mi of either sign is 2000 or 0.6, and rounds alike."""
        own = self.instance.floors(leaves, state, exact, self.seed + self._count, few=variant.change == "borders")
        if self.instance.work <= LIGHT:
            return own
        sizes = [scale.own.rms if scale.exact.numel() > SOME else 1.0 for scale in exact]
        drawn = self.drawn.setdefault(variant.name, [])

        def draw(index: int) -> Sequence[Spread]:
            found = own.draw(index)
            drawn.append((found, sizes))
            return found

        known = [
            [spread.scaled(new / old if old else 1.0) for spread, new, old in zip(spreads, sizes, before, strict=True)]
            for spreads, before in drawn
        ]
        return Floors(draw, own.count, known)

    def _leaf(self, index: int, answers: Sequence[torch.Tensor], truth: Truth, brief: bool) -> Comparison:
        dtype, got = getattr(torch, self.specs[index].dtype), answers[index]
        for output, source in self.contract.index_outputs:
            if output == index:
                return numerics.compare_indices(got, truth.eager[index], truth.leaves[source])
        yardstick = truth.yardsticks[index]
        if yardstick is not None:
            found = choices.held(self.instance, truth, index, got, yardstick, brief=brief)
            return self.kinds.held(self.instance, truth, index, got, yardstick, found)
        found = compare(got, truth.eager[index], truth.exact[index], NO_FLOOR, dtype)
        return found if found.error_ratio == 0.0 else choices.settled(self.instance, truth, index, answers, found)

    def _written(self, leaves: Sequence[torch.Tensor], after: Sequence[torch.Tensor] | None) -> str:
        """Empty where the inputs are unchanged, bit for bit; else which one was written to."""
        for index, (before, now) in enumerate(zip(leaves, after or leaves, strict=True)):
            now = now.to(before.device)
            if index not in self.contract.mutates and now is not before and not agreement.same(before, now):
                return f"input {index} was changed by the call{agreement.where(before, now)}"
        return ""

    def _label(self, index: int) -> str:
        outputs = len(self.instance.out_specs)
        gradients = [f"gradient of {name}" for name, _ in self.instance.gradients]
        written = [f"input {number} after the call" for number in self.contract.mutates]
        return f"output {index}" if index < outputs else [*gradients, *written][index - outputs]

    def _result(self, variant: Variant, *, passed: bool, detail: str, ratio: float) -> CaseResult:
        under = f", autocast to {self.instance.autocast}" if self.instance.autocast else ""
        return CaseResult(
            name=f"{self.instance.case.name}: {variant.name}{under}",
            required=variant.required,
            passed=passed,
            detail=detail[:DETAIL],
            error_ratio=ratio,
            calls=1,
        )


def verified(
    checkers: Sequence[Checker],
    results: Sequence[CaseResult],
    *,
    deterministic: bool,
    seed: int,
    sandbox: str,
    notes: Sequence[str] = (),
) -> Verified:
    """The proof. Raises ValueError where a required case failed, or nothing was checked."""
    failed = failure(results)
    if failed is not None or not results:
        raise ValueError(f"not verified: {failed.name if failed else 'nothing was checked'}")
    cases = pool(results)
    ratio = max(case.error_ratio for case in cases if case.required)
    oracle = max((checker.oracle for checker in checkers), key=ORACLES.index)
    said = [note for checker in checkers for note in (*checker.instance.notes, *checker.notes)]
    said += [f"outside the proven space: {case.name} ({case.detail})" for case in cases if not case.passed]
    loosest = max(checker.contract.bits_lost for checker in checkers)
    if loosest > 1.0:
        said.append(f"contract loosened: {loosest:g} bits of precision may be lost")
    return Verified(
        cases=cases,
        outputs=len(checkers[0].specs),
        checked_calls=sum(case.calls for case in cases),
        error_ratio=ratio,
        bits_lost=numerics.bits_lost(ratio),
        oracle=oracle,
        deterministic=deterministic,
        seed=seed,
        sandbox=sandbox,
        notes=tuple(dict.fromkeys([*said, *notes])),
    )


def noted(proof: Verified, notes: Sequence[str]) -> Verified:
    """The same proof with more for its reader to know."""
    return dataclasses.replace(proof, notes=tuple(dict.fromkeys([*proof.notes, *notes])))
