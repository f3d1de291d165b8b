# SPDX-License-Identifier: Apache-2.0
"""The model-driven search: a strategy asks, a model writes, the judge decides; one engine for every recipe.

Candidates pass the cheap tiers first (parse, duplicate, build, prediction) and only survivors reach the device.
Several requests may be in flight; they are settled in the order they were asked, so that a run is a function of its
replies and outcomes: a killed run goes on from its record and a finished one replays without a model.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kernelwright.candidate import Candidate
from kernelwright.errors import BudgetSpent, ModelError
from kernelwright.knowledge import Knowledge
from kernelwright.optimize.asking import Asking, wants_advice
from kernelwright.optimize.fitting import fitted
from kernelwright.optimize.flight import Draft, Guess, Late, Open, Trier, begun, waited
from kernelwright.optimize.shelf import Shelf
from kernelwright.optimize.tally import Tally
from kernelwright.optimize.traits import fingerprint, log2, traits
from kernelwright.proposers.agent import PREDICTED, AgentProposer, Evidence, Malformed, describe_attempt
from kernelwright.proposers.agent import Ask as Request
from kernelwright.recipes import Recipe
from kernelwright.search import Ask, Bandit, Strategy, Told
from kernelwright.trial import Outcome, Rejected, Timed

SURE = 0.9
"""A verifier this sure of a failure keeps the candidate off the device (its record is reported either way)."""
AUDIT_EVERY = 4
"""Each so manieth candidate that was to be kept off the device is judged all the same, or precision is unknown."""
CRITIC_EVERY = 8
"""Asks after which prompts' advice and a tester's cases are written again; a run of 40 does so five times."""
MOST_SILENT = 3
"""Asks in a row that one model leaves unanswered before it is given up; one that never answered goes at once."""
MOST_REPLY = 32768
"""Tokens asked for at most: a reply that was cut off doubles the room of all later ones, up to here."""
NO_ADVICE = ("", 1.0)
REPEATED = ("duplicate", "same object")
"""Where a candidate ends that was judged before, under this or another text."""
T = TypeVar("T")


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
        most: int | None = None,
    ) -> None:
        """``most``: asks that the strategy has room for; after the last one nobody reads a profile."""
        self._recipe, self._voices, self._trier, self._strategy = recipe, voices, trier, strategy
        self._say, self._log = say, log
        self._bandit = Bandit(list(voices))
        self._room = min(voice.max_tokens for voice in voices.values())
        self._start, self._parallel = list(start), parallel
        self._to_ask = math.inf if most is None else most
        device = next(iter(voices.values())).device
        self.shelf = Shelf(device, diagnose="diagnosis" in recipe.shows)
        self._asking = Asking(
            recipe, self.shelf, knowledge=knowledge, features=features, words=words, profile=profile, say=say,
            in_time=self._in_time,
        )  # fmt: skip
        self._silent: dict[str, int] = {}
        self.answered: set[str] = set()
        """Models of which at least one reply came."""
        self._cases: tuple[str, ...] = ()
        """What the judge said of the tester's latest cases."""
        self._sure = 0
        self.tally = Tally()
        self.fault: ModelError | None = None
        """Why the last model was given up, where none is left."""

    def search(self) -> None:
        """Ask until the strategy, the budget or the time is done. Raises nothing of a candidate's making."""
        window: deque[Open] = deque()
        try:
            self._ask_on(window)
        except Late:
            self.tally.ended = "time"
            self._say("note", f"the time is over: {1 + len(window)} request(s) in flight are not waited for")
            if not self.answered:
                troubles = [voice.speaker.trouble() for voice in self._voices.values()]
                self.fault = next((trouble for trouble in troubles if trouble is not None), None)

    def _ask_on(self, window: deque[Open]) -> None:
        over = self._begin()
        while True:
            while not over and len(window) < self._parallel and self._has_time():
                ask = self._strategy.ask()
                if ask is None:
                    break
                try:
                    window.append(self._open(ask, sum(entry.request is not None for entry in window)))
                except BudgetSpent as spent:
                    over = self._stop(spent)
            if not window:
                if self.tally.ended == "time" and self._strategy.ask() is None:
                    self.tally.ended = ""  # nothing was left to ask for anyway
                self.tally.ended = self.tally.ended or ("model" if self.fault is not None else "candidates")
                return
            entry = window.popleft()
            try:
                told = self._close(entry)
            except BudgetSpent as spent:
                over = self._stop(spent)
                continue
            self._strategy.tell(entry.ask, told)
            over = over or self.fault is not None
            try:
                self._reflect()
            except BudgetSpent as spent:
                over = self._stop(spent)
            except ModelError as error:
                self._say("note", f"the advice stays as it is: {error.what}", detail=str(error))

    def _has_time(self) -> bool:
        left = self._trier.seconds_left() > 0
        self.tally.ended = "" if left else "time"
        return left

    def _begin(self) -> bool:
        """Have cases written before the first candidate is judged; whether the budget is spent already."""
        try:
            self._write_cases()
        except BudgetSpent as spent:
            return self._stop(spent)
        return False

    def _write_cases(self) -> None:
        """Have the tester write inputs that candidates must pass from now on; the judge decides what they are worth."""
        if "tester" not in self._recipe.roles:
            return
        voice = dataclasses.replace(self._voices[self._bandit.arms[0]], max_tokens=self._room)
        best = self._strategy.best()
        like = self.shelf.known.get(best.candidate) if best is not None else None
        try:
            told = (*self._cases, *self.shelf.caught())
            source = self._in_time(lambda: voice.tests(like=like, history=told, seed=self.tally.asked))
        except (Malformed, ModelError) as fault:
            self._say("note", f"there are no cases of a tester: {fault}")
            return
        self.tally.tests += 1
        self._cases = self._trier.test_with(source)

    def _stop(self, why: BudgetSpent) -> bool:
        self._say("note", f"no more requests: {why.what}", detail=str(why))
        self.tally.ended = why.what
        return True

    def _open(self, ask: Ask, beside: int) -> Open:
        """Decide everything that depends on what was told until now, then let the model write beside other work."""
        self._to_ask -= 1
        arm = self._bandit.choose()
        base = self._voices[arm]
        voice = dataclasses.replace(base, speaker=base.speaker.metered(), max_tokens=self._room)
        if self._start:
            found: concurrent.futures.Future[Draft] = concurrent.futures.Future()
            found.set_result(Draft(candidate=self._start.pop(0), advice=NO_ADVICE, guess=None))
            return Open(ask, arm, voice, None, found)
        request = self._asking.request(ask, voice, beside)
        seen = frozenset(self.shelf.prints)
        found = begun(lambda: self._write(request, voice, seen), f"ask-{ask.number}")
        return Open(ask, arm, voice, request, found)

    def _write(self, request: Request, voice: AgentProposer, seen: frozenset[str]) -> Draft:
        """Advice, program, prediction: all that models say of one candidate, beside whatever is being judged."""
        advice = NO_ADVICE
        if request.parent is not None and wants_advice(self._recipe, request):
            try:
                advice = voice.advise(
                    request.parent, request.grandparent, history=request.history, knowledge=request.knowledge,
                    advised=request.advised, seed=request.seed,
                )  # fmt: skip
            except Malformed as fault:
                self._say("note", f"the adviser's reply is not advice: {fault}")
        candidate = voice.propose(dataclasses.replace(request, advice=advice[0] or request.advice))
        if fingerprint(candidate) in seen:
            return Draft(candidate=candidate, advice=advice, guess=None)
        self._trier.build_ahead(candidate)
        return Draft(candidate=candidate, advice=advice, guess=self._predict(candidate, voice))

    def _close(self, entry: Open) -> Told:
        """What came of an ask. Raises ``BudgetSpent``, ``Late``."""
        ask, best = entry.ask, self._strategy.best()
        place, digest, began = "", "", time.monotonic()
        try:
            draft = waited(entry.found, self._trier.seconds_left)
        except Malformed as fault:
            self.tally.malformed += 1
            self._room = min(MOST_REPLY, 2 * entry.voice.max_tokens) if fault.cut else self._room
            self.answered.add(entry.arm)
            self._say("trial", f"reply {ask.number} holds no candidate: {fault}", stage="parse")
            told, place = Told(candidate=f"malformed-{ask.number}", score=None, features=(), text=""), "parse"
            if entry.request is not None:
                self.shelf.unread[told.candidate] = fault.asked or entry.request, fault.reply, str(fault)
        except ModelError as error:
            self.tally.failed += 1
            self._say("note", f"request {ask.number}: {error.what}", detail=str(error))
            told, place = Told(candidate=f"unanswered-{ask.number}", score=None, features=(), text=""), "unanswered"
            self._give_up(entry.arm, error)
        else:
            began = time.monotonic()
            if entry.request is not None:
                self.answered.add(entry.arm)
                self._silent[entry.arm] = 0
            told, place = self._settle(entry, draft)
            digest = told.candidate
            if entry.shown is not None:
                made = self.shelf.known.get(told.candidate)
                self.shelf.advised.add(*draft.advice, entry.shown, made, again=place in REPEATED)
        self.tally.asked += 1
        self.tally.charge(place, entry.meter, time.monotonic() - began if digest else 0.0)
        old = best.score if best is not None and best.score is not None else 0.0
        gain = max(0.0, (told.score or 0.0) - old) if told.score is not None else 0.0
        if entry.request is not None:
            self._bandit.tell(entry.arm, gain, entry.meter.tokens)
        cost = {"tokens": entry.meter.tokens, "usd": entry.meter.usd, "requests": entry.meter.requests}
        self._log({"ask": ask.number, "edit": ask.edit, "arm": entry.arm, "candidate": digest, "ended": place} | cost)
        return told

    def _in_time(self, call: Callable[[], T]) -> T:
        """What ``call`` returns. Raises ``Late`` when the time is over before it does."""
        return waited(begun(call, "role"), self._trier.seconds_left)

    def _give_up(self, arm: str, error: ModelError) -> None:
        """Stop asking a model that does not answer; when it was the last one, the search is over."""
        self._silent[arm] = self._silent.get(arm, 0) + 1
        if arm in self.answered and self._silent[arm] < MOST_SILENT:
            return
        if len(self._bandit.arms) == 1:
            self.fault = error
        elif arm in self._bandit.arms:
            self._bandit.retire(arm)

    def _settle(self, entry: Open, draft: Draft) -> tuple[Told, str]:
        """From a parsed candidate to what the strategy hears and where it ended; device time for survivors only."""
        candidate, shelf = draft.candidate, self.shelf
        print_of = fingerprint(candidate)
        if print_of in shelf.prints:
            return self._repeats(entry.ask, shelf.prints[print_of], REPEATED[0])
        static = self._trier.static(candidate)
        twin = shelf.twin(candidate, static) if static is not None else None
        if twin is not None and twin in shelf.known:
            shelf.prints[print_of] = twin
            return self._repeats(entry.ask, twin, REPEATED[1])
        best = self._strategy.best()
        candidate, outcome, place = self._tried(entry, draft, built=static is not None)
        better = best is None or best.score is None or isinstance(outcome, Timed) and log2(outcome.speedup) > best.score
        survivor = "diagnosis" in self._recipe.shows and isinstance(outcome, Timed) and better and self._to_ask > 0
        profile = self._trier.profile(candidate) if survivor else {}
        self.tally.profiled += bool(profile)
        shelf.keep(candidate, outcome, profile, static)
        shelf.prints[print_of] = shelf.prints[fingerprint(candidate)] = candidate.digest()
        shelf.stands[draft.candidate.digest()] = candidate.digest()
        if isinstance(outcome, Rejected):
            self.tally.died(outcome.stage)
        return self._told(candidate, outcome), place

    def _repeats(self, ask: Ask, first: str, place: str) -> tuple[Told, str]:
        """A candidate that was judged before under this or another text costs no device time."""
        self.tally.duplicates += 1
        self._say("trial", f"reply {ask.number} repeats an earlier candidate ({place})", candidate=first, stage=place)
        shown = self.shelf.known[first]
        self.shelf.repeats[first] = self.shelf.repeats.get(first, 0) + 1
        return self._told(shown.candidate, shown.outcome), place

    def _tried(self, entry: Open, draft: Draft, *, built: bool) -> tuple[Candidate, Outcome | None, str]:
        """(candidate as it is compared, outcome, where it ended): sanitizers, prediction, judge, tuner."""
        candidate, guess = draft.candidate, draft.guess
        outcome: Outcome | None
        watched = built and self._recipe.sanitize and candidate.language == "cpp"
        fault = self._trier.sanitized(candidate) if watched else None
        if fault is not None:
            text = f"reply {entry.ask.number}: rejected at {fault.stage}: {fault.reason[:160]}"
            self._say("trial", text, candidate=candidate.digest(), stage=fault.stage)
            return candidate, fault, fault.stage
        if built and self._keep_off(guess):
            self.tally.predicted += 1
            why = guess[2][:4000] if guess is not None else ""
            return candidate, Rejected(stage="scan", reason=PREDICTED, detail=why), "predicted"
        outcome = self._trier.consider(candidate, f"agent/{entry.ask.edit}")
        if guess is not None and outcome is not None:
            self.tally.guessed(guess[0], isinstance(outcome, Rejected))
        candidate, outcome, gave = fitted(candidate, outcome, self._trier, self._recipe.tuning)
        self.shelf.fits[candidate.digest()] = gave
        place = outcome.stage if isinstance(outcome, Rejected) else "timed" if outcome is not None else "unjudged"
        return candidate, outcome, place

    def _keep_off(self, guess: Guess | None) -> bool:
        if guess is None or not guess[0] or guess[1] < SURE:
            return False
        self._sure += 1
        return self._sure % AUDIT_EVERY != 0

    def _predict(self, candidate: Candidate, voice: AgentProposer) -> Guess | None:
        if "verifier" not in self._recipe.roles:
            return None
        try:
            return voice.predict(Evidence(candidate=candidate, outcome=None, diagnosis=""))
        except (Malformed, ModelError, BudgetSpent):
            return None  # a candidate that is paid for is judged without a prediction

    def _reflect(self) -> None:
        """At every CRITIC_EVERY-th ask the advice at the head of requests is written again, by the recipe's roles."""
        roles = self._recipe.roles
        if self.tally.asked % CRITIC_EVERY:
            return
        self._write_cases()
        if not {"critic", "gradient", "summariser"} & set(roles) or self._to_ask <= 0:  # nobody would read it
            return
        rows = [describe_attempt(shown) for shown in self.shelf.known.values()][-CRITIC_EVERY:]
        for arm in self._bandit.arms:
            voice = dataclasses.replace(self._voices[arm], max_tokens=self._room)
            heads = self._in_time(lambda voice=voice: self._advice(voice, rows))  # type: ignore[misc]  # bound early
            self._voices[arm].head = "\n".join(heads)[:4000] or voice.head

    def _advice(self, voice: AgentProposer, rows: Sequence[str]) -> list[str]:
        roles, heads = self._recipe.roles, []
        if "critic" in roles:
            heads.append(voice.criticise(rows, seed=self.tally.asked))
        rows_of = self.shelf.advised.predictions(CRITIC_EVERY)
        if "gradient" in roles and rows_of:
            heads.append(voice.correct(rows_of, seed=self.tally.asked))
        if "summariser" in roles:
            heads.append(voice.summarise(rows, seed=self.tally.asked))
        return heads

    def _told(self, candidate: Candidate, outcome: Outcome | None) -> Told:
        score = None
        features: tuple[tuple[str, str], ...] = ()
        if isinstance(outcome, Timed):
            score = log2(outcome.speedup)
            features = traits(candidate, outcome)
        text = "\n".join(source for _, source in candidate.sources)
        return Told(candidate=candidate.digest(), score=score, features=features, text=text)
