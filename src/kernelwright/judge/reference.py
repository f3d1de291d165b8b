# SPDX-License-Identifier: Apache-2.0
"""The user's own program, executed in the judge's process: the one piece of given code that is trusted."""

from __future__ import annotations

import inspect
import linecache
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.errors import (
    KernelwrightError,
    ReferenceFails,
    TaskDoesNotImport,
    TaskIncomplete,
    WrongDevice,
)
from kernelwright.judge import calls, constructors, health
from kernelwright.judge.bonds import Bonds
from kernelwright.judge.inputs import seeded
from kernelwright.judge.instance import Instance
from kernelwright.neighbours import Neighbours
from kernelwright.task import Case, Task

BEYOND = 4096
"""Axes up to this size are also judged a little beyond it: what holds so many only, and no more, shows there."""
FIRST_SEED = 0x5EED
"""Seed of the constructor; inputs and fresh weights come from the caller's seeds."""


def even(size: int, seed: int) -> int:
    """A size up to ``size`` and 48 that is even, and no multiple of four: of 6, 10, 14 one by the seed.

    All other sizes that anybody is judged on are odd, the timed one, or 48: who leaves out two elements at the end of a
    row, or errs where there are few rows, would never meet them.
    """
    most = (min(size, 48) - 2) // 4
    return 2 + 4 * (1 + seed % most) if most > 0 else size


def execute(source: str, name: str, imports: tuple[str, ...] = ()) -> types.ModuleType:
    """Run source text as a module of its own, with its lines known to tracebacks and to ``inspect.getsource``.

    Raises what the source raises. ``imports`` are folders first on ``sys.path`` while it runs, and last from then on:
    its functions may import from them too.
    """
    filename = f"<{name}>"
    module = types.ModuleType(name)
    module.__file__ = filename
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    sys.modules[name] = module
    before = list(sys.path)
    sys.path[:0] = imports
    try:
        # As the file itself would be read: without the future statements of this one.
        exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)
    finally:
        sys.path[:] = [*before, *(folder for folder in imports if folder not in before)]
    return module


def last_line(error: BaseException) -> str:
    """``RuntimeError: ...`` with the line of the task it came from, at most 400 characters."""
    frame = error.__traceback__
    where = ""
    while frame is not None:
        if frame.tb_frame.f_code.co_filename.startswith("<kernelwright_"):
            where = f" (line {frame.tb_lineno})"
        frame = frame.tb_next
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}"[:400] + where


def about_devices(error: BaseException) -> bool:
    """Whether a failure is about which device something lies on."""
    text = str(error)
    signs = ("same device", "CUDA", "cuda", "NVIDIA driver", "device type")
    return isinstance(error, RuntimeError | AssertionError) and any(sign in text for sign in signs)


