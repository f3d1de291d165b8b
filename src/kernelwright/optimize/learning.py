# SPDX-License-Identifier: Apache-2.0
"""What runs leave for later ones and for others: the knowledge store of this machine's user, and training data."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelwright import recipes, settings, wire
from kernelwright.errors import BadCommand
from kernelwright.knowledge import Effect, Knowledge, task_features
from kernelwright.ledger import Ledger, open_ledger
from kernelwright.machine import Machine
from kernelwright.optimize import folder as folders
from kernelwright.optimize import surroundings, verbs, voices
from kernelwright.optimize.guide import Guide
from kernelwright.optimize.services import Say, Services
from kernelwright.task import Task
from kernelwright.training import Curation, Environment, Reward, Rubric, export_data

SEED = Path(__file__).parent.parent / "knowledge_seed.jsonl"
"""Effects measured while this project was made, with the machines they were measured on."""
STORE = "knowledge.sqlite"


def store(path: Path | None = None) -> Knowledge:
    """The user's store (or the one at ``path``), with the shipped effects in it. Raises LedgerCorrupt."""
    known = Knowledge(path or settings.read().home / STORE)
    if SEED.exists():
        known.load(SEED)
    return known


def snapshot(path: Path) -> None:
    """Copy the user's store to ``path`` unless there is a file: what a run knew must stay what it knew."""
    if not path.exists():
        with store() as known:
            known.copy_to(path)


MAKERS = ("get_inputs", "get_init_inputs")


def features(task: Task, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Structure of a task: its inputs' sizes, ranks and dtypes, and the names of what the reference calls."""
    inputs = [
        (str(item.get("name", "")), tuple(item["shape"]), str(item["dtype"]))
        for item in facts.get("inputs", ())
        if "shape" in item
    ]
    return task_features(inputs, operators(task.reference))


def operators(source: str) -> list[str]:
    """Names called in the classes and functions of a source text (``softmax``, ``Linear`` ...), and ``matmul`` for
    ``@``; how inputs are made does not count."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    found: set[str] = set()
    kinds = (ast.ClassDef, ast.FunctionDef)
    for owner in (node for node in tree.body if isinstance(node, kinds) and node.name not in MAKERS):
        for node in ast.walk(owner):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                found.add(node.func.attr.lower())
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                found.add("matmul")
    return sorted(found - {"__init__", "super"})


def learn(ledger: Ledger, task: Task, machine: Machine, facts: Mapping[str, Any]) -> int:
    """Add what a ledger measured to the user's store; how many effects were new. Raises LedgerCorrupt."""
    with store() as known:
        return known.learn(ledger, f"{machine.name} {machine.fingerprint}", features(task, facts))


def learn_run(run: Path) -> int:
    """``learn`` from a run folder. Raises NoSuchRun; BadCommand for a run that judged nothing."""
    record = folders.read(run)
    if not record.get("machine") or not (run / folders.LEDGER).exists():
        raise BadCommand("This run judged nothing.", got=str(run), expected="a run with trials")
    ledger = open_ledger(run / folders.LEDGER, writable=False)
    try:
        machine = wire.from_data(Machine, record["machine"])
        return learn(ledger, wire.from_data(Task, record["task"]), machine, record.get("facts") or {})
    finally:
        ledger.close()


def list_knowledge(words: str = "", most: int = 50) -> list[dict[str, Any]]:
    """Effects as plain data with their line of text; those nearest to ``words`` first where words are given."""
    with store() as known:
        found: list[Effect] = known.retrieve((), words=words, most=most) if words else list(known)[:most]
    return [{**wire.to_data(effect), "line": effect.line()} for effect in found]


def export_knowledge(path: Path) -> int:
    """Write the user's store as JSON Lines; how many effects. Raises BadCommand where that cannot be written."""
    try:
        with store() as known:
            return known.export(path)
    except OSError as error:
        raise BadCommand("The export cannot be written.", got=str(error), expected="a writable file") from error


def import_knowledge(path: Path) -> int:
    """Merge a file of effects into the user's store. Raises BadCommand naming the line that is none."""
    try:
        with store() as known:
            return known.load(path)
    except (OSError, UnicodeDecodeError) as error:
        raise BadCommand("There is nothing to import.", got=str(error), expected="a JSON Lines file") from error


def list_recipes() -> list[dict[str, Any]]:
    """Every recipe as plain data, in the order of the file."""
    rows = recipes.load().values()
    return [{key: value for key, value in _plain(row).items() if value not in ("", 0, ())} for row in rows]


def export_training(runs: Sequence[Path], out: Path, *, level: str = "precise") -> dict[str, int]:
    """Write supervised and preference records of runs with their data card; how many of each. Raises NoSuchRun."""
    for run in runs:
        folders.read(run)
    return export_data(runs, out, Curation(level=level))


def training_environment(
    task: Task, device: str, services: Services, *, turns: int, level: str, language: str, reward: Reward | None,
    rubric: Rubric | None, say: Say,
) -> Environment:  # fmt: skip
    """An environment on an admitted task, whose messages show what prompts of a run show. Raises NotAdmitted.

    ``say`` hears for as long as the services live: a step may be the first to wait for the device."""
    services.hear(say)
    machine = services.machine(say)
    verbs.admitted(services, task, device)
    guide = Guide(language=language)
    written = voices.language(guide, device)
    nouns = surroundings.describe(task, services.describe(task), device, written, services.worker, None)
    return Environment(
        task, services.worker, device, turns=turns, level=level, reward=reward, rubric=rubric, language=written,
        machine=machine, about=surroundings.about(nouns),
    )  # fmt: skip


def _plain(row: recipes.Recipe) -> dict[str, Any]:
    data: dict[str, Any] = wire.to_data(row)
    data.pop("is")
    return data | {"options": dict(row.options)}
