# SPDX-License-Identifier: Apache-2.0
"""The verbs of the facade: what a person calls, with files, live objects and text where nouns are meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelwright import kinds, settings, wire
from kernelwright.candidate import LANGUAGES, Candidate
from kernelwright.errors import BadCommand
from kernelwright.machine import Machine
from kernelwright.optimize import comparing, learning, verbs
from kernelwright.optimize.guide import MINUTES, Guide
from kernelwright.optimize.replaying import replay_run
from kernelwright.optimize.result import Listener, Options, Result
from kernelwright.optimize.run import optimize_task, resume_run
from kernelwright.optimize.services import Say, Services, silent
from kernelwright.optimize.targets import candidate_of, task_of
from kernelwright.report.machine import page
from kernelwright.task import Task
from kernelwright.training import Environment, Reward, Rubric
from kernelwright.trial import Trial

PROVED_LEVELS = ("coarse", "precise")


@kinds.checked
def optimize(
    target: object,
    example_inputs: object = None,
    *,
    device: object = None,
    budget: float | str | None = None,
    out: str | Path | None = None,
    start: str | Path | Sequence[str | Path] = (),
    bits_lost: float | None = None,
    gradients: bool = False,
    contiguous: bool = False,
    seed: int | None = None,
    proposers: str | Sequence[str] | None = None,
    guide: Guide | None = None,
    grid: float | None = None,
    init_args: Sequence[object] | None = None,
    services: Services | None = None,
    listen: Listener | None = None,
) -> Result:
    """Make ``target`` faster and prove it: a task file or folder, a Task, an ``nn.Module`` or a function.

    A module or function needs ``example_inputs``, the arguments of one call: by position (or the only one), a dict of
    keywords, or a pair of both; ``init_args`` are the module's constructor arguments where they cannot be read off it.
    ``device`` is text or a torch.device, ``budget`` seconds or text such as "2m".
    ``guide`` names models that write candidates too, after the deterministic proposers (``proposers=["none"]``:
    without them); the default budget is then longer by the minutes it allows. ``bits_lost`` loosens (or tightens)
    the precision contract, and the report says so. ``gradients``: those of every floating input and of every parameter
    that requires one must be right as well, and their time counts; an example input that requires one asks for it too.
    ``contiguous``: inputs always are, and strided ones need not work; what is exported sends those to the reference.
    ``grid`` is kg CO2e per kWh, for the cost.
    ``listen`` hears each Event. Returns a Result, also when
    nothing honest is faster. Raises KernelwrightError's kinds.
    """
    known = settings.read()
    place = _device(device)
    seconds = None if budget is None else settings.seconds(budget)
    task = task_of(
        target, place, example_inputs, init_args, bits_lost=bits_lost, gradients=gradients, contiguous=contiguous
    )
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


@kinds.checked
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


@kinds.checked
def judge(
    candidate: str | Path | Candidate,
    task: str | Path | Task,
    *,
    device: object = None,
    level: str = "precise",
    sanitize: bool = False,
    also: str | Sequence[str] = (),
    gradients: bool = False,
    contiguous: bool = False,
    say: Say = silent,
    services: Services | None = None,
) -> Trial:
    """Judge one candidate as a finalist is judged: every case, fresh processes, every baseline.

    ``sanitize``: compiled code is then looked at for memory it must not touch and for threads that race.
    ``also``: measured besides, of the candidate and of every baseline, in ``outcome.profile``: ``server`` (latency of
    single calls after random idle gaps), ``cold`` (from nothing to the first result), ``memory`` (peak of a call),
    ``warm`` (one call after another on one set of inputs).
    ``gradients``, ``contiguous``: as of ``optimize``. ``say`` hears what it waits for, where another judge has the
    device.
    """
    place = _device(device)
    known = task_of(task, place, gradients=gradients, contiguous=contiguous)
    _one_of(level, ("smoke", *PROVED_LEVELS), "level")
    given = candidate_of(candidate, known)
    more = _names(also)
    return verbs.judge_candidate(
        known, given, place, level=level, sanitize=sanitize, also=more, say=say, services=services
    )


@kinds.checked
def admit(
    task: str | Path | Task,
    *,
    device: object = None,
    gradients: bool = False,
    say: Say = silent,
    services: Services | None = None,
) -> dict[str, Any]:
    """Which known-wrong programs the judge rejects on this task, and where. Raises NotAdmitted when one passes."""
    place = _device(device)
    return verbs.admit_task(task_of(task, place, gradients=gradients), place, say=say, services=services)


@kinds.checked
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


@kinds.checked
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
    return verbs.measure_limits(task_of(task, place), place, grid=_grid(grid), say=say, services=services)


@kinds.checked
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
    known = task_of(task, place)
    given = candidate_of(candidate, known)
    before = None if parent is None else candidate_of(parent, known)
    return verbs.profile_candidate(known, given, place, parent=before, grid=_grid(grid), say=say, services=services)


def _grid(given: float | None) -> float:
    """kg CO2e per kWh: as given, else as the environment says."""
    return settings.read().grid if given is None else settings.grid(given)


@kinds.checked
def runs(parent: str | Path | None = None) -> list[dict[str, Any]]:
    """Every run below ``parent`` (default: the runs folder), newest first."""
    return verbs.list_runs(Path(parent) if parent is not None else None)


@kinds.checked
def report(run: str | Path) -> Path:
    """Write a run's report.html again from its ledger and return its path."""
    return verbs.write_report(Path(run))


