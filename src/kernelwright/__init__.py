# SPDX-License-Identifier: Apache-2.0
"""A faster PyTorch program with a proof: what was checked, how exact it is, how fast it is and against what.

``kernelwright.optimize("model.py")`` is the whole tool; the other names are its parts and its nouns. Importing
this loads no torch; ``optimize`` given a live module or function uses the torch that is loaded then.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand, KernelwrightError
from kernelwright.machine import Machine
from kernelwright.task import Case, Contract, Task
from kernelwright.trial import Outcome, Rejected, Timed, Trial, Verified

if TYPE_CHECKING:
    from kernelwright.load import load_candidate, load_task
    from kernelwright.optimize import Event, Listener, Options, Result, Services

__all__ = [
    "BadCommand",
    "Candidate",
    "Case",
    "Contract",
    "Event",
    "KernelwrightError",
    "Listener",
    "Machine",
    "Options",
    "Outcome",
    "Rejected",
    "Result",
    "Services",
    "Task",
    "Timed",
    "Trial",
    "Verified",
    "admit",
    "judge",
    "load_candidate",
    "load_task",
    "measure_limits",
    "measure_machine",
    "optimize",
    "report",
    "resume",
    "runs",
]

_LATER: Mapping[str, str] = {
    "Event": "optimize",
    "Listener": "optimize",
    "Options": "optimize",
    "Result": "optimize",
    "Services": "optimize",
    "load_candidate": "load",
    "load_task": "load",
}
"""Names that are fetched when used: the judge and its children import this package too, and need none of these."""


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(importlib.import_module(f"kernelwright.{_LATER[name]}"), name)
    raise AttributeError(f"module 'kernelwright' has no attribute {name!r}")


class _Facade(types.ModuleType):
    """Keeps the verbs ``optimize``, ``judge`` and ``report`` when the rooms of these names are imported later."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, types.ModuleType) and name in ("optimize", "judge", "report")):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Facade


# The imports inside the verbs load the loop; at the top they would load it into every child of the judge too.


def optimize(
    target: object,
    example_inputs: Sequence[object] | None = None,
    *,
    device: str | None = None,
    budget: float | str | None = None,
    out: str | Path | None = None,
    start: Sequence[str | Path] = (),
    bits_lost: float | None = None,
    seed: int | None = None,
    proposers: Sequence[str] | None = None,
    init_args: Sequence[object] | None = None,
    services: Services | None = None,
    listen: Listener | None = None,
) -> Result:
    """Make ``target`` faster and prove it: a task file or folder, a Task, an ``nn.Module`` or a function.

    A module or function needs ``example_inputs``, one call's positional arguments; ``init_args`` are the
    module's constructor arguments where they cannot be read off it. ``budget`` is seconds or text such as "2m".
    ``bits_lost`` loosens (or tightens) the precision contract, and the report says so. ``listen`` hears each
    Event. Returns a Result, also when nothing honest is faster. Raises KernelwrightError's kinds.
    """
    from kernelwright import settings  # noqa: PLC0415 - see above
    from kernelwright.optimize import Options, optimize_task  # noqa: PLC0415 - see above

    known = settings.read()
    place = settings.device(device or known.device)
    task = _task(target, place, example_inputs, init_args)
    if bits_lost is not None:
        task = dataclasses.replace(task, contract=dataclasses.replace(task.contract, bits_lost=float(bits_lost)))
    seconds = settings.seconds(budget) if isinstance(budget, str) else budget
    options = Options(
        device=place,
        budget_seconds=float(seconds or known.budget_seconds),
        seed=known.seed if seed is None else seed,
        proposers=known.proposers if proposers is None else tuple(proposers),
        start=tuple(str(Path(path).resolve()) for path in start),
    )
    folder = Path(out) if out is not None else None
    return optimize_task(task, options, out=folder, services=services, listen=listen)


def resume(
    run: str | Path,
    *,
    budget: float | str | None = None,
    services: Services | None = None,
    listen: Listener | None = None,
) -> Result:
    """Continue a run that was killed, interrupted or finished; what it knows already costs nothing."""
    from kernelwright import settings  # noqa: PLC0415 - see above
    from kernelwright.optimize import resume_run  # noqa: PLC0415 - see above

    seconds = settings.seconds(budget) if isinstance(budget, str) else budget
    return resume_run(Path(run), budget_seconds=seconds, services=services, listen=listen)


def judge(
    candidate: str | Path | Candidate,
    task: str | Path | Task,
    *,
    device: str | None = None,
    level: str = "precise",
    services: Services | None = None,
) -> Trial:
    """Judge one candidate as a finalist is judged: every case, fresh processes, every baseline."""
    from kernelwright.load import load_candidate  # noqa: PLC0415 - see above
    from kernelwright.optimize import judge_candidate  # noqa: PLC0415 - see above

    place = _device(device)
    known = _task(task, place)
    given = candidate if isinstance(candidate, Candidate) else load_candidate(candidate, known)
    return judge_candidate(known, given, place, level=level, services=services)


def admit(task: str | Path | Task, *, device: str | None = None, services: Services | None = None) -> dict[str, Any]:
    """Which known-wrong programs the judge rejects on this task, and where. Raises NotAdmitted when one passes."""
    from kernelwright.optimize import admit_task  # noqa: PLC0415 - see above

    place = _device(device)
    return admit_task(_task(task, place), place, services=services)


def measure_machine(device: str | None = None, *, services: Services | None = None) -> Machine:
    """Facts of a device; measured once, then read from the cache."""
    from kernelwright.optimize import measure_machine as measure  # noqa: PLC0415 - see above

    return measure(_device(device), services=services)


def measure_limits(
    task: str | Path | Task, *, device: str | None = None, services: Services | None = None
) -> dict[str, Any]:
    """Speed-of-light bounds of a task: bytes and operations that cannot be avoided, and the time they take."""
    from kernelwright.optimize import measure_limits as measure  # noqa: PLC0415 - see above

    place = _device(device)
    return measure(_task(task, place), place, services=services)


def runs(parent: str | Path | None = None) -> list[dict[str, Any]]:
    """Every run below ``parent`` (default: the runs folder), newest first."""
    from kernelwright.optimize import list_runs  # noqa: PLC0415 - see above

    return list_runs(Path(parent) if parent is not None else None)


def report(run: str | Path) -> Path:
    """Write a run's report.html again from its ledger and return its path."""
    from kernelwright.optimize import write_report  # noqa: PLC0415 - see above

    return write_report(Path(run))


def _device(name: str | None) -> str:
    from kernelwright import settings  # noqa: PLC0415 - see above

    return settings.device(name or settings.read().device)


def _task(
    target: object,
    device: str,
    example_inputs: Sequence[object] | None = None,
    init_args: Sequence[object] | None = None,
) -> Task:
    from kernelwright import settings  # noqa: PLC0415 - see above
    from kernelwright.load import load_task  # noqa: PLC0415 - see above

    if isinstance(target, Task):
        return target
    if isinstance(target, str | Path):
        return load_task(target, device)
    from kernelwright.capture import capture  # noqa: PLC0415 - the one file that needs the caller's torch

    if example_inputs is None:
        raise BadCommand(
            "A module or function needs example inputs.",
            got=type(target).__name__,
            expected="optimize(module, (tensor, ...))",
            what_next="pass the positional arguments of one call",
        )
    return capture(target, tuple(example_inputs), settings.read().home / "state", init_args)
