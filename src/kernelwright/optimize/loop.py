# SPDX-License-Identifier: Apache-2.0
"""The loop of one run: admit, collect structures, search coarsely, prove the finalists precisely.

Candidates may fail in any way without ending it; only the judge's own failure, the run folder's and the
user's interrupt do, and what was found until then is in the ledger already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand, JudgeFailed, KernelwrightError, NoSuchDevice, NotEnoughMemory, ToolMissing
from kernelwright.machine import Machine
from kernelwright.optimize.given import Given
from kernelwright.optimize.host import Host
from kernelwright.optimize.judging import Judging
from kernelwright.optimize.pace import Pace
from kernelwright.optimize.result import Options
from kernelwright.optimize.schedule import Schedule, Tries
from kernelwright.proposers import TABLE, Structure
from kernelwright.search import Arm, Choice, StructureSearch
from kernelwright.task import Task
from kernelwright.trial import Outcome, Rejected, Timed, Trial
from kernelwright.tuning import Space

NONE = "none"
"""In place of proposers: start without candidates of our own."""
START = Space(parameters=(), constraints=())
FINALISTS = 3
CLOSE = 1.15
"""Coarse medians within this factor of the best may be the best: coarse timing is no better than that."""
AT_BOUND = 0.95
"""Of the unavoidable time over that reached: coarse timing tells nothing finer, so the search is over."""
MOST_FINALS = 6
RECALLED = 32
"""Trials of a level that a resumed run takes over from its ledger."""
LATE_GAIN = 1.05
"""Coarse speedup over eager that a first proof must promise when the budget is over already. torch.compile promises
nothing there: its proof takes the longest (82 s seen, it compiles for every case), against itself as a baseline."""
COMPILE = "/compile"
"""In the names of structures that torch.compile makes."""
EXPECTED_TO_WIN = 0.5
"""Time relative to eager, as the proposer expects it, of what is proved straight away where time is short. Coarse times
of first candidates: of one kernel for all (0.4) 1.7x to 14x eager, of kernels between torch's calls 0.4x to 1.1x."""
MOST_FAILURES = 3
"""Judge failures in a row that end the run: then it is the judge or the machine, not a candidate."""
PROVING_S = 90.0
"""A finalist that compiles itself is waited for so long in its proof, or for the whole budget where that is longer."""

Say = Callable[..., None]


