# SPDX-License-Identifier: Apache-2.0
"""One candidate through its stages: load, smoke, verify, race; the first failure ends it with its stage and reason."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernelwright.judge import ahead, almost, facts, health, intervals, load, measure, race, spot_checks, unseen
from kernelwright.judge.also import warm
from kernelwright.judge.bench import DEAR_BYTES
from kernelwright.judge.checks import DETAIL, Wrong
from kernelwright.judge.clocks import Clocks
from kernelwright.judge.entrant import Entrant
from kernelwright.judge.entrants import crowded
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.odd_calls import OddCalls
from kernelwright.judge.one_by_one import gains_us, vanished_us
from kernelwright.judge.program import Program
from kernelwright.judge.singly import words
from kernelwright.judge.timing_plan import COARSE, PRECISE, TimingPlan
from kernelwright.judge.variants import HEAVY, accepted
from kernelwright.judge.verification import Verification
from kernelwright.judge.verify import verified
from kernelwright.judge.whole import LINES
from kernelwright.trial import CaseResult, Outcome, Rejected, Timed, Verified

IMPLAUSIBLE = 0.9
"""A time below this share of the unavoidable bound is not believed (the bound's bandwidth is known to a few %)."""
IDLE_SECONDS = 0.5
"""How long is looked whether others use the machine, before a time is not believed."""


@dataclass(slots=True, kw_only=True)
class Judgement(Verification):
    """One candidate, one level, one seed. ``run`` once."""

    alone: Callable[[], Any]
    """Context manager: the device, alone."""
    baselines: Sequence[Entrant]
    """Eager first, and ready; the others at work on it, loaded, or failed with a reason."""
    level: str
    bound_us: float | None
    limiter: str
    bound_again: Callable[[], float | None]
    """The bound from a fresh look at the device: asked for before a time is called impossible."""
    threads: int
    waiting: str
    """What OpenMP threads do between parallel regions: ``spin`` or ``sleep``."""
    disk: Path
    """Where programs keep what they compile."""
    clocks: Clocks
    verifies: bool = False
    """At the coarse level too every case is checked before anything is timed (``_verify_soon``): for programs that
    nobody vouches for."""
    outrun: frozenset[str] = frozenset()
    """Baselines that the first race showed to be no rivals: the second is run without them."""
    warm: frozenset[str] = frozenset()
    """Baselines whose processes come from another race."""
    gains: list[list[float]] = field(default_factory=list)
    """Of each process: what single calls gained over eager's, in microseconds, where that was looked at."""
    besides: list[tuple[str, str]] | None = None
    """What ``also.warm`` told; None where nobody asks for it."""

    def run(self) -> Outcome | None:
        """The verdict; None from a passed smoke test. Raises nothing for what a candidate does; DeviceLost, DiskFull or
        ClockJumped for what the machine does, TaskError for what the reference does in a window."""
        try:
            return self._run()
        except ChildFailure as failure:
            health.probe(self.bench.device)
            health.blame_disk(f"{failure.reason}\n{failure.detail}", self.disk)
            if self.bench.most_sets is None and crowded(self.bench, failure.reason):  # once: it may be a lie
                raise torch.OutOfMemoryError(str(failure)) from failure
            return Rejected(stage=failure.stage, reason=failure.reason[:600], detail=failure.detail[:DETAIL])
        except Wrong as wrong:
            return self._said(wrong.outcome)
        except spot_checks.Mismatch as mismatch:
            self._carried(mismatch.leaves, mismatch.state)
            return self._said(mismatch.rejected())

    def _run(self) -> Outcome | None:
        precise = self.level == "precise"
        processes = 2 if precise else 1
        plan = self.bench.plan(PRECISE if precise else COARSE, processes)
        checked = precise or self.verifies and self.level == "coarse"
        with self.shared():
            self.points = self.bench.points(self.seed) if precise else (self.bench.timed,)
            if checked and not precise:
                self.points = (self.bench.timed, *self.bench.others(self.seed))
        self.points[0].checker.draws.forget()
        # On an H200 a process takes 0.2 to 0.4 s to load: the second does so beside the first one's checks.
        soon = processes > 1 and self.bench.device.type != "cpu" and self.points[0].state_bytes <= DEAR_BYTES
        soon = soon and not self.bench.tight
        lanes: list[list[race.Racer]] = []
        with contextlib.closing(ahead.Ahead(self._loaded)) as programs, ThreadPoolExecutor(1) as beside:
            for number in range(processes):
                self.points[0].checker.draws.another_process()
                if soon and number == 0:
                    programs.begin()
                if soon:
                    renewed = beside.submit(self._renew, number)
                else:
                    self._renew(number)
                with programs.turn() as program:
                    far = self.near = self._smoke(program, plan.sets, fresh=precise)
                    if self.level == "smoke":
                        return None
                    if soon and number == 0:
                        programs.begin()
                    if number == 0:
                        self._tested(program, plan.sets)
                    if checked and number == 0:
                        (self._verify if precise else self._verify_soon)(program)
                        self.points[0].bind(program, self.points[0].as_given, plan.sets)
                    programs.rest()
                    if soon:
                        renewed.result()
                    lanes.append(self._race(program, plan, far, number))
                    self.outrun |= race.outrun(lanes[-1], plan)
                    self._guards(program)
                    if number > 0:
                        self._on_another_stream(program)
        return self._timed(lanes, plan)

    def _verify_soon(self, program: Program) -> None:
        """What a search asks of a program before it is timed: the other cases, and on the timed one fresh weights,
        empty and full rows of masks (no change of value mixes them in), a layout, and all changes of value in one draw.
        One that fails there is asked one by one, for the reason's sake.
        """
        program.stage, timed = "verify", self.points[0]
        self._other_cases()
        if timed.instance.work > HEAVY:
            self._variants(program, timed, timed.offered[1:])
            return
        usual = [v for v in timed.offered[1:] if timed.usable(v)]
        apart = [v for v in usual if v.name == "fresh weights" or v.change in LINES]
        together = [*apart, *self._instead(timed)]
        if len(usual) <= len(together):
            self._variants(program, timed, usual)
            return
        try:
            self._variants(program, timed, together)
        except Wrong:
            program.set_state(timed.instance.first_state)
            self._variants(program, timed, usual)
            raise

    # -- race --------------------------------------------------------------------------------------------------------

    def _race(self, program: Program, plan: TimingPlan, far: spot_checks.Distances, number: int) -> list[race.Racer]:
        """One process of the candidate against all baselines."""
        program.stage = "time"
        program.perturb(on=False)
        bench, point, as_given = self.bench, self.points[0], self.points[0].as_given
        point.checker.recent.make_room()

        def check(leaves: race.Leaves, state: Any, outputs: race.Leaves, inputs: race.Leaves) -> CaseResult:
            return point.checker.check(as_given, leaves, state, outputs, inputs)

        racers = self._racers(program, check)
        dice = random.Random(self.seed + 7919 * (number + 1))
        draws = self._draws(dice.getrandbits(60), plan, self.seed if self.level == "precise" else None)
        tells = self._outputs_alone(point) and not (self.stateful or bench.tight)
        weights = bool(point.instance.first_state) and not bench.contract.frozen_parameters
        stock = (self.fresh if self.level == "precise" else bench.fresh()) if weights else None
        moved = accepted(point.offered, point.usable)[0] if weights and stock is None else ""
        costs = plan.draw_seconds * plan.sets, stock
        states, strange = (self._states(point.instance, dice.getrandbits(62), *costs, how) for how in ("", moved))
        contest = race.Race(
            racers=racers,
            plan=plan,
            draw=lambda: next(draws),
            draw_state=(lambda: next(states)) if weights else None,
            odd_state=(lambda: next(strange)) if moved else None,
            state=point.instance.first_state,
            dice=dice,
            grad=bench.contract.gradients,
            checks=spot_checks.SpotChecks(
                suspects=[racer.suspect for racer in racers],
                budget=self._full_checks(plan, number),
                thorough=self.level == "precise",
                random_outputs=bench.contract.random,
                mutates=frozenset(bench.contract.mutates),
                dice=dice,
                tolerated=far,
                of_baselines=number == 0 and not bench.tight,
                indices=bench.contract.index_outputs,
                tell=point.checker.answered if tells else None,
            ),
            look=lambda window: self._looked_at(window, point, as_given),
            left=self._left_by(program) if self.stateful and not bench.contract.random else None,
            threads=self.threads,
            device=bench.device,
            warm=self.warm,
            clocks=self.clocks,
            unseen=unseen.draws(bench, plan, dice.getrandbits(62)) if self.level == "precise" else (),
            odd=self._odd_calls(number, random.Random(dice.getrandbits(62))),
        )
        try:
            contest.take_turns(self.alone, self.shared, lambda: self._ask_one_by_one(contest))
        finally:
            torch.set_num_threads(self.threads)
            if weights:
                for baseline in self.baselines:
                    if baseline.program is not None:
                        baseline.program.set_state(point.instance.first_state)
        self.results += racers[-1].suspect.checks
        return racers

    def _full_checks(self, plan: TimingPlan, number: int) -> int:
        """Timed calls of a process that the oracle is asked about: where one takes 2 s (sum_matmul, 2 cores), one of a
        proof's first process, and the others are compared with eager's answers alone."""
        return int(self.level == "precise" and number == 0) if self.bench.timed.dear else plan.full_checks

    def _renew(self, number: int) -> None:
        """New processes for baselines where those are cheap, begun with the candidate's, on a device beside its checks
        (0.5 s). One that was raced is warm, and so is each whose first calls outlast a warm-up (2 x 1.1 s)."""
        with self.shared():
            for baseline in self.baselines if self.level == "precise" else ():
                baseline.renew()
        dear = self.bench.eager_us > race.WARM_US
        self.warm = frozenset(known.name for known in self.baselines if dear or (known.races and number > 0))

    def _odd_calls(self, number: int, dice: random.Random) -> OddCalls:
        lasting, strewn = self.level == "precise", self._strewn(number)
        return OddCalls(self.points[0], dice, self._odd_windows(number), lasting=lasting, strewn=strewn)

    def _odd_windows(self, number: int) -> int:
        """Odd windows among the rounds that a race has at least: none where nobody asked for more than the task's own
        values. On the dearest cases one of the two processes has one, and none can tell which: the seed says so."""
        if self.points[0].instance.work > HEAVY:
            return int(self.level == "precise" and number == random.Random(self.seed ^ 0x0DDCA11).randrange(2))
        return 2 if self.level == "precise" else int(self.verifies)

    def _strewn(self, number: int) -> tuple[str, ...]:
        """How few odd rows are strewn in the windows of one race: in one spots of them, or two elements of all (in the
        other process), which few samples show; in the other whole rows, of all changes or of some."""
        if self.points[0].instance.work > HEAVY or self.level != "precise":
            return ("",)
        whole = random.Random(self.seed ^ 0x57EE7).sample(("few", "rows"), 2)[number % 2]
        spots = random.Random(self.seed ^ 0x5B075).sample(("spots", "ends"), 2)[number % 2]
        return tuple(random.Random(self.seed + number).sample((spots, whole), 2))

    def _left_by(self, program: Program) -> Callable[[list[race.Leaves], Any], None]:
        return lambda given, before: self._state_as_left(program, given, before)

    def _racers(self, program: Program, check: spot_checks.Check) -> list[race.Racer]:
        """The baselines that run, eager first, then the candidate."""
        for baseline in self.baselines:
            baseline.ready()
            baseline.races += baseline.name not in self.outrun
        running = (e for e in self.baselines if e.name not in self.outrun)
        entrants = [(e.name, e.program) for e in running if e.program is not None]
        racers = []
        for name, entrant in [*entrants, ("candidate", program)]:
            assert entrant.buffers is not None, f"{name} is not bound"
            lane = measure.Lane(name, entrant, on_device=self.bench.device.type != "cpu")
            mine = entrant is program
            suspect = spot_checks.Suspect(entrant.buffers, check, mine, chance=self.chance if mine else None)
            racers.append(race.Racer(name, entrant, suspect, lane))
        return racers

    def _ask_one_by_one(self, contest: race.Race) -> None:
        known = gains_us(contest, self.gains, self.conditions.append)
        self.gains.append(unseen.gains_us(contest, known))
        if self.besides is not None and len(self.gains) > 1:
            self.besides = warm.taken(contest)
        self._leaves_alone(contest.racers[-1].program)  # once more: after 300 calls, say

    # -- verdict -----------------------------------------------------------------------------------------------------

    def _timed(self, lanes: list[list[race.Racer]], plan: TimingPlan) -> Timed | Rejected:
        samples: dict[str, intervals.Sampled] = {}
        beside: dict[str, intervals.Sampled] = {}  # the candidate's, in the races that each baseline was in
        failed: set[str] = set()
        seen = rounds = clean = 0
        for number, racers in enumerate(lanes):
            every = [racer.lane for racer in racers]
            honest = every[0]
            measure.acquaint(every)
            counted, others = (measure.chosen_rounds(some, plan.least) for some in (every, every[:-1]))
            rounds += len(honest.calls_us)
            clean += len(set(counted) & set(measure.clean_rounds(every)))
            found = [measure.sampled(lane, honest, plan.sets, counted, others) for lane in every]
            mine = found[-1].times
            vanished = vanished_us(number, self.gains, found[0].times, mine, honest)
            self.conditions += words(*vanished)
            for racer, one in zip(racers, found, strict=True):
                off = vanished if racer is racers[-1] else (0.0, 0.0)
                samples.setdefault(racer.name, intervals.Sampled()).add(one, *off)
            for racer in racers[:-1]:
                beside.setdefault(racer.name, intervals.Sampled()).add(found[-1], *vanished)
            failed |= {r.name for r in racers if any(not check.passed for check in r.suspect.checks)}
            seen += racers[-1].suspect.sampled
            if measure.charged_us(racers[-1].lane, honest, counted) > 0:
                self.conditions.append("work left for the delivery of outputs was charged to the candidate")
        candidate = samples.pop("candidate")
        median = statistics.median(candidate.times)
        impossible = self._impossible(median)
        if impossible is not None:
            return impossible
        races = collections.Counter(racer.name for racers in lanes for racer in racers)
        baselines = tuple(
            intervals.baseline(
                e.name, samples[e.name], beside[e.name], e.met(races[e.name]), self.seed % 2**31, self.bound_us
            )
            for e in self.baselines
            if e.name in samples
        )
        eligible = [b for b in baselines if b.name not in failed] or [baselines[0]]
        best = min(eligible, key=lambda b: b.timing.median_us)
        self._describe(plan, failed, (clean, len(candidate.times), rounds))
        return Timed(
            proof=self._proof(seen),
            timing=intervals.timing(candidate.times, self.seed % 2**31),
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
            profile=tuple(self.besides or ()),
        )

    def _impossible(self, median: float) -> Rejected | None:
        """The refusal of a time in which the device cannot move the bytes, after a second look at its memory.

        On a CPU that others use, memory reads as slow both times: honest programs took two thirds of such a bound.
        """
        if self.bound_us is None or median >= self.bound_us:
            return None
        with self.alone():
            self.bound_us = self.bound_again()
            idle = load.idle_share(seconds=IDLE_SECONDS) if self.bench.device.type == "cpu" else 1.0
        if self.bound_us is None or median >= IMPLAUSIBLE * self.bound_us:
            return None
        reason = f"{median:.3g} us is below the {self.bound_us:.3g} us in which the device can move the bytes"
        if idle < load.QUIET:
            self.conditions.append(f"{reason}, by its memory's speed while others use it: no bound to hold it to")
            self.bound_us = None
            return None
        return Rejected(stage="integrity", reason=reason, detail="no program is that fast: work is being skipped")

    def _proof(self, sampled: int) -> Verified:
        checkers = [point.checker for point in self.points]
        notes = [f"{sampled} further timed calls agreed with eager's own outputs on the same inputs"]
        notes += facts.point_notes(self.points)
        if self.level == "precise":
            notes += [almost.NOTE, *facts.left_out(self.bench.contract), *facts.bound_notes(self.bench)]
            if self.first is not None and self.first[0] is self.bench.some_call():
                notes.append("the first checked call is the one of admission and does not follow from the seed")
        else:
            notes.append("the first checked call is shared by coarse candidates and does not follow from the seed")
        return verified(
            checkers,
            self.results,
            deterministic=self.deterministic,
            seed=self.seed,
            sandbox=self.sandbox,
            notes=notes,
        )

    def _describe(self, plan: TimingPlan, failed: set[str], rounds: tuple[int, int, int]) -> None:
        """``rounds``: those that nothing disturbed among the counted ones, the counted ones, all."""
        clean, counted, run = rounds
        order = f"{counted} of {run} rounds counted (the least disturbed by other load), programs in random order"
        if clean < counted:
            order += f"; {counted - clean} of them disturbed: the intervals are as wide as that makes them"
        self.conditions += [f"level {self.level}", order, *plan.words(), self.clocks.words(), *self.chance.words()]
        who = f"{self.threads} threads that {self.waiting} when idle"
        if self.bench.device.type != "cpu":  # beside three judges that compile, launches were up to twice as slow
            who = f"launched by a host of {os.cpu_count()} CPUs"
        self.conditions.append(f"{who}, load average {os.getloadavg()[0]:.1f}")
        for entrant in self.baselines:
            if entrant.failure:
                self.conditions.append(f"baseline {entrant.name} not raced: {entrant.failure}")
        if self.bench.tight:
            self.conditions.append("a call takes much of the device: few baselines raced, none of them compared")
        if self.outrun:
            names = ", ".join(sorted(self.outrun))
            self.conditions.append(f"raced in the first process only, clearly slower than another baseline: {names}")
        for name in sorted(failed - {"candidate"}):
            self.conditions.append(f"baseline {name} breaks the contract itself, so it cannot be the best one")
