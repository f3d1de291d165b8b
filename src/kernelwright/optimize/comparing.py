# SPDX-License-Identifier: Apache-2.0
"""Every recipe on every task at one budget: a run folder for each, and the tables they add up to.

compare.json              what all runs have in common; a second call with another budget is refused
knowledge.sqlite          the measured effects known when the comparison began: every run is shown these alone
TASK/RECIPE-SEED/         an ordinary run, finished, or resumed by the next call
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright import recipes, wire
from kernelwright.errors import BadCommand, KernelwrightError, ModelError, NoSuchRun, TaskError
from kernelwright.llm import read_record
from kernelwright.optimize import folder as folders
from kernelwright.optimize import learning
from kernelwright.optimize.guide import Guide
from kernelwright.optimize.result import Event, Listener, Options
from kernelwright.optimize.run import optimize_task, resume_run
from kernelwright.optimize.services import Say, Services, silent
from kernelwright.optimize.voices import KNOWN, RECORD, language
from kernelwright.task import Task

PLAN = "compare.json"
DONE = ("faster", "not-faster")
SECONDS_A_CANDIDATE = 60.0
"""Time a run may take for each candidate, unless a budget is given: a ceiling that candidates should reach first."""
RESAMPLES = 2000
LEAST_CELLS = 3
"""Runs of a recipe from which on an interval of its mean is given."""
EQUAL = ("llm", "base_url", "agent", "language", "words", "price", "max_usd", "max_tokens", "max_requests",
         "max_minutes", "max_candidates", "parallel")  # fmt: skip
"""Fields of a guide that every run of a comparison shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run: a recipe on a task with a seed."""

    task: Task
    recipe: str
    seed: int
    path: Path

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.task.name} {self.recipe}" + (f" seed {self.seed}" if self.seed else "")


def compare_recipes(
    tasks: Sequence[Task], guide: Guide, options: Options, out: Path, *, names: Sequence[str] = (), seeds: int = 1,
    say: Say = silent, services: Services | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run what is not finished yet, and return ``budget``, ``rows`` (one a run) and ``recipes`` (one each, best first).

    ``options`` is what all runs share besides the guide. An interrupt ends it with the rows there are
    (``interrupted``). Raises BadCommand for another budget than the folder's; ModelError when no model answers."""
    guide.checked()
    if seeds < 1:
        raise BadCommand("There is nothing to compare.", got=f"seeds={seeds}", expected="1 or more")
    chosen = [recipes.find(name).name for name in names] or list(recipes.load())
    _agree(out, guide, options)
    cells = _cells(tasks, chosen, seeds, out)
    learning.snapshot(out / KNOWN)
    rows: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    interrupted = False
    used = services or Services(options.device)
    try:
        for number, cell in enumerate(cells, 1):
            if not interrupted:
                interrupted = _run(
                    cell, guide, options, used, refused, _hears(say, f"{number}/{len(cells)} {cell.name}")
                )
            rows.append(_row(cell, guide, options, refused))
            say(f"{number}/{len(cells)} {cell.name}: {_said(rows[-1])}")
    finally:
        if services is None:
            used.close()
    rows.sort(key=lambda row: (row["task"], chosen.index(row["recipe"]), row["seed"]))
    return {
        "out": str(out),
        "interrupted": interrupted,
        "budget": _common(guide, options),
        "rows": rows,
        "recipes": sorted((_sum(name, rows) for name in chosen), key=_rank),
    }


def _cells(tasks: Sequence[Task], names: Sequence[str], seeds: int, out: Path) -> list[Cell]:
    """Seed by seed and task by task; within a task in an order of its own, so that no recipe is always first."""
    found, folders_of = [], {}
    for task in tasks:
        stem = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in task.name)
        folders_of[task.digest()] = f"{stem}-{task.digest()[:6]}"
    for seed in range(seeds):
        for task in tasks:
            order = random.Random(f"{task.digest()} {seed}").sample(list(names), len(names))
            place = out / folders_of[task.digest()]
            found += [Cell(task=task, recipe=name, seed=seed, path=place / f"{name}-{seed}") for name in order]
    return found


def _common(guide: Guide, options: Options) -> dict[str, Any]:
    """What all runs of a comparison share, as plain data."""
    data = {name: wire.to_data(getattr(guide, name)) for name in EQUAL}
    more = {"device": options.device, "proposers": list(options.proposers), "start": list(options.start)}
    return json.loads(json.dumps(data | more | {"budget_seconds": options.budget_seconds}))


def _agree(out: Path, guide: Guide, options: Options) -> None:
    """Write the plan, or refuse one that differs from what the folder was begun with."""
    plan = _common(guide, options)
    with folders.unwritable(out):
        out.mkdir(parents=True, exist_ok=True)
        place = out / PLAN
        if not place.exists():
            place.write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
            return
        try:
            before = json.loads(place.read_text(encoding="utf-8"))
        except ValueError as error:
            raise BadCommand("The comparison cannot be read.", got=f"{place}: {error}", expected="its JSON") from error
    odd = [f"{name} {before.get(name)} then, {plan[name]} now" for name in plan if before.get(name) != plan[name]]
    if odd:
        raise BadCommand(
            "Runs at different budgets are no comparison.", got="; ".join(odd), expected="the options it began with",
            what_next="choose another --out, or give the same options (tasks, recipes and seeds may be added)",
        )  # fmt: skip


