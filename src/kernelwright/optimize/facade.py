# SPDX-License-Identifier: Apache-2.0
"""The verbs of the facade: what a person calls, with files, live objects and text where nouns are meant."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelwright import settings
from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand
from kernelwright.load import load_candidate, load_task
from kernelwright.machine import Machine
from kernelwright.optimize import comparing, learning, verbs
from kernelwright.optimize.guide import MINUTES, Guide
from kernelwright.optimize.replaying import replay_run
from kernelwright.optimize.result import Listener, Options, Result
from kernelwright.optimize.run import optimize_task, resume_run
from kernelwright.optimize.services import Say, Services, caches, silent
from kernelwright.report.machine import page
from kernelwright.task import Task
from kernelwright.training import Environment, Reward, Rubric
from kernelwright.trial import Trial


def optimize(
    target: object,
    example_inputs: Sequence[object] | Mapping[str, object] | None = None,
    *,
    device: object = None,
    budget: float | str | None = None,
    out: str | Path | None = None,
    start: str | Path | Sequence[str | Path] = (),
    bits_lost: float | None = None,
    seed: int | None = None,
    proposers: str | Sequence[str] | None = None,
    guide: Guide | None = None,
    grid: float | None = None,
    init_args: Sequence[object] | None = None,
    services: Services | None = None,
    listen: Listener | None = None,
) -> Result:
    """Make ``target`` faster and prove it: a task file or folder, a Task, an ``nn.Module`` or a function.

    A module or function needs ``example_inputs``, the arguments of one call: by position, a dict of keywords, or a
    pair of both; ``init_args`` are the module's constructor arguments where they cannot be read off it. ``device`` is
    text or a torch.device, ``budget`` seconds or text such as "2m".
    ``guide`` names models that write candidates too, after the deterministic proposers (``proposers=["none"]``:
    without them); the default budget is then longer by the minutes it allows. ``bits_lost`` loosens (or tightens)
    the precision contract, and the report says so. ``grid`` is kg CO2e per kWh, for the cost.
    ``listen`` hears each Event. Returns a Result, also when
    nothing honest is faster. Raises KernelwrightError's kinds.
    """
    known = settings.read()
    place = _device(device)
    seconds = None if budget is None else settings.seconds(budget)
    bits = None if bits_lost is None else settings.bits(bits_lost)
    _checked(guide)
    task = _task(target, place, example_inputs, init_args)
    if bits is not None:
        task = dataclasses.replace(task, contract=dataclasses.replace(task.contract, bits_lost=bits))
    options = Options(
        device=place,
        budget_seconds=known.budget_seconds + _for_models(guide) if seconds is None else seconds,
        seed=known.seed if seed is None else settings.seed(seed),
        proposers=known.proposers if proposers is None else _names(proposers),
        start=tuple(str(Path(path).resolve()) for path in settings.several(start)),
        guide=guide,
        grid=known.grid if grid is None else settings.grid(grid),
    )
    folder = Path(out) if out is not None else None
    return optimize_task(task, options, out=folder, services=services, listen=listen)


def resume(
    run: str | Path,
    *,
    budget: float | str | None = None,
    limits: Mapping[str, float | int] | None = None,
    services: Services | None = None,
    listen: Listener | None = None,
) -> Result:
    """Continue a run that was killed, interrupted or finished; what it knows already costs nothing.

    ``limits`` replaces limits of its guide: ``max_usd``, ``max_tokens``, ``max_requests``, ``max_minutes``,
    ``max_candidates``."""
    seconds = None if budget is None else settings.seconds(budget)
    return resume_run(Path(run), budget_seconds=seconds, limits=limits, services=services, listen=listen)


def judge(
    candidate: str | Path | Candidate,
    task: str | Path | Task,
    *,
    device: object = None,
    level: str = "precise",
    sanitize: bool = False,
    also: Sequence[str] = (),
    services: Services | None = None,
) -> Trial:
    """Judge one candidate as a finalist is judged: every case, fresh processes, every baseline.

    ``sanitize``: compiled code is then looked at for memory it must not touch and for threads that race.
    ``also``: measured besides, of the candidate and of every baseline, in ``outcome.profile``: ``server`` (latency of
    single calls after random idle gaps), ``cold`` (from nothing to the first result), ``memory`` (peak of a call).
    """
    place = _device(device)
    known = _task(task, place)
    given = candidate if isinstance(candidate, Candidate) else load_candidate(candidate, known)
    return verbs.judge_candidate(known, given, place, level=level, sanitize=sanitize, also=also, services=services)


def admit(task: str | Path | Task, *, device: object = None, services: Services | None = None) -> dict[str, Any]:
    """Which known-wrong programs the judge rejects on this task, and where. Raises NotAdmitted when one passes."""
    place = _device(device)
    return verbs.admit_task(_task(task, place), place, services=services)


def measure_machine(
    device: object = None,
    *,
    html: str | Path | None = None,
    say: Say = silent,
    services: Services | None = None,
) -> Machine:
    """Facts of a device; measured once, then read from the cache. ``html``: also drawn into this file.

    ``say`` hears what is being measured."""
    if html is not None:
        _write(Path(html), "")  # before a minute of measuring, not after it
    found = verbs.measure_machine(_device(device), say=say, services=services)
    if html is not None:
        _write(Path(html), page(found))
    return found


def _write(path: Path, text: str) -> None:
    try:
        with path.open("a" if not text else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadCommand(
            f"{path} cannot be written.", got=str(error), expected="a file in a folder that exists"
        ) from error


def measure_limits(
    task: str | Path | Task,
    *,
    device: object = None,
    grid: float | None = None,
    say: Say = silent,
    services: Services | None = None,
) -> dict[str, Any]:
    """Speed-of-light bounds of a task: bytes and operations that cannot be avoided, the time and energy they take."""
    place = _device(device)
    return verbs.measure_limits(_task(task, place), place, grid=_grid(grid), say=say, services=services)


def profile(
    candidate: str | Path | Candidate,
    task: str | Path | Task,
    *,
    parent: str | Path | Candidate | None = None,
    device: object = None,
    grid: float | None = None,
    say: Say = silent,
    services: Services | None = None,
) -> dict[str, Any]:
    """What limits one candidate: compiled, run-time and counted facts, and the page they support (``text``).

    ``parent``: the program it was made from; the page then also says what changed since."""
    place = _device(device)
    known = _task(task, place)
    given = candidate if isinstance(candidate, Candidate) else load_candidate(candidate, known)
    before = load_candidate(parent, known) if isinstance(parent, str | Path) else parent
    return verbs.profile_candidate(known, given, place, parent=before, grid=_grid(grid), say=say, services=services)


def _grid(given: float | None) -> float:
    """kg CO2e per kWh: as given, else as the environment says."""
    return settings.read().grid if given is None else settings.grid(given)


def runs(parent: str | Path | None = None) -> list[dict[str, Any]]:
    """Every run below ``parent`` (default: the runs folder), newest first."""
    return verbs.list_runs(Path(parent) if parent is not None else None)


def report(run: str | Path) -> Path:
    """Write a run's report.html again from its ledger and return its path."""
    return verbs.write_report(Path(run))


