# SPDX-License-Identifier: Apache-2.0
"""A run's model-driven search again, from its record alone: the same candidates, or the first thing that differs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand, RunFolderError
from kernelwright.knowledge import Knowledge
from kernelwright.ledger import Ledger, open_ledger
from kernelwright.llm import Memory, Message, read_record
from kernelwright.optimize import folder as folders
from kernelwright.optimize.facts import FACTS, FactBook, Found
from kernelwright.optimize.guided import Guided
from kernelwright.optimize.modelled import engine, rows_of
from kernelwright.optimize.result import Options
from kernelwright.optimize.tiers import NOT_BUILT, fault_of, said_of
from kernelwright.optimize.voices import KNOWN, LOG, RECORD, absent, voices
from kernelwright.task import Task
from kernelwright.trial import Outcome, Rejected

LONGEST_LINE = 200
"""Characters shown of a line that differs."""
COMPARED = (("ask", "order of asks"), ("edit", "edit"), ("arm", "model"), ("candidate", "candidate"),
            ("ended", "verdict"))  # fmt: skip
"""Fields of a row of the log and what a difference in each is called, in the order in which they follow."""


class _Recorded:
    """Judges by what the ledger says; no device, no clock."""

    def __init__(self, ledger: Ledger, book: FactBook) -> None:
        self._ledger, self._book = ledger, book
        self._coarse = {row.candidate: row.id for row in ledger.rows() if row.level == "coarse"}

    def consider(self, candidate: Candidate, structure: str) -> Outcome | None:
        """The recorded outcome, or None where there is none."""
        number = self._coarse.get(candidate.digest())
        return None if number is None else self._ledger.trial(number).outcome

    def build_ahead(self, candidate: Candidate) -> None:
        """Nothing is built."""

    def static(self, candidate: Candidate) -> Found | None:
        """What was found then."""
        found = self._book.get("static", candidate.digest()) or {}
        return None if found == NOT_BUILT else found

    def profile(self, candidate: Candidate) -> Found:
        """What was found then."""
        return self._book.get("profile", candidate.digest()) or {}

    def sanitized(self, candidate: Candidate) -> Rejected | None:
        """What was found then."""
        return fault_of(self._book.get("sanitized", candidate.digest()) or {})

    def test_with(self, source: str) -> tuple[str, ...]:
        """What was found then; outcomes are recorded already."""
        return said_of(self._book.get("cases", wire.digest(source)) or {})

    def seconds_left(self) -> float:
        """As long as the record."""
        return math.inf


def replay_run(path: Path) -> dict[str, Any]:
    """Run the model-driven search again from the record and the ledger; compare each candidate's digest.

    ``identical`` is true when every recorded ask comes out the same; ``difference`` says what the first other one
    differs in (see ``_difference``), else None. A killed run may replay one ask more than it had settled.
    Raises NoSuchRun, BadCommand for a run without models, RunFolderError."""
    record = folders.read(path)
    try:
        task, options = wire.from_data(Task, record["task"]), wire.from_data(Options, record["options"])
    except (KeyError, ValueError, TypeError) as error:
        raise RunFolderError.of_another_version(path / "run.json", error) from error
    nouns = record.get("nouns")
    if options.guide is None or nouns is None or not (path / RECORD).exists():
        raise BadCommand("This run asked no model.", got=str(path), expected="a run with --llm or --agent")
    memory = Memory(path / RECORD)
    names = absent(options.guide, task, path)
    made = voices(options.guide, task, options.device, nouns, names, path, memory, paid=None)
    after: list[dict[str, Any]] = []
    ledger = open_ledger(path / "ledger.sqlite", writable=False)
    try:
        with Knowledge(path / KNOWN) as known:
            trier = _Recorded(ledger, FactBook(path / FACTS))
            search = engine(options, made, trier, nouns, known, lambda *_, **__: None, after.append)
            search.search()
        before = rows_of(path / LOG)
        difference = _difference(before, after, memory, _Sources(ledger, search))
    finally:
        ledger.close()
    digest = wire.digest([row["candidate"] for row in after[: len(before)]])
    verdict = "identical" if difference is None else f"DIFFERENT from ask {difference['ask']} on"
    line = f"{len(after)} asks replayed of {len(before)} recorded: {verdict}; digest {digest}"
    return {
        "run": str(path),
        "identical": difference is None,
        "text": line if difference is None else f"{line}\n{_words(difference)}",
        "recorded": len(before),
        "replayed": len(after),
        "first_difference": None if difference is None else difference["ask"],
        "difference": difference,
        "requests": sum(1 for entry in read_record(path / RECORD) if "attempt" in entry),
        "candidates": [row["candidate"] for row in after],
        "digest": digest,
    }


class _Sources:
    """Texts of candidates, of the run and of its replay."""

    def __init__(self, ledger: Ledger, search: Guided) -> None:
        self._ledger, self._search = ledger, search
        self._rows = {row.candidate: row.id for row in ledger.rows()}

    def lines(self, digest: str) -> list[str]:
        """Every line of a candidate's files, each file under its name; none for one that was never judged."""
        if digest in self._search.shelf.known:
            found = self._search.shelf.known[digest].candidate
        elif digest in self._rows:
            found = self._ledger.trial(self._rows[digest]).candidate
        else:
            return []
        return [line for name, text in found.sources for line in (name, *text.splitlines())]


