# SPDX-License-Identifier: Apache-2.0
"""The model-driven search: a strategy asks, a model writes, the judge decides; one engine for every recipe.

Candidates pass the cheap tiers first (parse, duplicate, prediction) and only survivors reach the device. Every
request and outcome is recorded, so a killed run goes on from its record and a finished one replays without a model.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kernelwright.candidate import Candidate
from kernelwright.errors import BudgetSpent
from kernelwright.knowledge import Knowledge
from kernelwright.optimize.traits import traits
from kernelwright.proposers.agent import AgentProposer, Evidence, Malformed, declared_space, with_values
from kernelwright.proposers.agent import Ask as Request
from kernelwright.recipes import Recipe
from kernelwright.search import Ask, Bandit, Strategy, Told
from kernelwright.search.population import normalise
from kernelwright.trial import Outcome, Rejected, Timed
from kernelwright.tuning import Tuner

SURE = 0.9
"""A verifier this sure of a failure keeps the candidate off the device (its record is reported either way)."""
CRITIC_EVERY = 12
KINDS = {"fresh": "new", "revise": "improve", "repair": "repair", "cross": "cross", "contrast": "contrast"}


class Trier(Protocol):
    """Where candidates are judged: the run's loop."""

    def consider(self, candidate: Candidate, structure: str) -> Outcome | None:
        """Judge coarsely and remember; None when the judge itself failed on it."""
        ...

    def seconds_left(self) -> float:
        """Budget left for searching."""
        ...


