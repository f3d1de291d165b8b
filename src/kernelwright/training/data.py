# SPDX-License-Identifier: Apache-2.0
"""Runs to training data: (task, prompt, reasoning, candidate, proof) records and preference pairs, with a data card.

Curation follows ConCuR's finding that short reasoning that led to a fast kernel teaches best: a record is kept for
its proof, its speed and its conciseness, in that order. Nothing that was not judged is exported.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright import wire
from kernelwright.errors import NoSuchRun, RunFolderError
from kernelwright.ledger import Ledger, open_ledger
from kernelwright.llm import read_record
from kernelwright.proposers.agent import Malformed, candidate_from, prose
from kernelwright.search.population import normalise
from kernelwright.task import Task
from kernelwright.trial import Outcome, Rejected, Timed, Trial

SUPERVISED, PREFERENCE, CARD = "supervised.jsonl", "preference.jsonl", "DATA_CARD.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curation:
    """What is kept."""

    level: str = "precise"
    """Least level of proof: ``coarse`` or ``precise``."""
    least_speedup: float = 1.0
    """Lower end of the interval against the best baseline must exceed this."""
    longest_reasoning: int = 8000
    """Characters outside the code of a reply; longer ones are left out."""
    pairs_per_task: int = 256
    """Preference pairs kept per task and machine."""
    per_task: int = 64
    """Records kept per task: fastest first, shorter reasoning first among equals (within 5 %)."""


@dataclass(frozen=True, slots=True)
class _Told:
    """One reply that became a judged candidate."""

    task: Task
    messages: list[dict[str, str]]
    """The request, in the chat form: ``role`` and ``content``."""
    plain: list[dict[str, str]]
    """The run's first request for a program from the task alone, or nothing where there was none."""
    reply: str
    thoughts: str
    """Reasoning that came beside the reply, in a field of its own."""
    trial: Trial
    """The most precise one."""
    coarse: Trial
    """The first coarse one, or ``trial`` where there is none: what other candidates of the run can be compared with."""
    run: str

    @property
    def digest(self) -> str:
        """Of the candidate."""
        return self.trial.candidate.digest()

    @property
    def reasoning(self) -> str:
        """What was thought beside the reply and what the reply says outside its code."""
        return "\n\n".join(text for text in (self.thoughts.strip(), prose(self.reply).strip()) if text)

    @property
    def shape(self) -> str:
        """Normalised code: equal for near-duplicates."""
        files = self.trial.candidate.sources
        return wire.digest(*(" ".join(normalise(text, python=name.endswith(".py"))) for name, text in files))


def export_data(runs: Sequence[Path], out: Path, curation: Curation | None = None) -> dict[str, int]:
    """Write ``supervised.jsonl``, ``preference.jsonl`` and ``DATA_CARD.md`` to ``out``; return how many of each.

    Raises ``NoSuchRun`` for a folder that is no run."""
    rules = curation or Curation()
    told = [item for run in runs for item in _told(run)]
    kept = _curate(told, rules)
    pairs = list(_pairs(told, rules.pairs_per_task))
    out.mkdir(parents=True, exist_ok=True)
    _write(out / SUPERVISED, [_record(item) for item in kept])
    _write(out / PREFERENCE, pairs)
    counts = {"runs": len(runs), "judged_replies": len(told), "supervised": len(kept), "preference": len(pairs)}
    (out / CARD).write_text(_card(counts, kept, rules), encoding="utf-8")
    return counts


def _told(run: Path) -> Iterator[_Told]:
    try:
        record = json.loads((run / "run.json").read_text(encoding="utf-8"))
        task = wire.from_data(Task, record["task"])
    except OSError as error:
        hint = "kernelwright runs lists them"
        raise NoSuchRun("There is no run to export", str(run), "a run folder", hint) from error
    except (ValueError, KeyError) as error:
        raise RunFolderError.of_another_version(run / "run.json", error) from error
    ledger = open_ledger(run / "ledger.sqlite")
    try:
        plain: list[dict[str, str]] = []
        for entry in read_record(run / "llm.jsonl"):
            if entry.get("reply") is None or not str(entry.get("role", "")).startswith("coder"):
                continue
            messages = [{"role": said["role"], "content": said["text"]} for said in entry["messages"]]
            plain = plain or (messages if entry["role"] == "coder.new" else [])
            trials = _judged(ledger, task, entry["reply"]["text"])
            if trials:
                coarse = next((trial for trial in trials if trial.level == "coarse"), trials[-1])
                text, thoughts = entry["reply"]["text"], str(entry["reply"].get("thoughts", ""))
                yield _Told(task, messages, plain, text, thoughts, trials[-1], coarse, str(run))
    finally:
        ledger.close()


def _judged(ledger: Ledger, task: Task, reply: str) -> list[Trial]:
    """The trials of the candidate in a reply that is whole and in the form asked for, the most precise one last."""
    try:
        candidate = candidate_from(reply, task=task.digest(), entry="ModelNew", proposer="")
    except Malformed:
        return []
    if not candidate.entry.endswith("::ModelNew"):
        return []
    digest = candidate.digest()
    found = [row for row in ledger.rows() if row.candidate == digest]
    found.sort(key=lambda row: (row.level == "precise", row.id))
    return [ledger.trial(row.id) for row in found]


