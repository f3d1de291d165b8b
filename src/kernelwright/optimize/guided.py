# SPDX-License-Identifier: Apache-2.0
"""The model-driven search: a strategy asks, a model writes, the judge decides; one engine for every recipe.

Candidates pass the cheap tiers first (parse, duplicate, build, prediction) and only survivors reach the device.
Several requests may be in flight; they are settled in the order they were asked, so that a run is a function of its
replies and outcomes: a killed run goes on from its record and a finished one replays without a model.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kernelwright import diagnosis
from kernelwright.candidate import Candidate
from kernelwright.errors import BudgetSpent, KernelwrightError, ModelError
from kernelwright.knowledge import Knowledge
from kernelwright.optimize.flight import Late, Open, Trier
from kernelwright.optimize.tally import Tally
from kernelwright.optimize.traits import fingerprint, is_race, log2, number, summary, traits
from kernelwright.proposers.agent import AgentProposer, Evidence, Malformed, declared_space, with_values
from kernelwright.proposers.agent import Ask as Request
from kernelwright.recipes import Recipe
from kernelwright.search import Ask, Bandit, Strategy, Told
from kernelwright.trial import Outcome, Rejected, Timed
from kernelwright.tuning import Tuner

SURE = 0.9
"""A verifier this sure of a failure keeps the candidate off the device (its record is reported either way)."""
AUDIT_EVERY = 4
"""Each so manieth candidate that was to be kept off the device is judged all the same, or precision is unknown."""
CRITIC_EVERY = 12
MOST_SILENT = 3
"""Asks in a row that one model leaves unanswered before it is given up; one that never answered goes at once."""
GRACE_S = 5.0
"""How long requests in flight are waited for when the time is over."""
KINDS = {"fresh": "new", "revise": "improve", "repair": "repair", "cross": "cross", "contrast": "contrast"}


class Guided:
    """One model-driven search. Deterministic in the seed, the replies and the outcomes."""

    def __init__(
        self,
        recipe: Recipe,
        voices: dict[str, AgentProposer],
        trier: Trier,
        strategy: Strategy,
        *,
        knowledge: Knowledge | None = None,
        features: Sequence[str] = (),
        say: Callable[..., None] = lambda *_, **__: None,
        log: Callable[[dict[str, Any]], None] = lambda _: None,
        start: Sequence[Candidate] = (),
        words: str = "",
        profile: str = "",
        parallel: int = 1,
    ) -> None:
        self._recipe, self._voices, self._trier, self._strategy = recipe, voices, trier, strategy
        self._knowledge, self._features, self._say, self._log = knowledge, tuple(features), say, log
        self._bandit = Bandit(list(voices))
        self._start, self._words, self._profile = list(start), words, profile
        self._parallel = parallel
        self._silent: dict[str, int] = {}
        self.answered: set[str] = set()
        """Models of which at least one reply came."""
        self._seen: dict[str, str] = {}
        self._known: dict[str, Evidence] = {}
        self._plan: str | None = None
        self._misses: list[str] = []
        self._sure = 0
        self.tally = Tally()
        self.fault: ModelError | None = None
        """Why the last model was given up, where none is left."""

    def search(self) -> None:
        """Ask until the strategy, the budget or the time is done. Raises nothing of a candidate's making."""
        window: deque[Open] = deque()
        over = False
        while True:
            while not over and len(window) < self._parallel and self._trier.seconds_left() > 0:
                ask = self._strategy.ask()
                if ask is None:
                    break
                try:
                    window.append(self._open(ask))
                except BudgetSpent as spent:
                    over = self._stop(spent)
            if not window:
                return
            entry = window.popleft()
            try:
                told = self._close(entry)
            except BudgetSpent as spent:
                over = self._stop(spent)
                continue
            except Late:
                self._say("note", f"the time is over: {1 + len(window)} request(s) in flight are not waited for")
                return
            self._strategy.tell(entry.ask, told)
            over = over or self.fault is not None
            try:
                self._reflect()
            except (BudgetSpent, ModelError) as spent:
                over = self._stop(spent)

    def _stop(self, why: BudgetSpent | ModelError) -> bool:
        self._say("note", f"no more requests: {why.what}", detail=str(why))
        return True

    def _open(self, ask: Ask) -> Open:
        """Decide everything that depends on what was told until now, then let the model write beside other work."""
        arm = self._bandit.choose()
        base = self._voices[arm]
        voice = dataclasses.replace(base, speaker=base.speaker.metered())
        found: concurrent.futures.Future[tuple[Candidate, tuple[str, float]]] = concurrent.futures.Future()
        if self._start:
            found.set_result((self._start.pop(0), ("", 1.0)))
            return Open(ask, arm, voice, None, found, asked=False)
        request, grand = self._request(ask, voice)

        def write() -> None:
            try:
                found.set_result(self._write(request, grand, voice))
            except (KernelwrightError, Malformed) as error:
                found.set_exception(error)
            finally:
                if not found.done():  # a defect of ours: not lost, whoever waits for the result raises it
                    found.set_exception(sys.exc_info()[1] or AssertionError("no result"))

        # A daemon: a request that hangs must not keep a finished run from ending.
        threading.Thread(target=write, name=f"ask-{ask.number}", daemon=True).start()
        return Open(ask, arm, voice, request.parent, found, asked=True)

    def _write(
        self, request: Request, grand: Evidence | None, voice: AgentProposer
    ) -> tuple[Candidate, tuple[str, float]]:
        advice = ("", 1.0)
        if request.parent is not None and request.kind in ("improve", "repair") and "adviser" in self._recipe.roles:
            try:
                advice = voice.advise(request.parent, grand, seed=request.seed)
            except Malformed as fault:
                self._say("note", f"the adviser's reply is not advice: {fault}")
        candidate = voice.propose(dataclasses.replace(request, advice=advice[0]))
        self._trier.build_ahead(candidate)
        return candidate, advice

    def _close(self, entry: Open) -> Told:
        """What came of an ask. Raises ``BudgetSpent``, ``Late``."""
        ask, best = entry.ask, self._strategy.best()
        place, digest, began = "", "", time.monotonic()
        try:
            candidate, advice = self._wait(entry)
        except Malformed as fault:
            self.tally.malformed += 1
            self.answered.add(entry.arm)
            self._say("trial", f"reply {ask.number} holds no candidate: {fault}", stage="parse")
            told, place = Told(candidate=f"malformed-{ask.number}", score=None, features=(), text=""), "parse"
        except ModelError as error:
            self.tally.failed += 1
            self._say("note", f"request {ask.number}: {error.what}", detail=str(error))
            told, place = Told(candidate=f"unanswered-{ask.number}", score=None, features=(), text=""), "unanswered"
            self._give_up(entry.arm, error)
        else:
            began = time.monotonic()
            if entry.asked:
                self.answered.add(entry.arm)
                self._silent[entry.arm] = 0
            told, place = self._settle(entry, candidate)
            digest = told.candidate
            self._compare(entry.shown, advice, told)
        self.tally.asked += 1
        self.tally.charge(place, entry.meter, time.monotonic() - began if digest else 0.0)
        old = best.score if best is not None and best.score is not None else 0.0
        gain = max(0.0, (told.score or 0.0) - old) if told.score is not None else 0.0
        if entry.asked:
            self._bandit.tell(entry.arm, gain, entry.meter.tokens)
        cost = {"tokens": entry.meter.tokens, "usd": entry.meter.usd, "requests": entry.meter.requests}
        self._log({"ask": ask.number, "edit": ask.edit, "arm": entry.arm, "candidate": digest, "ended": place} | cost)
        return told

    def _wait(self, entry: Open) -> tuple[Candidate, tuple[str, float]]:
        while True:
            try:
                return entry.found.result(timeout=0.25)
            except concurrent.futures.TimeoutError:
                if self._trier.seconds_left() < -GRACE_S:
                    raise Late from None

    def _give_up(self, arm: str, error: ModelError) -> None:
        """Stop asking a model that does not answer; when it was the last one, the search is over."""
        self._silent[arm] = self._silent.get(arm, 0) + 1
        if arm in self.answered and self._silent[arm] < MOST_SILENT:
            return
        if len(self._bandit.arms) == 1:
            self.fault = error
        elif arm in self._bandit.arms:
            self._bandit.retire(arm)

    def _settle(self, entry: Open, candidate: Candidate) -> tuple[Told, str]:
        """From a parsed candidate to what the strategy hears and where it ended; device time for survivors only."""
        print_of = fingerprint(candidate)
        if print_of in self._seen:
            self.tally.duplicates += 1
            first = self._seen[print_of]
            text = f"reply {entry.ask.number} repeats an earlier candidate"
            self._say("trial", text, candidate=first, stage="duplicate")
            return self._told(self._known[first].candidate, self._known[first].outcome), "duplicate"
        self._seen[print_of] = candidate.digest()
        guess = self._predict(candidate, entry.voice)
        if self._keep_off(guess):
            self.tally.predicted += 1
            why = guess[2][:4000] if guess is not None else ""
            outcome: Outcome | None = Rejected(stage="scan", reason="predicted to fail", detail=why)
            place = "predicted"
        else:
            outcome = self._trier.consider(candidate, f"agent/{entry.ask.edit}")
            if guess is not None and outcome is not None:
                self.tally.guessed(guess[0], isinstance(outcome, Rejected))
            candidate, outcome = self._tune(candidate, outcome)
            place = outcome.stage if isinstance(outcome, Rejected) else "timed" if outcome is not None else "unjudged"
        self._known[candidate.digest()] = Evidence(
            candidate=candidate, outcome=outcome, diagnosis=self._diagnosis(entry.voice.device, outcome)
        )
        self._seen[print_of] = candidate.digest()
        if isinstance(outcome, Rejected):
            self.tally.died(outcome.stage)
        return self._told(candidate, outcome), place

    def _keep_off(self, guess: tuple[bool, float, str] | None) -> bool:
        if guess is None or not guess[0] or guess[1] < SURE:
            return False
        self._sure += 1
        return self._sure % AUDIT_EVERY != 0

    def _request(self, ask: Ask, voice: AgentProposer) -> tuple[Request, Evidence | None]:
        recipe = self._recipe
        parents = [self._known[digest] for digest in ask.parents if digest in self._known]
        kind = KINDS[ask.edit]
        if kind in ("improve", "repair", "cross") and len(parents) < len(ask.parents):
            kind = "new"  # the parent was a reply without a candidate: there is nothing to edit
        if kind == "contrast":
            parents = [self._known[digest] for digest in ask.examples if digest in self._known]
        first = parents[0] if parents and kind in ("improve", "repair") else None
        grand = self._known.get(first.candidate.parent) if first is not None and "change" in recipe.shows else None
        if kind == "repair" and first is not None and recipe.sanitize and is_race(first.outcome):
            kind = "race"
        if kind == "improve" and first is not None and "translator" in recipe.roles:
            kind = "translate" if first.candidate.language != voice.language else kind
        if kind == "new" and self._words:
            kind = "words"
        request = Request(
            kind=kind,
            parent=first,
            grandparent=grand,
            others=tuple(parents) if kind in ("cross", "contrast") else (),
            plan=self._planned(voice) if kind == "new" else "",
            knowledge=self._recall(first),
            thoughts=recipe.thoughts if kind in ("new", "words") else 0,
            words=self._words,
            seed=ask.number,
        )
        return request, grand

    def _planned(self, voice: AgentProposer) -> str:
        if "planner" not in self._recipe.roles:
            return ""
        if self._plan is None:
            self._plan = ""
            try:
                self._plan = voice.plan(self._profile or "No profile of the reference was taken.")
            except (Malformed, ModelError) as fault:
                self._say("note", f"there is no plan: {fault}")
        return self._plan

    def _predict(self, candidate: Candidate, voice: AgentProposer) -> tuple[bool, float, str] | None:
        if "verifier" not in self._recipe.roles:
            return None
        try:
            return voice.predict(Evidence(candidate=candidate, outcome=None, diagnosis=""))
        except (Malformed, ModelError, BudgetSpent):
            return None  # a candidate that is paid for is judged without a prediction

    def _recall(self, shown: Evidence | None) -> tuple[str, ...]:
        if self._knowledge is None or not self._recipe.knowledge:
            return ()
        limiter = shown.outcome.limiter if shown is not None and isinstance(shown.outcome, Timed) else ""
        words = shown.candidate.note if shown is not None else ""
        found = self._knowledge.retrieve(
            self._features, diagnosis=limiter, words=words, most=self._recipe.knowledge
        )
        return tuple(effect.line() for effect in found)

    def _tune(self, candidate: Candidate, outcome: Outcome | None) -> tuple[Candidate, Outcome | None]:
        """Fit declared tunables before the structure is compared; the best point stands for the structure."""
        space = declared_space(candidate)
        if not space.parameters or not self._recipe.tuning or not isinstance(outcome, Timed):
            return candidate, outcome
        tuner = Tuner(space, 0)
        best: tuple[Candidate, Outcome] = (candidate, outcome)
        first = tuner.ask()
        if first is not None:
            tuner.tell(first, outcome.timing.median_us)
        for _ in range(self._recipe.tuning):
            point = tuner.ask()
            if point is None or self._trier.seconds_left() <= 0:
                break
            changed = with_values(candidate, dict(point))
            found = self._trier.consider(changed, "agent/tune")
            time_us = found.timing.median_us if isinstance(found, Timed) else None
            tuner.tell(point, time_us)
            assert isinstance(best[1], Timed)
            if isinstance(found, Timed) and found.timing.median_us < best[1].timing.median_us:
                best = (changed, found)
        return best

    def _diagnosis(self, device: str, outcome: Outcome | None) -> str:
        """From the outcome alone, so that a replay shows the same page."""
        if "diagnosis" not in self._recipe.shows or not isinstance(outcome, Timed):
            return ""
        facts = {name: number(value) for name, value in outcome.profile}
        return diagnosis.diagnose(
            {name: value for name, value in facts.items() if value is not None},
            device=device,
            time_us=outcome.timing.median_us,
            bound_us=outcome.bound_us,
            limiter=outcome.limiter,
        ).text()

    def _compare(self, shown: Evidence | None, advice: tuple[str, float], told: Told) -> None:
        """Remember an adviser's promise beside what came of it."""
        before = shown.outcome if shown is not None else None
        after = self._known[told.candidate].outcome if told.candidate in self._known else None
        if advice[0] and isinstance(before, Timed) and isinstance(after, Timed):
            got = before.timing.median_us / after.timing.median_us
            change = advice[0].splitlines()[-1][:200]
            self._misses.append(f"{change}: expected {advice[1]:.2f}x, measured {got:.2f}x")

    def _reflect(self) -> None:
        """At every CRITIC_EVERY-th ask the advice at the head of requests is written again, by the recipe's roles."""
        roles = self._recipe.roles
        if self.tally.asked % CRITIC_EVERY or not {"critic", "gradient", "summariser"} & set(roles):
            return
        rows = [summary(shown) for shown in self._known.values()][-CRITIC_EVERY:]
        for arm in self._bandit.arms:
            voice, heads = self._voices[arm], []
            if "critic" in roles:
                heads.append(voice.criticise(rows, seed=self.tally.asked))
            if "gradient" in roles and self._misses:
                heads.append(voice.correct(self._misses[-CRITIC_EVERY:], seed=self.tally.asked))
            if "summariser" in roles:
                heads.append(voice.summarise(rows, seed=self.tally.asked))
            voice.head = "\n".join(heads)[:4000] or voice.head

    def _told(self, candidate: Candidate, outcome: Outcome | None) -> Told:
        score = None
        features: tuple[tuple[str, str], ...] = ()
        if isinstance(outcome, Timed):
            score = log2(outcome.speedup)
            features = traits(candidate, outcome)
        text = "\n".join(source for _, source in candidate.sources)
        return Told(candidate=candidate.digest(), score=score, features=features, text=text)