@dataclass(slots=True)
class Tally:
    """What became of the candidates, and where they died."""

    asked: int = 0
    malformed: int = 0
    duplicates: int = 0
    predicted: int = 0
    """Kept off the device by the verifier."""
    prediction_hits: int = 0
    prediction_misses: int = 0
    stages: dict[str, int] = field(default_factory=dict)

    def died(self, stage: str) -> None:
        """Count one rejection."""
        self.stages[stage] = self.stages.get(stage, 0) + 1


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
        diagnose: Callable[[Candidate], str] | None = None,
        say: Callable[..., None] = lambda *_, **__: None,
        start: Sequence[Candidate] = (),
        words: str = "",
        profile: str = "",
    ) -> None:
        self._recipe, self._voices, self._trier, self._strategy = recipe, voices, trier, strategy
        self._knowledge, self._features, self._diagnose, self._say = knowledge, tuple(features), diagnose, say
        self._bandit = Bandit(list(voices))
        self._start, self._words, self._profile = list(start), words, profile
        self._seen: dict[str, str] = {}
        self._known: dict[str, Evidence] = {}
        self._scores: dict[str, float | None] = {}
        self._plan: str | None = None
        self.tally = Tally()

    def search(self) -> None:
        """Ask until the strategy, the budget or the time is done. Raises nothing of a candidate's making."""
        while self._trier.seconds_left() > 0 and (ask := self._strategy.ask()) is not None:
            try:
                told = self._answer(ask)
            except BudgetSpent as spent:
                self._say("note", f"stopped: {spent.what}", detail=str(spent))
                return
            self._strategy.tell(ask, told)
            if "critic" in self._recipe.roles and self.tally.asked % CRITIC_EVERY == 0:
                self._evolve_advice()

    def _answer(self, ask: Ask) -> Told:
        self.tally.asked += 1
        arm = self._bandit.choose()
        voice = self._voices[arm]
        before = voice.speaker.budget.spent().tokens
        best = self._strategy.best()
        try:
            candidate = self._start.pop(0) if self._start else voice.propose(self._request(ask, voice))
        except Malformed as fault:
            self.tally.malformed += 1
            self._say("trial", f"reply {ask.number} holds no candidate: {fault}", stage="parse")
            told = Told(candidate=f"malformed-{ask.number}", score=None, features=(), text="")
        else:
            told = self._settle(ask, candidate, voice)
        old = best.score if best is not None and best.score is not None else 0.0
        gain = max(0.0, (told.score or 0.0) - old) if told.score is not None else 0.0
        self._bandit.tell(arm, gain, voice.speaker.budget.spent().tokens - before)
        return told

    def _settle(self, ask: Ask, candidate: Candidate, voice: AgentProposer) -> Told:
        """From a parsed candidate to what the strategy hears, spending device time on survivors only."""
        print_of = fingerprint(candidate)
        if print_of in self._seen:
            self.tally.duplicates += 1
            first = self._seen[print_of]
            self._say("trial", f"reply {ask.number} repeats an earlier candidate", candidate=first, stage="duplicate")
            return self._told(self._known[first].candidate, self._known[first].outcome)
        self._seen[print_of] = candidate.digest()
        guess = self._predict(candidate, voice)
        if guess is not None and guess[0] and guess[1] >= SURE:
            self.tally.predicted += 1
            outcome: Outcome | None = Rejected(stage="scan", reason="predicted to fail", detail=guess[2][:4000])
        else:
            outcome = self._trier.consider(candidate, f"agent/{ask.edit}")
            self._score_guess(guess, outcome)
            candidate, outcome = self._tune(candidate, outcome)
        self._known[candidate.digest()] = Evidence(
            candidate=candidate, outcome=outcome, diagnosis=self._diagnosis(candidate, outcome)
        )
        self._seen[print_of] = candidate.digest()
        if isinstance(outcome, Rejected):
            self.tally.died(outcome.stage)
        return self._told(candidate, outcome)

    def _request(self, ask: Ask, voice: AgentProposer) -> Request:
        recipe = self._recipe
        parents = [self._known[digest] for digest in ask.parents if digest in self._known]
        kind = KINDS[ask.edit]
        if kind in ("improve", "repair", "cross") and len(parents) < len(ask.parents):
            kind = "new"  # the parent was a reply without a candidate: there is nothing to edit
        if kind == "contrast":
            parents = [self._known[digest] for digest in ask.examples if digest in self._known]
        first = parents[0] if parents and kind in ("improve", "repair") else None
        grand = self._known.get(first.candidate.parent) if first is not None and "change" in recipe.shows else None
        if kind == "repair" and first is not None and recipe.sanitize and _is_race(first.outcome):
            kind = "race"
        if kind == "new" and self._words:
            kind = "words"
        return Request(
            kind=kind,
            parent=first,
            grandparent=grand,
            others=tuple(parents) if kind in ("cross", "contrast") else (),
            advice=self._advice(first, grand, voice, ask.number) if first is not None else "",
            plan=self._planned(voice) if kind == "new" else "",
            knowledge=self._recall(first),
            thoughts=recipe.thoughts if kind in ("new", "words") else 0,
            words=self._words,
            seed=ask.number,
        )

    def _advice(self, shown: Evidence, parent: Evidence | None, voice: AgentProposer, seed: int) -> str:
        if "adviser" not in self._recipe.roles:
            return ""
        try:
            return voice.advise(shown, parent, seed=seed)[0]
        except Malformed as fault:
            self._say("note", f"the adviser's reply is not advice: {fault}")
            return ""

    def _planned(self, voice: AgentProposer) -> str:
        if "planner" not in self._recipe.roles:
            return ""
        if self._plan is None:
            try:
                self._plan = voice.plan(self._profile or "No profile of the reference was taken.")
            except Malformed as fault:
                self._say("note", f"the planner's reply is not a plan: {fault}")
                self._plan = ""
        return self._plan

    def _predict(self, candidate: Candidate, voice: AgentProposer) -> tuple[bool, float, str] | None:
        if "verifier" not in self._recipe.roles:
            return None
        try:
            return voice.predict(Evidence(candidate=candidate, outcome=None, diagnosis=""))
        except Malformed:
            return None

    def _score_guess(self, guess: tuple[bool, float, str] | None, outcome: Outcome | None) -> None:
        if guess is not None and outcome is not None:
            hit = guess[0] == isinstance(outcome, Rejected)
            self.tally.prediction_hits += hit
            self.tally.prediction_misses += not hit

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

    def _diagnosis(self, candidate: Candidate, outcome: Outcome | None) -> str:
        if "diagnosis" not in self._recipe.shows or not isinstance(outcome, Timed):
            return ""
        if self._diagnose is not None:
            return self._diagnose(candidate)
        bound = f" The machine allows {outcome.bound_us:.4g} us." if outcome.bound_us else ""
        return f"It takes {outcome.timing.median_us:.4g} us. Limiter by the bound: {outcome.limiter}.{bound}"

    def _evolve_advice(self) -> None:
        rows = [_summary(shown) for shown in self._known.values()][-CRITIC_EVERY:]
        for voice in self._voices.values():
            voice.head = voice.criticise(rows, seed=self.tally.asked)

    def _told(self, candidate: Candidate, outcome: Outcome | None) -> Told:
        score = None
        features: tuple[tuple[str, str], ...] = ()
        if isinstance(outcome, Timed):
            score = _log2(outcome.speedup)
            features = traits(candidate, outcome)
        text = "\n".join(source for _, source in candidate.sources)
        return Told(candidate=candidate.digest(), score=score, features=features, text=text)


def fingerprint(candidate: Candidate) -> str:
    """Identity of the code without comments and white space: near-duplicates share it, other numbers do not."""
    names = [name for name, _ in candidate.sources]
    tokens = [
        " ".join(normalise(text, keep_numbers=True, python=name.endswith(".py"))) for name, text in candidate.sources
    ]
    return hashlib.sha256("\0".join([*names, *tokens]).encode()).hexdigest()


def _log2(ratio: float) -> float:
    return math.log2(max(ratio, 1e-9))


def _is_race(outcome: Outcome | None) -> bool:
    return isinstance(outcome, Rejected) and "data race" in (outcome.reason + outcome.detail)


def _summary(shown: Evidence) -> str:
    if isinstance(shown.outcome, Timed):
        return f"{shown.candidate.note}: {shown.outcome.speedup:.2f}x"
    if isinstance(shown.outcome, Rejected):
        return f"{shown.candidate.note}: rejected at {shown.outcome.stage}: {shown.outcome.reason}"
    return f"{shown.candidate.note}: not judged"
