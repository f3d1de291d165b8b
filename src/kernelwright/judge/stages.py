# SPDX-License-Identifier: Apache-2.0
"""One candidate through its stages: load, smoke, verify, race; the first failure ends it with its stage and reason."""

from __future__ import annotations

import dataclasses
import os
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.judge import measure, race, spot_checks, timing_plan
from kernelwright.judge.bench import Bench, Entrant, Point
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.child import Program, Window
from kernelwright.judge.inputs import Variant
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.verify import verified
from kernelwright.judge.whereabouts import laid_out_oddly
from kernelwright.trial import CaseResult, Outcome, Rejected, Timed, Verified

IMPLAUSIBLE = 0.9
"""A time below this share of the unavoidable bound is not believed (the bound's bandwidth is known to a few %)."""
DETAIL = 4000
HELD_BYTES = 1 << 29
"""What the results and inputs kept at once in a smoke test may take together."""


class Wrong(Exception):
    """The candidate failed a check."""

    def __init__(self, stage: str, reason: str, detail: str = "") -> None:
        super().__init__(stage, reason)
        self.outcome = Rejected(stage=stage, reason=reason[:600], detail=detail[:DETAIL])


@dataclass(slots=True)
class Judgement:
    """One candidate, one level, one seed. ``run`` once."""

    bench: Bench
    entry: str
    start: Callable[[], Program]
    """A fresh confined process in the candidate's folder."""
    alone: Callable[[], Any]
    """Context manager: the device, alone."""
    baselines: Sequence[Entrant]
    """Eager first; all loaded, or failed with a reason."""
    level: str
    seed: int
    bound_us: float | None
    limiter: str
    threads: int
    waiting: str
    """What OpenMP threads do between parallel regions: ``spin`` or ``sleep``."""
    results: list[CaseResult] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    deterministic: bool = True
    sandbox: str = ""

    points: tuple[Point, ...] = ()
    """The cases, the timed one first."""

    def run(self) -> Outcome | None:
        """The verdict; None from a passed smoke test. Raises nothing for what a candidate does."""
        try:
            return self._run()
        except ChildFailure as failure:
            return Rejected(stage=failure.stage, reason=failure.reason[:600], detail=failure.detail[:DETAIL])
        except Wrong as wrong:
            return wrong.outcome
        except spot_checks.Mismatch as mismatch:
            reason = f"a timed call was wrong: {mismatch.result.name}: {mismatch.result.detail}"
            return Rejected(stage="time", reason=reason[:600], detail=mismatch.result.detail)

    def _run(self) -> Outcome | None:
        precise = self.level == "precise"
        processes = 2 if precise else 1
        spend = timing_plan.PRECISE if precise else timing_plan.COARSE
        plan = self.bench.plan(spend, processes)
        if self.bench.dear:  # every timed call is still compared with eager's own answer
            plan = dataclasses.replace(plan, full_checks=1 if precise else 0)
        self.points = self.bench.points(self.seed) if precise else (self.bench.timed,)
        lanes: list[list[race.Racer]] = []
        for number in range(processes):
            with self._loaded() as program:
                far = self._smoke(program, plan.sets, fresh=precise)
                if self.level == "smoke":
                    return None
                if precise and number == 0:
                    self._verify(program)
                    self.points[0].bind(program, self.points[0].as_given, plan.sets)
                lanes.append(self._race(program, plan, far, number))
                self._guards(program)
        return self._timed(lanes, plan)

    # -- load, smoke, verify ---------------------------------------------------------------------------------------

    def _loaded(self, point: Point | None = None) -> Program:
        instance = (point or self.points[0]).instance
        program = self.start()
        program.watched = True
        try:
            program.load(
                self.entry,
                instance.init_args,
                instance.init_kwargs,
                instance.first_state,
                training=self.bench.contract.training,
            )
        except BaseException:
            program.close()
            raise
        self.sandbox = program.level
        return program

    def _smoke(self, program: Program, sets: int, *, fresh: bool) -> spot_checks.Distances:
        """The first case, once, checked in full; the distances from eager of an answer that passed."""
        point = self.points[0]
        variant = point.as_given
        program.stage = "smoke"
        dice = random.Random(self.seed)
        held = self._held(dice)
        buffers = point.bind(program, variant, max(sets, held))
        leaves = point.instance.draw(variant, dice.getrandbits(62)) if fresh else self.bench.known_call()
        call, *others = dice.sample(range(max(sets, held)), held)
        result = self._call(program, point, variant, buffers, call, leaves, point.instance.first_state)
        if not result.passed:
            raise Wrong("smoke", f"{result.name}: {result.detail}", result.detail)
        truth = point.checker.truth(variant, leaves, point.instance.first_state)
        before = [tensor.clone() for tensor in buffers.answers(call)]
        race.fill(buffers, call, leaves)
        if others:
            other = next(self.bench.draws(dice.getrandbits(60), timing_plan.PRECISE.draw_seconds, self.seed))
            for index in others:
                race.fill(buffers, index, other)
        self._looked_at(program.window([call, *others], grad=self.bench.contract.gradients), point, variant)
        self._unchanged(point, variant, buffers, call, leaves, before)
        if buffers.plan.sets != sets:
            point.bind(program, variant, sets)
        return spot_checks.distances(before, truth.eager[: len(before)], None)

    def _held(self, dice: random.Random) -> int:
        """How many results the smoke test lets live at once: one that the next call overwrites shows there."""
        fits = HELD_BYTES // max(self.bench.call_bytes, 1)
        quick = self.bench.eager_us < timing_plan.SLOW_CALL_US
        return min(dice.randint(3, 8) if quick else 2, max(1, fits))

    def _unchanged(
        self,
        point: Point,
        variant: Variant,
        buffers: Buffers,
        call: int,
        leaves: list[torch.Tensor],
        before: list[torch.Tensor],
    ) -> None:
        """A second call on equal inputs, and calls after it, leave the result as it was."""
        after = buffers.answers(call)
        same = all(_same_bits(a, b) for a, b in zip(before, after, strict=True))
        self.deterministic = self.deterministic and same
        if same:
            return
        if self.bench.contract.deterministic:
            raise Wrong("smoke", "two calls on equal inputs differ, and the task asks for bit-for-bit repeats")
        state = point.instance.first_state
        again = point.checker.check(variant, leaves, state, after, list(buffers.inputs[call]))
        if not again.passed:
            raise Wrong("smoke", f"{again.name}, right once, is not after later calls: {again.detail}", again.detail)

    def _call(
        self,
        program: Program,
        point: Point,
        variant: Variant,
        buffers: Buffers,
        call: int,
        leaves: list[torch.Tensor],
        state: Any,
    ) -> CaseResult:
        """One checked call: filled, poisoned, run, compared."""
        race.fill(buffers, call, leaves)
        window = program.window([call], grad=self.bench.contract.gradients)
        self._looked_at(window, point, variant)
        result = point.checker.check(variant, leaves, state, buffers.answers(call), list(buffers.inputs[call]))
        self.results.append(result)
        return result

    def _looked_at(self, window: Window, point: Point, variant: Variant) -> None:
        """Where the results of a window lie: in memory of their own, in no other result's way, in the usual order."""
        found, contract = window.whereabouts, self.bench.contract
        allowed = set(contract.aliases) | self.bench.eager_aliases
        extra = sorted(set(window.aliases) - allowed)
        if extra:
            output, source = extra[0]
            raise Wrong("verify", f"output {output} shares storage with input {source}, and the reference's does not")
        missing = sorted(set(contract.aliases) - set(window.aliases if found is None else found.aliases))
        if missing:
            raise Wrong("verify", f"output {missing[0][0]} must share storage with input {missing[0][1]}")
        if found is None:
            return
        if found.trespass:
            raise Wrong("integrity", found.trespass)
        for leaf in sorted(found.shared - self.bench.eager_shared):
            raise Wrong("verify", f"result {leaf} of a call was overwritten by another call")
        if variant.layout != "contiguous" or contract.free_strides:
            return
        instance = point.instance
        for leaf, (mine, theirs) in enumerate(zip(found.strides, instance.out_strides, strict=False)):
            if laid_out_oddly(mine, theirs, instance.out_specs[leaf].shape):
                reason = f"output {leaf} is laid out in steps of {mine}, the reference's of {theirs}"
                raise Wrong("verify", reason, "row-major order is right too; another makes its reader pay")

    def _verify(self, program: Program) -> None:
        """Every case in every variant: small cases first, so that most wrong programs are cheap to refuse."""
        program.stage = "verify"
        covered: set[str] = set()
        for point in self.points[1:]:
            with self._loaded(point) as other:
                other.stage = "verify"
                self._variants(other, point, point.variants)
            covered |= {variant.name for variant in point.variants}
        timed = self.points[0]
        rest = timed.offered[1:]
        spared = [v for v in rest if self.bench.dear and v.name in covered and not v.fresh_weights]
        self._variants(program, timed, [v for v in rest if v not in spared and timed.usable(v)])
        if spared:
            names = ", ".join(v.name for v in spared)
            self.conditions.append(f"checked on the smaller cases only: {names}")
        program.set_state(timed.instance.first_state)

    def _variants(self, program: Program, point: Point, variants: Sequence[Variant]) -> None:
        dice = random.Random(self.seed ^ 0x5EED)
        state = point.instance.first_state
        loaded = state
        for variant in variants:
            wanted = point.instance.draw_state(dice.getrandbits(62)) if variant.fresh_weights else state
            if wanted is not loaded:
                program.set_state(wanted)
                loaded = wanted
            buffers = point.bind(program, variant, variant.draws)
            for call in range(variant.draws):
                leaves = point.instance.draw(variant, dice.getrandbits(62))
                result = self._call(program, point, variant, buffers, call, leaves, wanted)
                if not result.passed and result.required:
                    raise Wrong("verify", f"{result.name}: {result.detail}", result.detail)
            self._guards(program)

    def _guards(self, program: Program) -> None:
        if program.buffers is not None and not program.buffers.guards_intact():
            raise Wrong("integrity", "it wrote outside the memory it was handed")

    # -- race --------------------------------------------------------------------------------------------------------

    def _race(
        self, program: Program, plan: timing_plan.TimingPlan, far: spot_checks.Distances, number: int
    ) -> list[race.Racer]:
        """One process of the candidate against all baselines."""
        program.stage = "time"
        bench = self.bench
        point = self.points[0]
        as_given = point.as_given

        def check(leaves: race.Leaves, state: Any, outputs: race.Leaves, inputs: race.Leaves) -> CaseResult:
            return point.checker.check(as_given, leaves, state, outputs, inputs)

        entrants = [(e.name, e.program) for e in self.baselines if e.program is not None]
        racers = []
        for name, entrant in [*entrants, ("candidate", program)]:
            assert entrant.buffers is not None, f"{name} is not bound"
            lane = measure.Lane(name, entrant, on_device=bench.device.type != "cpu")
            suspect = spot_checks.Suspect(entrant.buffers, check, entrant is program)
            racers.append(race.Racer(name, entrant, suspect, lane))
        dice = random.Random(self.seed + 7919 * (number + 1))
        stock_seed = self.seed if self.level == "precise" else None
        draws = bench.draws(dice.getrandbits(60), plan.draw_seconds, stock_seed)
        weights = bool(point.instance.first_state) and not bench.contract.frozen_parameters
        contest = race.Race(
            racers=racers,
            plan=plan,
            draw=lambda: next(draws),
            draw_state=(lambda: point.instance.draw_state(dice.getrandbits(62))) if weights else None,
            state=point.instance.first_state,
            dice=dice,
            grad=bench.contract.gradients,
            checks=spot_checks.SpotChecks(
                suspects=[racer.suspect for racer in racers],
                budget=plan.full_checks,
                thorough=self.level == "precise",
                random_outputs=bench.contract.random,
                mutates=frozenset(bench.contract.mutates),
                dice=dice,
                tolerated=far,
            ),
            look=lambda window: self._looked_at(window, point, as_given),
            threads=self.threads,
            device=bench.device,
        )
        try:
            with self.alone():
                contest.run()
        finally:
            torch.set_num_threads(self.threads)
            if weights:
                for baseline in self.baselines:
                    if baseline.program is not None:
                        baseline.program.set_state(point.instance.first_state)
        self.results += racers[-1].suspect.checks
        return racers

    # -- verdict -----------------------------------------------------------------------------------------------------

    def _timed(self, lanes: list[list[race.Racer]], plan: timing_plan.TimingPlan) -> Timed | Rejected:
        samples: dict[str, list[float]] = {}
        failed: set[str] = set()
        sampled = rounds = 0
        for racers in lanes:
            honest = racers[0].lane
            counted = measure.chosen_rounds([racer.lane for racer in racers], plan.least)
            rounds += len(honest.calls_us)
            for racer in racers:
                samples.setdefault(racer.name, []).extend(measure.per_call_us(racer.lane, honest, plan.sets, counted))
                if any(not check.passed for check in racer.suspect.checks):
                    failed.add(racer.name)
            sampled += racers[-1].suspect.sampled
            if measure.charged_us(racers[-1].lane, honest, counted) > 0:
                self.conditions.append("work left for the delivery of outputs was charged to the candidate")
        mine = samples.pop("candidate")
        median = statistics.median(mine)
        if self.bound_us is not None and median < IMPLAUSIBLE * self.bound_us:
            reason = f"{median:.3g} us is below the {self.bound_us:.3g} us in which the device can move the bytes"
            return Rejected(stage="integrity", reason=reason, detail="no program is that fast: work is being skipped")
        baselines = tuple(measure.baseline(name, values, mine, self.seed % 2**31) for name, values in samples.items())
        eligible = [b for b in baselines if b.name not in failed] or [baselines[0]]
        best = min(eligible, key=lambda b: b.timing.median_us)
        self._describe(plan, failed, rounds, len(mine))
        return Timed(
            proof=self._proof(sampled),
            timing=measure.timing(mine, self.seed % 2**31),
            baselines=baselines,
            best_baseline=best.name,
            speedup=best.speedup,
            speedup_low=best.speedup_low,
            speedup_high=best.speedup_high,
            bound_us=self.bound_us,
            bound_fraction=None if self.bound_us is None else self.bound_us / median,
            limiter=self.limiter,
            conditions=tuple(self.conditions),
            repeats=len(lanes),
            profile=(),
        )

    def _proof(self, sampled: int) -> Verified:
        checkers = [point.checker for point in self.points]
        notes = [f"{sampled} further timed calls agreed with eager's own outputs on the same inputs"]
        for case in (point.case for point in self.points if point.case.name.startswith("hidden:")):
            notes.append(f"{case.name}: " + ", ".join(f"{axis}={size}" for axis, size in case.axes))
        if self.level != "precise":
            notes.append("the first checked call is shared by coarse candidates and does not follow from the seed")
        return verified(
            checkers,
            self.results,
            deterministic=self.deterministic,
            seed=self.seed,
            sandbox=self.sandbox,
            notes=notes,
        )

    def _describe(self, plan: timing_plan.TimingPlan, failed: set[str], rounds: int, counted: int) -> None:
        order = f"{counted} of {rounds} rounds counted (the least disturbed by other load), programs in random order"
        self.conditions += [f"level {self.level}", order, *plan.words()]
        if self.bench.device.type == "cpu":
            load = os.getloadavg()[0]
            self.conditions.append(f"{self.threads} threads that {self.waiting} when idle, load average {load:.1f}")
        for entrant in self.baselines:
            if entrant.failure:
                self.conditions.append(f"baseline {entrant.name} not raced: {entrant.failure}")
        for name in sorted(failed - {"candidate"}):
            self.conditions.append(f"baseline {name} breaks the contract itself, so it cannot be the best one")


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if torch.equal(a, b):
        return True
    if not a.is_floating_point():
        return False
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(0.0), b.nan_to_num(0.0))
