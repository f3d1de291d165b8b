# SPDX-License-Identifier: Apache-2.0
"""A faster PyTorch program with a proof: what was checked, how exact it is, how fast it is and against what.

``kernelwright.optimize("model.py")`` is the whole tool; the other names are its parts and its nouns. Importing
this loads no torch; ``optimize`` given a live module or function uses the torch that is loaded then.
"""

from __future__ import annotations

import importlib
import sys
import types
import typing

from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand, KernelwrightError
from kernelwright.machine import Machine
from kernelwright.task import Case, Contract, Task
from kernelwright.trial import Outcome, Rejected, Timed, Trial, Verified

if typing.TYPE_CHECKING:
    from kernelwright.load import load_candidate, load_task
    from kernelwright.optimize.facade import (
        admit,
        compare,
        environment,
        export_data,
        export_knowledge,
        import_knowledge,
        judge,
        learn,
        list_knowledge,
        list_recipes,
        measure_limits,
        measure_machine,
        optimize,
        profile,
        replay,
        report,
        resume,
        runs,
        to_data,
    )
    from kernelwright.optimize.guide import Guide
    from kernelwright.optimize.result import Event, Listener, Options, Result
    from kernelwright.optimize.services import Services

__all__ = [
    "BadCommand",
    "Candidate",
    "Case",
    "Contract",
    "Event",
    "Guide",
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
    "compare",
    "environment",
    "export_data",
    "export_knowledge",
    "import_knowledge",
    "judge",
    "learn",
    "list_knowledge",
    "list_recipes",
    "load_candidate",
    "load_task",
    "measure_limits",
    "measure_machine",
    "optimize",
    "profile",
    "replay",
    "report",
    "resume",
    "runs",
    "to_data",
]

# Fetched when used: the judge and its children import this package too, and need neither the loop nor its imports.
_LATER = {
    "load": ("load_candidate", "load_task"),
    "optimize.facade": (
        "admit",
        "compare",
        "environment",
        "export_data",
        "export_knowledge",
        "import_knowledge",
        "judge",
        "learn",
        "list_knowledge",
        "list_recipes",
        "measure_limits",
        "measure_machine",
        "optimize",
        "profile",
        "replay",
        "report",
        "resume",
        "runs",
        "to_data",
    ),
    "optimize.guide": ("Guide",),
    "optimize.result": ("Event", "Listener", "Options", "Result"),
    "optimize.services": ("Services",),
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return importlib.import_module("kernelwright.optimize.run").version()
    for room, names in _LATER.items():
        if name in names:
            return getattr(importlib.import_module(f"kernelwright.{room}"), name)
    raise AttributeError(f"module 'kernelwright' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is loaded later too, for those who look by completion."""
    return sorted({*globals(), *__all__})


class _Facade(types.ModuleType):
    """Keeps the verbs ``optimize``, ``judge`` and ``report`` when the rooms of these names are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, types.ModuleType) and name in ("optimize", "judge", "report")):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Facade