class Loop:
    """One run's decisions. ``say(kind, text, **data)`` hears what happens."""

    def __init__(
        self, task: Task, options: Options, judging: Judging, host: Host, say: Say, pace: Pace, given: Given
    ) -> None:
        self._task, self._options, self._judging, self._host, self._say = task, options, judging, host, say
        self.pace = pace
        self.schedule = Schedule(pace, judging, len(given.kernels))
        self._machine: Machine | None = None
        self._structures: dict[str, tuple[str, Structure]] = {}
        self._given, self._bare = dict(given.kernels), given.bare
        for text, detail in given.notes:
            say("note", text, detail=detail)
        self._ready: dict[tuple[str, tuple[tuple[str, Any], ...]], Candidate] = {}
        self._coarse: dict[str, tuple[Candidate, str, Timed]] = {}
        self._precise: dict[str, Timed | None] = {}
        self._missing: dict[str, ToolMissing] = {}
        self._failures = 0
        self.unjudged: dict[str, str] = {}
        """What the judge died of, by structure."""
        self.exhausted = False
        """True when the search ended because nothing was left to try, not because of the budget."""
        self.tried, self.rejected = judging.counts()
        """Judgements of the whole run, those of its earlier parts included, and how many were rejections."""
        self.winner: Trial | None = None
        self.unproved = ""
        """The best candidate that there was no time to prove, where it promised something and nothing was proved."""
        self.nearest: Timed | None = None
        """The fastest precise outcome, winner or not: what the honest answer "nothing is faster" cites."""

    def collect(self, machine: Machine | None, look: Callable[[], object] = lambda: None) -> None:
        """Ask every proposer for structures; one that fails is noted and skipped. ``look``: before each, may raise."""
        self._machine = machine
        for name in (name for name in self._options.proposers or tuple(TABLE) if name != NONE):
            look()
            try:
                found = self._host.structures(name, self._task, self._options.device, machine)
            except KernelwrightError as error:
                self._say("note", f"proposer {name} skipped: {error.what}", detail=str(error), proposer=name)
                continue
            finally:
                for why in self._host.heard():
                    self._say("note", why, proposer=name)
            for structure in found:
                self._structures[f"{name}/{structure.name}"] = (name, structure)
            self._say("structures", f"{name}: {len(found)} structures", proposer=name, names=[s.name for s in found])

    def build_defaults(self) -> None:
        """Start compiling every structure's default while the task is still being admitted."""
        for key, (_, structure) in sorted(self._structures.items(), key=lambda item: item[1][1].order):
            default = StructureSearch([Arm(key=key, order=0.0, space=structure.space)]).ask()
            candidate = self._render(default) if default is not None else None
            if candidate is not None:
                self._judging.build_ahead(candidate)

    def search(self, share: float = 1.0) -> None:
        """Coarse judging until the budget's share for it is spent or nothing is left to try.

        ``share`` below 1 leaves the rest of the time for candidates that come through ``consider``."""
        kept = (1.0 - share) * self._options.budget_seconds
        arms = [Arm(key=key, order=-1.0, space=START) for key in self._given]
        arms += [Arm(key=key, order=s.order, space=s.space) for key, (_, s) in self._structures.items()]
        search = StructureSearch(arms, self._options.seed)
        self._recall()
        proved_early, left_out, asked = False, False, 0
        told: dict[str, float | None] = {}
        while self.schedule.may_try(self._tries(asked), kept):
            if search.first_pass_over and not proved_early and self.schedule.early_proof():
                # One proof early: whoever stops the run from here on keeps a result.
                proved_early = True
                self._prove_best()
                continue
            choice = search.ask()
            if choice is None:
                self.exhausted = not left_out
                break
            if "compile" in choice.arm and not self.schedule.may_compile(self._tries(asked)):
                search.tell(choice, None)  # for what the compiled baseline shows already
                left_out = True
                continue
            candidate = self._render(choice)
            if candidate is None or candidate.digest() in told:
                # Other values, the same text: what it takes is known, and it is no further try.
                search.tell(choice, told[candidate.digest()] if candidate is not None else None)
                continue
            self._judging.extra |= {"patience": self.schedule.patience(), "hanging": self.schedule.hanging()}
            level = "precise" if self._straight(candidate, choice.arm, kept) else "coarse"
            known = self._judging.known(candidate, level)
            asked += not known
            if level == "precise":
                timed = self._proved(candidate, choice.arm)
            else:
                timed = self._judge(candidate, level, choice.arm)
                if timed is not None:
                    self._coarse.setdefault(candidate.digest(), (candidate, choice.arm, timed))
            told[candidate.digest()] = timed.timing.median_us if timed else None
            search.tell(choice, told[candidate.digest()])
            if timed is not None and (timed.bound_fraction or 0.0) >= AT_BOUND:
                self._say("note", f"{choice.arm} is at {timed.bound_fraction:.0%} of the bound: nothing left to find")
                self.exhausted = True
                break
            if level == "precise" and timed is not None and not known:
                break
        for line in search.expectations():
            self._say("note", line)

    def _recall(self) -> None:
        """What an earlier part of a resumed run found takes part in the finals, however short this part is."""
        for trial, structure in self._judging.recorded("coarse", RECALLED):
            if isinstance(trial.outcome, Timed):
                self._coarse.setdefault(trial.candidate.digest(), (trial.candidate, structure, trial.outcome))
        for trial, structure in self._judging.recorded("precise", RECALLED):
            if isinstance(trial.outcome, Timed):
                self._precise[trial.candidate.digest()] = trial.outcome
                self._settle(trial.candidate, structure, trial.outcome)

    def consider(self, candidate: Candidate, structure: str) -> Outcome | None:
        """Judge a candidate from elsewhere as a structure's is; accepted ones take part in the finals."""
        outcome = self._verdict(candidate, "coarse", structure)
        if isinstance(outcome, Timed):
            self._coarse.setdefault(candidate.digest(), (candidate, structure, outcome))
        return outcome

    def build_ahead(self, candidate: Candidate) -> None:
        """Start compiling a candidate beside whatever is being judged."""
        self._judging.build_ahead(candidate)

    def judge_with(self, **fields: Any) -> None:  # noqa: ANN401 - fields of a job are free JSON
        """Fields that every further judge job carries."""
        self._judging.extra |= fields

    def given(self) -> list[Candidate]:
        """The kernels the user gave to start from, whatever came of them."""
        return [*self._given.values(), *self._bare]

    def seconds_left(self) -> float:
        """Until the finals must begin; negative when they should have."""
        return max(self.schedule.left() - self.schedule.reserve(), self.pace.promised())

    @contextmanager
    def granted(self, seconds: float) -> Iterator[None]:
        """What is done inside has at least so much time, and a proof has its own after it: admission must not use up
        others' time."""
        extended = self.seconds_left() < seconds
        self.pace.promise(seconds)
        yield
        if extended:
            self.pace.grant(self.schedule.reserve())

    def fastest(self, most: int) -> list[Candidate]:
        """The accepted candidates, fastest first."""
        return [candidate for candidate, _, _ in self._ranked()[:most]]

    def best_time(self) -> Timed | None:
        """The fastest of them, as it was timed before any proof."""
        return next((timed for _, _, timed in self._ranked()), None)

    def _ranked(self) -> list[tuple[Candidate, str, Timed]]:
        return sorted(self._coarse.values(), key=lambda item: item[2].timing.median_us)

    def finish(self) -> None:
        """Prove the finalists, fastest first; at least one, even when the budget is over.

        Raises ToolMissing when a missing tool is the reason that nothing could be tried.
        """
        if not self.tried and self._missing:
            raise next(iter(self._missing.values()))
        made = 0
        while made < MOST_FINALS:
            waiting = self._finalists()
            if not waiting:
                return
            if not self.schedule.in_budget():
                begun = self.schedule.may_prove_late(made, any(self._precise.values()))
                late = [item for item in waiting if begun and _worth_waiting(item[1], item[2])]
                if not late:
                    self._leave(waiting[0])
                    return
                waiting = late
            self._prove(*waiting[0][:2])
            made += 1

    def _leave(self, item: tuple[Candidate, str, Timed]) -> None:
        """Where nothing was proved, say which finalist might have been: the user may give it more time."""
        if any(self._precise.values()) or _speedup(item[2]) <= 1.0:
            return
        self.unproved = f"{item[1]}, {_speedup(item[2]):.2f}x of eager in coarse timing"
        self._say("note", f"not proved, for lack of time: {self.unproved}")

    def _finalists(self) -> list[tuple[Candidate, str, Timed]]:
        """Candidates worth proving, fastest first: close to the best, and not all variants of one structure's tail."""
        alive = [item for item in self._ranked() if self._precise.get(item[0].digest(), 0) is not None]
        if not alive:
            return []
        limit = alive[0][2].timing.median_us * CLOSE
        close = [item for item in alive if item[2].timing.median_us <= limit][:FINALISTS]
        return [item for item in close if item[0].digest() not in self._precise and _may_win(item[2])]

    def _prove_best(self) -> None:
        waiting = self._finalists()
        if waiting:
            self._prove(*waiting[0][:2])

    def _straight(self, candidate: Candidate, key: str, kept: float) -> bool:
        """Whether a candidate is proved without a coarse judgement before.

        Where the budget does not hold both, nobody is tried after one that promises something: its proof begins next,
        and asks again all that the coarse judgement asked (2 s of 12 for a softmax on 2 cores). Of what is expected to
        take half of eager's time, that is expected. Waited for it is no longer than in a coarse judgement. A resumed
        run does not ask again about one that was proved so.
        """
        if self._judging.known(candidate, "coarse"):
            return False
        if self._judging.known(candidate, "precise"):
            return True
        if key not in self._structures or kept or self.schedule.fits() or any(self._precise.values()):
            return False
        return self._structures[key][1].order <= EXPECTED_TO_WIN and COMPILE not in key

    def _prove(self, candidate: Candidate, structure: str) -> None:
        patience = max(PROVING_S, self._options.budget_seconds)
        self._judging.extra |= {"patience": patience, "hanging": patience}
        self._proved(candidate, structure)

    def _proved(self, candidate: Candidate, structure: str) -> Timed | None:
        if candidate.language in self._missing:
            self._precise[candidate.digest()] = None
            return None
        self._say("phase", f"proving {structure}", candidate=candidate.digest())
        self._judging.spare_seconds = self.schedule.spare()
        if news := self.schedule.news(proving=True):
            self._say("note", news)
        with self.pace.step("proof"):
            outcome = self._judge(candidate, "precise", structure)
        self._precise[candidate.digest()] = outcome
        if outcome is not None:
            self._settle(candidate, structure, outcome)
        return outcome

    def _settle(self, candidate: Candidate, structure: str, outcome: Timed) -> None:
        """A precise outcome: the winner, when it is proved faster than what was found before."""
        if self.nearest is None or outcome.speedup_low > self.nearest.speedup_low:
            self.nearest = outcome
            if outcome.speedup_low > 1.0:
                self.winner = self._judging.trial(candidate, "precise")
                text = f"{outcome.speedup:.2f}x over {outcome.best_baseline}, proved: {structure}"
                self._say("best", text, speedup=outcome.speedup, candidate=candidate.digest(), structure=structure)

    def _judge(self, candidate: Candidate, level: str, structure: str) -> Timed | None:
        outcome = self._verdict(candidate, level, structure)
        return outcome if isinstance(outcome, Timed) else None

    def _verdict(self, candidate: Candidate, level: str, structure: str) -> Outcome | None:
        """The outcome, or None: a missing tool or a judge that died costs the candidate, not the run."""
        if candidate.language in self._missing:
            return None
        try:
            outcome, known = self._judging.outcome(candidate, level, structure)
        except NoSuchDevice:
            raise
        except (JudgeFailed, NotEnoughMemory) as error:
            self._failures += 1
            self.unjudged[structure] = error.got or error.what
            self._say("note", f"{structure}: {error.what}", detail=str(error))
            if self._failures >= MOST_FAILURES:
                raise
            return None
        except ToolMissing as error:
            self._missing[candidate.language] = error
            self._say("note", f"no {candidate.language} candidates: {error.what}", detail=str(error))
            return None
        self._failures = 0
        self._count(outcome, known, candidate, structure, level)
        return outcome

    def _count(self, outcome: Timed | Rejected, known: bool, candidate: Candidate, structure: str, level: str) -> None:
        self.tried += not known
        data: dict[str, Any] = {
            "structure": structure,
            "candidate": candidate.digest(),
            "level": level,
            "remembered": known,
            "tunables": dict(candidate.tunables),
        }
        if isinstance(outcome, Rejected):
            self.rejected += not known
            data |= {"stage": outcome.stage, "reason": outcome.reason}
            text = f"{structure}: rejected at {outcome.stage}: {_one_line(outcome.reason)}"
            if outcome.stage == "build" and structure in self._given:
                text += f"\n{outcome.detail.rstrip()}"  # the user's own kernel: the compiler's words are what to mend
        else:
            data |= {"median_us": outcome.timing.median_us, "speedup": outcome.speedup}
            text = f"{structure}: {outcome.timing.median_us:.1f} us, {outcome.speedup:.2f}x {outcome.best_baseline}"
        self._say("trial", text, **data)

    def _render(self, choice: Choice) -> Candidate | None:
        if choice.arm in self._given:
            return self._given[choice.arm]
        ready = self._ready.get((choice.arm, choice.values))
        if ready is not None:
            return ready
        name, structure = self._structures[choice.arm]
        try:
            candidate = self._host.render(
                name, self._task, self._options.device, self._machine, structure.name, dict(choice.values)
            )
        except KernelwrightError as error:
            self._say("note", f"{choice.arm} cannot be written: {error.what}", detail=str(error))
            return None
        self._ready[choice.arm, choice.values] = candidate
        return candidate

    def _tries(self, asked: int) -> Tries:
        waiting = [item for item in self._coarse.values() if item[0].digest() not in self._precise]
        promising = any(_worth_waiting(structure, timed) for _, structure, timed in waiting)
        return Tries(asked=asked, accepted=bool(self._coarse), promising=promising)


def _speedup(timed: Timed) -> float:
    return next((b.speedup for b in timed.baselines if b.name == "eager"), timed.speedup)


def _worth_waiting(structure: str, timed: Timed) -> bool:
    """Whether a proof is begun although the budget is over."""
    return _speedup(timed) >= LATE_GAIN and COMPILE not in structure


def _may_win(timed: Timed) -> bool:
    """Whether coarse timing leaves it open that a candidate beats eager; else there is nothing to prove."""
    return next((b.speedup_high for b in timed.baselines if b.name == "eager"), timed.speedup_high) > 1.0


def _one_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 160 else line[:157] + "..."


def chosen_proposers(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names when all are known. Raises BadCommand naming the known ones."""
    odd = [name for name in names if name not in TABLE and names != (NONE,)]
    if odd:
        raise BadCommand("There is no such proposer.", got=", ".join(odd), expected="some of " + ", ".join(TABLE))
    return names