def replay(run: str | Path) -> dict[str, Any]:
    """Repeat a run's model-driven search from its record, without model and device: ``identical``, or ``difference``
    (the first request, candidate or verdict that is another, with the line) and ``text``, which says it in words."""
    return replay_run(Path(run))


def compare(
    targets: Sequence[object],
    guide: Guide,
    *,
    out: str | Path,
    recipes: Sequence[str] = (),
    seeds: int = 1,
    device: object = None,
    budget: float | str | None = None,
    proposers: Sequence[str] = ("none",),
    say: Say = silent,
    services: Services | None = None,
) -> dict[str, Any]:
    """Every recipe (or ``recipes``) on every task at the limits of ``guide``, whose own recipe is not looked at.

    ``out`` keeps a run folder for each; called again with the same limits it finishes what was not finished, and may
    name further tasks, recipes and ``seeds``. ``budget`` is the wall time a run may take, by default a minute for each
    candidate; runs that it ended are marked. By default no deterministic proposer takes part, so that what is
    compared is the recipes' own. Returns ``rows`` (one a run: speedup with its interval, candidates, cost, where they
    ended) and ``recipes`` (one each, best first). Raises BadCommand for other limits than ``out`` was begun with."""
    place = _device(device)
    seconds = None if budget is None else settings.seconds(budget)
    options = Options(
        device=place,
        budget_seconds=float(seconds or comparing.SECONDS_A_CANDIDATE * guide.max_candidates),
        proposers=tuple(proposers),
    )
    tasks = [_task(target, place) for target in targets]
    return comparing.compare_recipes(
        tasks, guide, options, Path(out), names=recipes, seeds=seeds, say=say, services=services
    )