def _unfit(cell: Cell, guide: Guide, device: str) -> str:
    """Why a recipe cannot be run on this device; "" where it can."""
    try:
        language(dataclasses.replace(guide, recipe=cell.recipe), device)
    except BadCommand as error:
        return str(error)
    return ""


def _hears(say: Say, name: str) -> Listener:
    """What tells of a run that it goes on: its phases and its proofs."""

    def listen(event: Event) -> None:
        if event.kind in ("phase", "best") or event.data.get("waiting"):
            say(f"{name}: {event.text}")

    return listen


def _run(
    cell: Cell, guide: Guide, options: Options, services: Services, refused: dict[str, str], listen: Listener
) -> bool:  # fmt: skip
    """Bring one run to its end; whether the user interrupted it."""
    if cell.task.digest() in refused or _unfit(cell, guide, options.device) or _status(cell) in DONE:
        return False
    own = dataclasses.replace(options, seed=cell.seed, guide=dataclasses.replace(guide, recipe=cell.recipe))
    try:
        if _status(cell):
            result = resume_run(cell.path, budget_seconds=options.budget_seconds, services=services, listen=listen)
        else:
            cell.path.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(cell.path.parent.parent / KNOWN, cell.path / KNOWN)
            result = optimize_task(cell.task, own, out=cell.path, services=services, listen=listen)
    except TaskError as error:
        refused[cell.task.digest()] = str(error)
        return False
    except ModelError as error:
        if not any(entry.get("reply") for entry in read_record(cell.path / RECORD)):
            raise ModelError(error.what, error.got, error.expected, "mend that and give the same command") from error
        return False
    return result.status == "interrupted"


def _status(cell: Cell) -> str:
    """What the run's record says; "" where there is none."""
    try:
        return str(folders.read(cell.path).get("status", "running"))
    except NoSuchRun:
        return ""


def _row(cell: Cell, guide: Guide, options: Options, refused: Mapping[str, str]) -> dict[str, Any]:
    """One run as plain data; numbers are None where there is nothing to say."""
    row: dict[str, Any] = {"task": cell.task.name, "recipe": cell.recipe, "seed": cell.seed, "run": str(cell.path)}
    blank = dict.fromkeys(
        ("speedup", "speedup_low", "speedup_high", "against", "candidates", "verified", "requests", "tokens", "usd",
         "seconds", "ended")
    )  # fmt: skip
    row |= blank | {"died": {}, "sessions": 0}
    unfit = _unfit(cell, guide, options.device)
    if unfit or cell.task.digest() in refused:
        return row | {"status": "left out", "message": unfit or refused[cell.task.digest()]}
    try:
        record = folders.read(cell.path)
    except KernelwrightError:
        return row | {"status": "not run", "message": ""}
    result = record.get("result") or {}
    models, winner = result.get("models") or {}, result.get("winner") or {}
    tally = models.get("tally") or {}
    row |= {name: winner.get(name) for name in ("speedup", "speedup_low", "speedup_high")}
    row |= {name: models.get(name) for name in ("verified", "requests", "tokens", "usd")}
    return row | {
        "status": record.get("status", "running"),
        "message": record.get("message", ""),
        "against": result.get("best_baseline"),
        "candidates": tally.get("asked"),
        "ended": tally.get("ended"),
        "died": {place: cost["count"] for place, cost in tally.get("died", {}).items()},
        "seconds": result.get("seconds"),
        "sessions": sum("session" in entry for entry in read_record(cell.path / RECORD)),
    }


def _sum(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A recipe over all its finished runs. ``mean``: geometric, 1 where nothing was proved faster."""
    mine = [row for row in rows if row["recipe"] == name and row["status"] in DONE]
    logs = [math.log(row["speedup"] or 1.0) for row in mine]
    died: dict[str, int] = {}
    for row in mine:
        for place, count in row["died"].items():
            died[place] = died.get(place, 0) + count
    low, high = _interval(logs)
    return {
        "recipe": name,
        "runs": len(mine),
        "faster": sum(row["status"] == "faster" for row in mine),
        "mean": math.exp(sum(logs) / len(logs)) if logs else None,
        "mean_low": low,
        "mean_high": high,
        **{field: _total(mine, field) for field in ("candidates", "verified", "requests", "tokens", "usd", "seconds")},
        "died": died,
        "short": sum(row["ended"] == "time" for row in mine),
    }


def _rank(one: Mapping[str, Any]) -> tuple[float, str]:
    return -(one["mean"] or 0.0), one["recipe"]


def _total(rows: Sequence[Mapping[str, Any]], field: str) -> float | None:
    """The sum; None where there are none or one of them is not known: never a part of it as if it were all."""
    values = [row[field] for row in rows]
    return None if not values or any(value is None for value in values) else sum(values)


def _interval(logs: Sequence[float]) -> tuple[float | None, float | None]:
    """95 % bootstrap interval of the geometric mean over runs: how much it hangs on which tasks were chosen."""
    if len(logs) < LEAST_CELLS:
        return None, None
    dice = random.Random(0)
    means = sorted(sum(dice.choices(logs, k=len(logs))) / len(logs) for _ in range(RESAMPLES))
    return math.exp(means[int(0.025 * RESAMPLES)]), math.exp(means[int(0.975 * RESAMPLES)])


def _said(row: Mapping[str, Any]) -> str:
    """A run's end in a line."""
    if row["status"] == "faster":
        return (
            f"{row['speedup']:.2f}x ({row['speedup_low']:.2f} to {row['speedup_high']:.2f}), {row['candidates']} asked"
        )
    return f"{row['status']}. {row['message'][:160]}"
