# SPDX-License-Identifier: Apache-2.0
"""The model-driven part of a run, begun or continued after a kill; ``replaying`` repeats it from what it leaves.

llm.jsonl         every request, announced before it goes out, and every reply
guided.jsonl      what each ask became, in order; a replay must give the same candidates
facts.jsonl       compiled facts and profiles that prompts were made from
knowledge.sqlite  the measured effects known when the run began: prompts are made from these alone
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelwright import recipes, wire
from kernelwright.candidate import Candidate
from kernelwright.errors import ModelError
from kernelwright.knowledge import Knowledge
from kernelwright.llm import Memory, Recorder, read_record
from kernelwright.machine import Machine
from kernelwright.optimize import learning, surroundings
from kernelwright.optimize.facts import FACTS, FactBook
from kernelwright.optimize.flight import Trier
from kernelwright.optimize.guide import Guide
from kernelwright.optimize.guided import Guided
from kernelwright.optimize.loop import Loop
from kernelwright.optimize.result import Options
from kernelwright.optimize.tiers import Tiers
from kernelwright.optimize.voices import KNOWN, LOG, RECORD, budget, language, models, voices
from kernelwright.task import Task
from kernelwright.workers import Worker

Say = Callable[..., None]
Nouns = Mapping[str, Any]


class Modelled:
    """The models of one run, checked before the run spends anything else."""

    def __init__(self, task: Task, options: Options, run: Path) -> None:
        """Raises ModelError and BadCommand for what no request needs to be sent to find out."""
        assert options.guide is not None
        self._task, self._options, self._run = task, options, run
        self._guide = options.guide.checked()
        self._recipe = recipes.find(self._guide.recipe)
        self._language = language(self._guide, options.device)
        self._models = models(self._guide, task, run, options.device)
        self._budget = budget(self._guide, run)
        self._refuse_unpriced()
        self._engine: Guided | None = None

    def _refuse_unpriced(self) -> None:
        unpriced = [model.name for model in self._models if model.price(1, 1) is None]
        if self._guide.max_usd is not None and unpriced:
            raise ModelError(
                "A limit in dollars cannot be kept for a model whose price is not known",
                f"--max-usd {self._guide.max_usd:g} with {', '.join(unpriced)}",
                "a model with a known price",
                "use --max-tokens, --max-requests, --max-minutes or --max-candidates instead",
            )

    def nouns(
        self, machine: Machine | None, facts: Mapping[str, Any], start: Sequence[Candidate], worker: Worker
    ) -> dict[str, Any]:
        """What prompts and search depend on besides replies and outcomes; kept in run.json from the first moment."""
        learning.snapshot(self._run / KNOWN)
        first = {candidate.digest(): wire.to_data(candidate) for candidate in start}
        described = surroundings.describe(
            self._task, facts, self._options.device, self._language, worker,
            machine if "planner" in self._recipe.roles else None,
        )  # fmt: skip
        return {
            "machine": None if machine is None else wire.to_data(machine),
            "features": list(learning.features(self._task, facts)),
            "start": list(first.values()),
            **described,
        }

    def search(self, loop: Loop, worker: Worker, nouns: Nouns, say: Say) -> None:
        """Ask until the recipe, the budget or the time is done."""
        Recorder(self._run / RECORD).write({"session": 1, "at": time.time()})
        self._budget.begin()
        memory = Memory(self._run / RECORD)
        made = voices(
            self._guide, self._task, self._options.device, nouns, self._models, self._run, memory, paid=self._budget
        )  # fmt: skip
        say("phase", f"asking {', '.join(made)} by recipe {self._recipe.name}")
        log, device = self._run / LOG, self._options.device
        machine = wire.from_data(Machine, nouns["machine"]) if nouns.get("machine") else None
        book = FactBook(self._run / FACTS)
        trier = Tiers(loop, worker, self._task, device, machine, book, say)
        log.write_text("", encoding="utf-8")  # a resumed run settles every ask again, from its record
        with Knowledge(self._run / KNOWN) as known, log.open("a", encoding="utf-8") as file:

            def write(row: dict[str, Any]) -> None:
                file.write(json.dumps(row) + "\n")
                file.flush()

            self._engine = engine(self._options, made, trier, nouns, known, say, write)
            try:
                self._engine.search()
            finally:
                self._budget.close("the search is over")

    @property
    def fault(self) -> ModelError | None:
        """Why no model was left to ask, where not one reply ever came."""
        engine = self._engine
        if engine is None or engine.fault is None or engine.answered:
            return None
        return engine.fault

    def cut_short(self) -> str:
        """Why models gave no program, or were not asked for every candidate, as a sentence with a blank before it; ""
        where they were, and gave one."""
        tally = self._engine.tally if self._engine is not None else None
        if self._engine is None or tally is None:
            return ""
        if tally.asked and tally.malformed == tally.asked:
            fault = next(reversed(self._engine.shelf.unread.values()), ("", "", "no reason is known"))[2]
            return f" No program could be read from any of {tally.asked} replies, the last because {fault}."
        if tally.ended in ("", "candidates"):
            return ""
        why = {"time": "the time was over", "model": "no model answered"}.get(tally.ended, tally.ended.lower())
        return f" Models were asked for {tally.asked} of {self._guide.max_candidates} candidates, then {why}."

    def result(self, winner: Candidate | None) -> dict[str, Any]:
        """Costs and counts as plain data; ``usd`` is None where a price was not known, never zero.

        So is ``tokens`` where an agent command alone was asked: it does not say. Requests that the end of the time left
        behind count at their worst case."""
        used = self._budget.committed()
        data: dict[str, Any] = {
            "recipe": self._recipe.name,
            "models": [model.name for model in self._models],
            "requests": used.requests,
            "tokens": used.tokens if self._guide.llm else None,
            "usd": used.usd,
            "price": "known" if used.usd is not None else "unknown",
        }
        if self._engine is None:
            return data
        tally = self._engine.tally.to_json()
        verified = tally["died"].get("timed", {}).get("count", 0)
        rows = rows_of(self._run / LOG)
        own = next((row for row in rows if winner is not None and row["candidate"] == winner.digest()), None)
        return data | {
            "verified": verified,
            "usd_per_verified": used.usd / verified if used.usd is not None and verified else None,
            "tokens_per_verified": used.tokens / verified if verified and self._guide.llm else None,
            "winner": own and {key: own[key] for key in ("ask", "arm", "tokens", "usd", "requests")},
            "tally": tally,
        }


def engine(
    options: Options, made: Mapping[str, Any], trier: Trier, nouns: Nouns, known: Knowledge, say: Say,
    log: Callable[[dict[str, Any]], None],
) -> Guided:  # fmt: skip
    """The search of a run, live or replayed: a function of these."""
    guide: Guide | None = options.guide
    assert guide is not None
    recipe = recipes.find(guide.recipe)
    return Guided(
        recipe,
        dict(made),
        trier,
        recipe.start(guide.max_candidates, options.seed),
        knowledge=known,
        features=tuple(nouns["features"]),
        say=say,
        log=log,
        start=[wire.from_data(Candidate, data) for data in nouns["start"]],
        words=guide.words,
        profile=str(nouns.get("profile", "")),
        parallel=guide.parallel,
        most=guide.max_candidates,
    )


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a log."""
    return list(read_record(path))