@kinds.checked
def replay(run: str | Path) -> dict[str, Any]:
    """Repeat a run's model-driven search from its record, without model and device: ``identical``, or ``difference``
    (the first request, candidate or verdict that is another, with the line) and ``text``, which says it in words."""
    return replay_run(Path(run))


@kinds.checked
def compare(
    targets: str | Path | Task | Sequence[object],
    guide: Guide,
    *,
    out: str | Path,
    recipes: str | Sequence[str] = (),
    seeds: int = 1,
    device: object = None,
    budget: float | str | None = None,
    proposers: str | Sequence[str] = ("none",),
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
        proposers=_names(proposers),
    )
    given = [targets] if isinstance(targets, Task) else settings.several(targets)
    tasks = [task_of(target, place) for target in given]
    return comparing.compare_recipes(
        tasks, guide, options, Path(out), names=_names(recipes), seeds=seeds, say=say, services=services
    )


def list_recipes() -> list[dict[str, Any]]:
    """Published methods as rows of choices, each with where it departs from its paper."""
    return learning.list_recipes()


@kinds.checked
def list_knowledge(words: str = "", most: int = 50) -> list[dict[str, Any]]:
    """Measured effects of edits that later searches are shown; nearest to ``words`` first."""
    if most < 0:
        raise BadCommand("This is no number of effects.", got=str(most), expected="0 or more")
    return learning.list_knowledge(words, most)


@kinds.checked
def export_knowledge(path: str | Path) -> int:
    """Write every measured effect as JSON Lines; how many."""
    return learning.export_knowledge(Path(path))


@kinds.checked
def import_knowledge(path: str | Path) -> int:
    """Merge an export into the store; how many effects it held."""
    return learning.import_knowledge(Path(path))


@kinds.checked
def learn(run: str | Path) -> int:
    """Add what a run measured to the store; how many trials were new. Runs do this themselves when they end."""
    return learning.learn_run(Path(run))


@kinds.checked
def export_data(runs: str | Path | Sequence[str | Path], out: str | Path, *, level: str = "precise") -> dict[str, int]:
    """Proved replies of runs as supervised and preference records with a data card; how many of each."""
    _one_of(level, PROVED_LEVELS, "level")
    return learning.export_training([Path(run) for run in settings.several(runs)], Path(out), level=level)


@kinds.checked
def environment(
    target: object,
    services: Services,
    *,
    turns: int = 4,
    level: str = "precise",
    language: str = "",
    reward: Reward | None = None,
    rubric: Rubric | None = None,
    say: Say = silent,
) -> Environment:
    """A task as a reinforcement-learning environment: ``reset``, then ``step(reply)``, paid by the judge's verdict.

    ``with kernelwright.Services("cpu") as services`` gives it its judge and closes that in the end. ``turns`` replies
    make an episode; ``rubric`` adds to the rule's reward, with the weight in ``reward``. ``say`` hears once that
    another judge has the device, and what is measured of it at its first use. Raises NotAdmitted."""
    _one_of(level, PROVED_LEVELS, "level")
    _one_of(language or LANGUAGES[0], LANGUAGES, "language")
    task = task_of(target, services.device)
    return learning.training_environment(
        task, services.device, services, turns=turns, level=level, language=language, reward=reward, rubric=rubric,
        say=say,
    )  # fmt: skip


def to_data(value: object) -> Any:
    """Plain JSON data for a noun, or for lists, tuples and mappings of nouns and plain values."""
    try:
        return wire.to_data(value)
    except TypeError as error:
        raise BadCommand(
            "This has no plain form.", got=str(error), expected="nouns of kernelwright, text, numbers, lists and dicts"
        ) from error


def _one_of(word: str, known: Sequence[str], what: str) -> None:
    if word not in known:
        raise BadCommand(f"There is no such {what}.", got=repr(word), expected=" or ".join(known))


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