def _difference(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], memory: Memory, sources: _Sources
) -> dict[str, Any] | None:
    """``ask``; ``what``: prompt, candidate, verdict, edit, model, order of asks or end; ``recorded`` and ``now``.

    Of a prompt also ``role``, ``message`` and ``line``, of a candidate ``line``. None where every row is the same."""
    for number, (one, two) in enumerate(zip_longest(before, after)):
        if one is None:
            return None  # a killed run had not settled it
        if two is None:
            return {"ask": number} | (_prompt(memory) or {"what": "end", "recorded": one["ended"], "now": "no answer"})
        for name, what in COMPARED:
            if one[name] != two[name]:
                found = {"what": what, "recorded": str(one[name]), "now": str(two[name])}
                if what == "candidate":
                    found |= _first(sources.lines(str(one[name])), sources.lines(str(two[name])))
                return {"ask": number} | found
    return None


def _prompt(memory: Memory) -> dict[str, Any] | None:
    """The first request that the record does not answer, and where it leaves the one that was made there."""
    missed = memory.unheard()
    if not missed:
        return None
    first = missed[0]
    found: dict[str, Any] = {"what": "prompt", "role": first.role, "recorded": "", "now": ""}
    if not first.recorded:
        return found | {"recorded": "no such request"}
    if first.recorded_role != first.role:
        return found | {"recorded": f"a request of {first.recorded_role}", "now": f"a request of {first.role}"}
    for said, now in zip_longest(first.recorded, first.messages, fillvalue=Message(role="", text="")):
        if said != now:
            place = _first(said.text.splitlines(), now.text.splitlines())
            return found | {"message": said.role or now.role} | place
    return found | {"recorded": "the same words", "now": "with another length limit, temperature or seed"}


def _first(before: Sequence[str], after: Sequence[str]) -> dict[str, Any]:
    """``line`` (from 1), ``recorded`` and ``now``: the first line in which two texts differ; nothing where none does
    or one of them is not known."""
    if not before or not after:
        return {}
    for number, (one, two) in enumerate(zip_longest(before, after), 1):
        if one != two:
            shown = [("(the end)" if line is None else line)[:LONGEST_LINE] for line in (one, two)]
            return {"line": number, "recorded": shown[0], "now": shown[1]}
    return {}


def _words(found: Mapping[str, Any]) -> str:
    """A difference in a sentence."""
    where = f" at line {found['line']}" if "line" in found else ""
    if found["what"] == "prompt":
        message = f" of its {found['message']} message" if "message" in found else ""
        what = f"the request of {found['role']} is another{where}{message}"
    else:
        what = f"another {found['what']}{where}"
    return f"ask {found['ask']}: {what}\n  recorded: {found['recorded']}\n  now:      {found['now']}"