class Reference:
    """A task's reference on one device.

    Raises TaskDoesNotImport or TaskIncomplete here, and what ``Instance`` raises per case. Not thread-safe: seeds
    are process-wide while inputs are drawn.
    """

    def __init__(self, task: Task, device: str) -> None:
        self.task = task
        self.device = torch.device(device)
        self.on_host = False
        """Whether ``get_inputs`` was seen to insist on making its tensors on the CPU."""
        self.contract = task.contract
        self.neighbours = Neighbours(task.imports)
        """To be entered before it is called, where another reference was looked at since."""
        self.neighbours.enter()
        name = f"kernelwright_task_{task.digest()[:16]}"
        try:
            with seeded(FIRST_SEED):
                self.module = execute(task.reference, name, task.imports)
        except KernelwrightError:
            raise
        except calls.ANYTHING as error:
            raise TaskDoesNotImport(
                f"The reference of {task.name} raises when it is executed.",
                got=last_line(error),
                expected="source that imports and defines " + ", ".join(self._wanted()),
                what_next="run the file with Python and mend the line named above"
                if not isinstance(error, FileNotFoundError)
                else "let the file make what it reads: what runs, also as a confined program, is a copy of the source "
                "with the modules beside it and no other files",
            ) from error
        missing = [name for name in self._wanted() if not hasattr(self.module, name)]
        if missing:
            raise TaskIncomplete(
                f"The reference of {task.name} lacks {', '.join(missing)}.",
                got=", ".join(sorted(k for k in vars(self.module) if not k.startswith("_"))) or "nothing",
                expected=", ".join(self._wanted()),
                what_next="add the missing names at the top level of the file",
            )
        self._instances: dict[tuple[Case, str, bool], Instance] = {}
        self.bonds: Bonds | None = None
        """What holds of the inputs of the timed case, once that was looked at."""

    def _wanted(self) -> list[str]:
        return [self.task.entry, "get_inputs"]

    def instance(
        self, case: Case, autocast: str = "", *, switched: bool = False, opening: int | None = None
    ) -> Instance:
        """The reference bound to one case, run under ``autocast`` to that dtype where one is named; built once.

        ``switched``: in the mode that is not the contract's, of train() and eval(). ``opening``: seed of its first
        draw, where that is to be kept. Raises the errors that ``Instance`` names.
        """
        key = case, autocast, switched
        if key not in self._instances:
            training = self.contract.training is not switched
            made = Instance(self, case, autocast=autocast, training=training, opening=opening)
            if case == self.task.timed_case():
                self.bonds = made.bonds
            self._instances[key] = made
        return self._instances[key]

    def init_inputs(self, case: Case) -> tuple[list[Any], dict[str, Any]]:
        """What ``get_init_inputs`` gives the constructor, by position and by name. Raises TaskError."""
        function = getattr(self.module, "get_init_inputs", None)
        if function is None:
            return [], {}
        try:
            with seeded(0):
                given = self.call_with_axes(function, case)
        except calls.ANYTHING as error:
            raise self.failure("get_init_inputs", error) from error
        return constructors.taken(self, given)

    def hidden_cases(self, seed: int) -> tuple[Case, ...]:
        """Shapes nobody was told of: each axis of the timed case at 1 and at a nearby odd size, where one is 1 the
        next beyond its timed size, and where one is odd the others ``even`` (of a single axis every fourth time). Of
        several with one name the later are for references that do not take those before.
        """
        axes = self.task.timed_case().axes
        cases = []
        for index, (axis, size) in enumerate(axes):
            more = 1 + 2 * ((seed >> index) % 5)
            odd = max(3, min(size, 64) - more) | 1
            following, most = axes[(index + 1) % len(axes)]
            if most <= BEYOND and following != axis:
                wide = {axis: 1, following: most + more}
                cases.append(Case(name=f"hidden:{axis}=one", axes=tuple((a, wide.get(a, min(s, 48))) for a, s in axes)))
            elif size <= BEYOND and following == axis and seed >> len(axes) & 1:
                cases.append(Case(name=f"hidden:{axis}=odd", axes=((axis, size + more),)))
            elif following == axis and seed >> len(axes) & 2:
                cases.append(Case(name=f"hidden:{axis}=odd", axes=((axis, even(size, seed >> 8)),)))
            beside = {a: even(s, seed >> 8 + 4 * place) for place, (a, s) in enumerate(axes)}
            small = {a: min(s, 48) for a, s in axes}
            for label, others, value in (("one", small, 1), ("odd", beside, odd), ("odd", small, odd)):
                cases.append(Case(name=f"hidden:{axis}={label}", axes=tuple((others | {axis: value}).items())))
        return tuple(cases)

    def empty_cases(self) -> tuple[Case, ...]:
        """Each axis of the timed case at 0, the others small."""
        axes = self.task.timed_case().axes
        return tuple(
            Case(name=f"hidden:{axis}=zero", axes=tuple((a, 0 if a == axis else min(s, 48)) for a, s in axes))
            for axis, _ in axes
        )

    def call_with_axes(self, function: Callable[..., Any], case: Case) -> Any:
        """Call ``get_inputs`` or ``get_init_inputs`` with the axes it knows. Raises TaskIncomplete for unknown ones."""
        parameters = inspect.signature(function).parameters
        wild = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        return function(**{key: value for key, value in case.axes if wild or key in parameters})

    def check_axes(self, case: Case) -> None:
        """Every axis of a case is a keyword of ``get_inputs`` or ``get_init_inputs``. Raises TaskIncomplete."""
        known: set[str] = set()
        for name in ("get_inputs", "get_init_inputs"):
            function = getattr(self.module, name, None)
            if function is not None:
                parameters = inspect.signature(function).parameters
                if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                    return
                known |= set(parameters)
        unknown = [axis for axis, _ in case.axes if axis not in known]
        if unknown:
            raise TaskIncomplete(
                f"Case {case.name} binds axes that the reference does not take.",
                got=", ".join(unknown),
                expected=", ".join(sorted(known)) or "no axes",
                what_next="name the axes as keyword parameters of get_inputs",
            )

    def failure(self, what: str, error: BaseException) -> KernelwrightError:
        """The error for a reference that raised while doing ``what``."""
        if isinstance(error, calls.Raised) and error.__cause__ is not None:
            error = error.__cause__
        machine = health.fault(error)
        if machine is not None:
            where = f"{machine.what} This happened under the reference of {self.task.name} ({what})."
            return type(machine)(where, machine.got, machine.expected, machine.what_next)
        if about_devices(error):
            return WrongDevice(
                f"The reference of {self.task.name} insists on another device ({what}).",
                got=last_line(error),
                expected=f"everything on {self.device}",
                what_next="create tensors on the device of the inputs, or ask for that device with --device",
            )
        got = last_line(error)
        call = f"{self.task.entry}(*get_init_inputs())(*get_inputs())"
        named = "run the reference on its own inputs and mend the line named above"
        return ReferenceFails(
            f"The reference of {self.task.name} fails ({what}).",
            got=got,
            expected="a result for its own inputs",
            what_next=named
            if got.endswith(")") and " (line " in got
            else f"run {call} with Python and mend what raises",
        )