def list_recipes() -> list[dict[str, Any]]:
    """Published methods as rows of choices, each with where it departs from its paper."""
    return learning.list_recipes()


def list_knowledge(words: str = "", most: int = 50) -> list[dict[str, Any]]:
    """Measured effects of edits that later searches are shown; nearest to ``words`` first."""
    return learning.list_knowledge(words, most)


def export_knowledge(path: str | Path) -> int:
    """Write every measured effect as JSON Lines; how many."""
    return learning.export_knowledge(Path(path))


def import_knowledge(path: str | Path) -> int:
    """Merge an export into the store; how many effects it held."""
    return learning.import_knowledge(Path(path))


def learn(run: str | Path) -> int:
    """Add what a run measured to the store; how many trials were new. Runs do this themselves when they end."""
    return learning.learn_run(Path(run))


def export_data(runs: str | Path | Sequence[str | Path], out: str | Path, *, level: str = "precise") -> dict[str, int]:
    """Proved replies of runs as supervised and preference records with a data card; how many of each."""
    return learning.export_training([Path(run) for run in settings.several(runs)], Path(out), level=level)


def environment(
    target: object,
    services: Services,
    *,
    turns: int = 4,
    level: str = "precise",
    language: str = "",
    reward: Reward | None = None,
    rubric: Rubric | None = None,
) -> Environment:
    """A task as a reinforcement-learning environment: ``reset``, then ``step(reply)``, paid by the judge's verdict.

    ``with kernelwright.Services("cpu") as services`` gives it its judge and closes that in the end. ``turns`` replies
    make an episode; ``rubric`` adds to the rule's reward, with the weight in ``reward``. Raises NotAdmitted."""
    task = _task(target, services.device)
    return learning.training_environment(
        task, services.device, services, turns=turns, level=level, language=language, reward=reward, rubric=rubric
    )


def _for_models(guide: Guide | None) -> float:
    """Seconds on top of the default budget."""
    if guide is None:
        return 0.0
    return 60.0 * (guide.max_minutes if guide.max_minutes is not None else MINUTES)


def _device(name: object) -> str:
    """A name, or a torch.device, whose text is one."""
    return settings.device(settings.read().device if name is None else str(name))


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """A list of names, or one text with commas as on the command line."""
    return settings.names(given) if isinstance(given, str) else tuple(str(name) for name in given)


def _checked(guide: object) -> None:
    if guide is not None and not isinstance(guide, Guide):
        raise BadCommand(
            "The guide is not a Guide.", got=repr(guide)[:200], expected='kernelwright.Guide(llm=("PROVIDER:MODEL",))'
        )


def _task(
    target: object,
    device: str,
    example_inputs: Sequence[object] | Mapping[str, object] | None = None,
    init_args: Sequence[object] | None = None,
) -> Task:
    if isinstance(target, Task | str | Path) and (example_inputs is not None or init_args is not None):
        raise BadCommand(
            "A task has inputs and constructor arguments of its own.",
            got="example_inputs or init_args beside it",
            expected="the task alone, or a module or function with example inputs",
            what_next="write them into get_inputs and get_init_inputs of the task",
        )
    if isinstance(target, Task):
        return target
    if isinstance(target, str | Path):
        return load_task(target, device)
    from kernelwright.capture import capture  # noqa: PLC0415 - the one room that needs the caller's torch

    if example_inputs is None:
        raise BadCommand(
            "A module or function needs example inputs.",
            got=type(target).__name__,
            expected="optimize(module, (tensor, ...)), or a dict of keyword arguments; other verbs take tasks alone",
            what_next="pass the arguments of one call",
        )
    return capture(target, example_inputs, caches() / "state", init_args)
