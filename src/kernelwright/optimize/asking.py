# SPDX-License-Identifier: Apache-2.0
"""From a strategy's ask to a request a model can act on: which kind, which programs, what is shown beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from kernelwright.candidate import Candidate
from kernelwright.errors import ModelError
from kernelwright.knowledge import Knowledge
from kernelwright.optimize.bare import as_source, is_bare
from kernelwright.optimize.shelf import Shelf
from kernelwright.optimize.traits import is_race
from kernelwright.proposers.agent import AgentProposer, Evidence, Malformed
from kernelwright.proposers.agent import Ask as Request
from kernelwright.recipes import Recipe
from kernelwright.search import Ask
from kernelwright.trial import Rejected, Timed

KINDS = {"fresh": "new", "revise": "improve", "repair": "repair", "cross": "cross", "contrast": "contrast"}
BROKEN = frozenset({"scan", "build", "load"})
"""Stages whose own message names the defect: nothing has run yet."""
RAISED = "raised "
"""How the reason of a program begins that ended in a Python exception, a compile error of Triton's among them."""
NO_PROFILE = "No profile of the reference was taken."


class Asking:
    """Makes requests for one search. What it decides follows from what was settled until then."""

    def __init__(
        self, recipe: Recipe, shelf: Shelf, *, knowledge: Knowledge | None, features: Sequence[str], words: str,
        profile: str, say: Callable[..., None], in_time: Callable[[Callable[[], str]], str],
    ) -> None:  # fmt: skip
        """``in_time`` waits for what a model says, as long as there is time."""
        self._recipe, self._shelf, self._knowledge = recipe, shelf, knowledge
        self._features, self._words, self._profile, self._say = tuple(features), words, profile, say
        self._in_time = in_time
        self._plan: str | None = None

    def request(self, ask: Ask, voice: AgentProposer, beside: int = 0) -> Request:
        """The request for one ask; ``beside``: how many others are being answered.

        Raises ``BudgetSpent`` where a plan would overrun a limit."""
        known = self._shelf.known
        unread = next((self._shelf.unread[name] for name in ask.parents if name in self._shelf.unread), None)
        if unread is not None and ask.edit == "repair":
            before, text, fault = unread
            return dataclasses.replace(before, unread=text, fault=fault, seed=ask.number)
        digests = ask.examples if ask.edit == "contrast" else ask.parents
        parents = [known[digest] for digest in digests if digest in known]
        kind = self._kind(ask, parents, voice)
        given = self._given(voice.device)
        if kind == "new" and given is None and "translator" in self._recipe.roles:
            given = Evidence(candidate=as_source(voice.task), outcome=None, diagnosis="")
        if kind == "new" and given is not None:
            kind, parents = "translate", [given]
        first = parents[0] if parents and kind in ("improve", "repair", "race", "translate") else None
        grand = known.get(first.candidate.parent) if first is not None and "change" in self._recipe.shows else None
        return Request(
            kind=kind,
            parent=first,
            grandparent=grand,
            others=tuple(parents) if kind in ("cross", "contrast") else (),
            plan=self._planned(voice) if kind == "new" else "",
            knowledge=self._recall(first, voice),
            history=self._shelf.failures() if kind == "translate" else self._shelf.history(),
            advised=self._shelf.advised.lines(),
            thoughts=self._recipe.thoughts if kind in ("new", "words") else 0,
            words=self._words,
            beside=beside,
            seed=ask.number,
        )

    def _kind(self, ask: Ask, parents: list[Evidence], voice: AgentProposer) -> str:
        kind = KINDS[ask.edit]
        if not parents or kind in ("cross", "contrast") and len(parents) < 2:
            kind = "new"  # what was to be edited was a reply without a program
        if kind in ("improve", "repair"):
            shown = parents[0]
            foreign = shown.candidate.language != voice.language
            alien = _alien(shown.candidate, voice.device)
            if foreign and ("translator" in self._recipe.roles or alien) or is_bare(shown.candidate):
                return "translate"
            if shown.outcome is None:
                return "new"
            kind = "improve" if isinstance(shown.outcome, Timed) else "repair"
            if kind == "repair" and is_race(shown.outcome):
                return "race"
        return "words" if kind == "new" and self._words else kind

    def _given(self, device: str) -> Evidence | None:
        """A program the user gave that cannot be judged here: in another device's language, or without an interface."""
        for one in self._shelf.known.values():
            if one.candidate.proposer == "start" and not isinstance(one.outcome, Timed):
                if is_bare(one.candidate) or _alien(one.candidate, device):
                    return one
        return None

    def _planned(self, voice: AgentProposer) -> str:
        if "planner" not in self._recipe.roles:
            return ""
        if self._plan is None:
            self._plan = ""
            try:
                self._plan = self._in_time(lambda: voice.plan(self._profile or NO_PROFILE))
            except (Malformed, ModelError) as fault:
                self._say("note", f"there is no plan: {fault}")
        return self._plan

    def _recall(self, shown: Evidence | None, voice: AgentProposer) -> tuple[str, ...]:
        if self._knowledge is None or not self._recipe.knowledge:
            return ()
        limiter = shown.outcome.limiter if shown is not None and isinstance(shown.outcome, Timed) else ""
        words = shown.candidate.note if shown is not None else ""
        found = self._knowledge.retrieve(
            self._features, diagnosis=limiter, words=words, most=self._recipe.knowledge, language=voice.language,
            machine=voice.machine.name if voice.machine is not None else "",
        )  # fmt: skip
        return tuple(effect.line() for effect in found)


def wants_advice(recipe: Recipe, request: Request) -> bool:
    """Whether the recipe's adviser is asked before the coder: an edit or a repair of a program it has a word on."""
    if "adviser" not in recipe.roles or request.fault or request.kind not in ("improve", "repair"):
        return False
    outcome = request.parent.outcome if request.parent is not None else None
    if not isinstance(outcome, Rejected):
        return "slow" in recipe.advised
    named = outcome.stage in BROKEN or outcome.reason.startswith(RAISED)
    return ("broken" if named else "wrong") in recipe.advised


def _alien(candidate: Candidate, device: str) -> bool:
    """Whether a candidate's language needs another device."""
    return device == "cpu" and candidate.language in ("triton", "cuda")