def _curate(told: list[_Told], rules: Curation) -> list[_Told]:
    good: dict[tuple[str, str], _Told] = {}
    for item in told:
        outcome = item.trial.outcome
        enough = item.trial.level == "precise" or rules.level == "coarse"
        if not isinstance(outcome, Timed) or not enough or outcome.speedup_low <= rules.least_speedup:
            continue
        if len(item.reasoning) > rules.longest_reasoning:
            continue
        key = (item.task.digest(), item.shape)
        if key not in good or len(item.reasoning) < len(good[key].reasoning):
            good[key] = item
    tasks: dict[str, list[_Told]] = {}
    for item in good.values():
        tasks.setdefault(item.task.digest(), []).append(item)
    kept = []
    for rows in tasks.values():
        rows.sort(key=lambda item: (-round(_speed(item) / 0.05), len(item.reasoning)))
        kept += rows[: rules.per_task]
    return kept


def _said(reply: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": reply}]


def _pairs(told: list[_Told], per_task: int) -> Iterator[dict[str, Any]]:
    """Better and worse whole programs for one task on one machine: disjoint intervals, or proved against rejected.

    ``prompt_of`` says whether both answered this very prompt, or the prompt is the task's and they came otherwise."""
    groups: dict[str, list[_Told]] = {}
    for item in told:
        groups.setdefault(f"{item.task.digest()} {item.trial.machine}", []).append(item)
    for rows in groups.values():
        unique = list({(item.digest, item.run, wire.digest(item.messages)): item for item in rows}.values())
        plain = next((item.plain for item in rows if item.plain), [])
        found = [(one, two) for one in unique for two in unique if _beats(one, two)]
        once = {(one.digest, two.digest, one.messages == two.messages): (one, two) for one, two in found}
        pairs = list(once.values())
        # Same prompt first; then rejected ones, whose margin is None, and the widest margins.
        pairs.sort(key=lambda pair: (pair[0].messages != pair[1].messages, -(_margin(*pair) or math.inf)))
        for better, worse in pairs[:per_task]:
            equal = better.messages == worse.messages
            if equal or plain:
                yield {
                    "prompt": better.messages if equal else plain,
                    "prompt_of": "both" if equal else "task",
                    "chosen": _said(better.reply),
                    "rejected": _said(worse.reply),
                    "margin": _margin(better, worse),
                }


def _compared(one: _Told, two: _Told) -> tuple[Outcome, Outcome]:
    """Their outcomes at one level: times of different levels were not taken alike."""
    if one.trial.level == two.trial.level or isinstance(two.trial.outcome, Rejected):
        return one.trial.outcome, two.trial.outcome
    return one.coarse.outcome, two.coarse.outcome


def _beats(better: _Told, worse: _Told) -> bool:
    """Whether one is proved and the other rejected, or both were timed in one run with intervals that do not meet."""
    one, two = _compared(better, worse)
    if not isinstance(one, Timed) or better.digest == worse.digest:
        return False
    if isinstance(two, Rejected):
        return True
    return better.run == worse.run and one.timing.high_us < two.timing.low_us


def _margin(better: _Told, worse: _Told) -> float | None:
    """Ratio of medians, or None against a rejected one."""
    one, two = _compared(better, worse)
    return two.timing.median_us / one.timing.median_us if isinstance(one, Timed) and isinstance(two, Timed) else None


def _speed(item: _Told) -> float:
    return item.trial.outcome.speedup if isinstance(item.trial.outcome, Timed) else 0.0


def _record(item: _Told) -> dict[str, Any]:
    return {
        "task": {"name": item.task.name, "digest": item.task.digest(), "reference": item.task.reference},
        "prompt": item.messages,
        "reasoning": item.reasoning,
        "completion": _said(item.reply),
        "candidate": wire.to_data(item.trial.candidate),
        "proof": wire.to_data(item.trial.outcome),
        "machine": item.trial.machine,
        "level": item.trial.level,
    }


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in rows), encoding="utf-8")


def _card(counts: dict[str, int], kept: list[_Told], rules: Curation) -> str:
    tasks = sorted({item.task.name for item in kept})
    machines = sorted({item.trial.machine for item in kept})
    lines = [
        "# Data card",
        "",
        f"- Source: {counts['runs']} run(s), {counts['judged_replies']} judged replies.",
        f"- Supervised records: {counts['supervised']}; preference pairs: {counts['preference']}.",
        f"- Kept: proof level {rules.level} or better, speedup interval above {rules.least_speedup:g}x, at most "
        f"{rules.longest_reasoning} characters of reasoning, at most {rules.per_task} per task.",
        "- Prompts and completions are lists of {role, content}. A preference pair whose prompt_of is `task` joins two "
        "programs for one task that answered other prompts than the one given.",
        "- Left out: replies that are edits or fragments, or whose class has another name than was asked for.",
        "- A speed proved coarsely is against eager PyTorch alone; one proved precisely against the best baseline.",
        "- Deduplicated by code without comments, spaces and numbers; the shortest reasoning of equals is kept.",
        f"- Tasks: {', '.join(tasks) or 'none'}.",
        f"- Machine fingerprints: {', '.join(machines) or 'none'}. Speeds hold on these only.",
        "- Each record carries the judge's proof; a record without one does not exist.",
        "- Licence and provenance of prompts and replies follow the models and tasks used; check them before release.",
    ]
    return "\n".join(lines) + "\n"
