# SPDX-License-Identifier: Apache-2.0
"""What lies outside of a captured object and changes its answers: refused where another process would not have it."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
import tokenize
import types
from collections.abc import Iterable
from pathlib import Path

import torch
from torch.nn.parameter import UninitializedParameter

from kernelwright.capture.same import ABSENT, difference, mark
from kernelwright.errors import TaskError
from kernelwright.load.source import top_level_names

_IMMUTABLE = (bool, int, float, complex, str, bytes, tuple, type(None))


def refuse_settings() -> None:
    """Raise TaskError for what this process has set for all of torch: another that judges would not have it."""
    hooks = vars(torch.nn.modules.module)
    set_here = [name.strip("_") for name, held in hooks.items() if name.startswith("_global_") and held]
    set_here = [name for name in set_here if "hooks" in name and "always" not in name]
    found = {
        f"torch.get_default_dtype() is {torch.get_default_dtype()}": torch.get_default_dtype() is not torch.float32,
        f"torch.get_default_device() is {torch.get_default_device()}": torch.get_default_device().type != "cpu",
        "torch.autocast is on": torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
        f"hooks of all modules: {', '.join(set_here)}": bool(set_here),
    }
    for got, there in found.items():
        if there:
            raise TaskError(
                "Something is set here for all of torch that no captured object keeps.",
                got=got,
                expected="torch as it is after import torch",
                what_next="undo it around the call of optimize; write types, devices and autocast into forward",
            )


def refuse_library_changes(module: torch.nn.Module) -> None:
    """Raise TaskError where a class of an installed package has a method that is not its package's, for weights on
    several devices, and for those that lazy layers have not made."""
    for kind in {base for part in module.modules() for base in type(part).__mro__[:-1]}:
        root = kind.__module__.partition(".")[0]
        if not installed(kind):
            continue
        for name, value in vars(kind).items():
            home = getattr(value, "__module__", None) if isinstance(value, types.FunctionType) else None
            if home and not installed(value) and home.partition(".")[0] != root:
                raise TaskError(
                    "A class of an installed package was changed, and only this process knows.",
                    got=f"{kind.__module__}.{kind.__qualname__}.{name} is {home}.{value.__qualname__}",
                    expected="the package as it is installed",
                    what_next="make a class of your own from it, with that method",
                )
    empty = [name for name, value in module.named_parameters() if isinstance(value, UninitializedParameter)]
    if empty:
        raise TaskError(
            "The module has weights that were not made yet.",
            got=", ".join(empty)[:200],
            expected="a module of which every weight has its shape",
            what_next="call it once on the example inputs",
        )
    places = sorted({str(value.device) for value in (*module.parameters(), *module.buffers())})
    if len(places) > 1:
        raise TaskError(
            "The module's weights lie on several devices.",
            got=", ".join(places),
            expected="one device",
            what_next="move it: module.to(device)",
        )


def installed(value: object) -> bool:
    """Whether a class or function comes from a package that is installed, and not from a file of the user's."""
    module = sys.modules.get(getattr(value, "__module__", ""))
    file = str(getattr(module, "__file__", "") or "")
    return "site-packages" in file or getattr(value, "__module__", "").partition(".")[0] == "torch"


class Written:
    """The names of the written source that came from files, and what they hold here and there."""

    def __init__(self, targets: Iterable[object], reference: str, made: types.ModuleType) -> None:
        homes = {str(getattr(target, "__module__", "")) for target in targets}
        self.homes = [sys.modules[home] for home in sorted(homes) if home in sys.modules]
        self.names = top_level_names(reference) - {"get_inputs", "get_init_inputs"}
        self.made = made
        self.before = {name: mark(self._now(name)) for name in self.names}

    def _now(self, name: str) -> object:
        """What the written source holds under a name; a class of the user's called Model has another there."""
        return vars(self.made).get("_Given" if name == "Model" else name, ABSENT)

    def lost(self) -> str:
        """The first name that holds something else than in the file's source, in words; or an empty string. What calls
        of the written source change themselves is theirs to change: a cache, a counter."""
        for home in self.homes:
            for name in sorted(self.names & _bound(home)):
                live, written = vars(home).get(name, ABSENT), self._now(name)
                if written is ABSENT or mark(written) != self.before[name]:
                    continue
                if why := difference(live, written, name):
                    return why
        return ""


def _bound(home: types.ModuleType) -> set[str]:
    try:
        return top_level_names(_text(home))
    except (OSError, TypeError, SyntaxError, ValueError):
        return set()


def _text(home: types.ModuleType) -> str:
    with tokenize.open(inspect.getsourcefile(home) or "") as file:
        return file.read()


def changed_beside(imports: Iterable[str], reference: str) -> str:
    """The first constant of a module that the source imports from beside it which is another by now, in words: where
    the task is judged, that module is imported afresh."""
    folders = tuple(f"{Path(folder).resolve()}{os.sep}" for folder in imports)
    words = set(re.findall(r"\w+", reference))
    for name, module in sorted(sys.modules.items()) if folders else ():
        file = str(getattr(module, "__file__", None) or "")
        if not file.startswith(folders) or "site-packages" in file or not words & set(name.split(".")):
            continue
        try:
            tree = ast.parse(text := _text(module))
        except (OSError, TypeError, SyntaxError, ValueError):
            continue
        for constant, value in _constants(tree).items():
            live = vars(module).get(constant, ABSENT)
            used = constant in words or len(re.findall(rf"\b{constant}\b", text)) > 1
            if used and (why := difference(live, value, f"{name}.{constant}")):
                return why
    return ""


def _constants(tree: ast.Module) -> dict[str, object]:
    """Names that a module binds once, to a number, text or tuple of them, and no function again."""
    held: dict[str, list[object]] = {}
    again = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    stores = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                value = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(value, _IMMUTABLE):
                held.setdefault(node.targets[0].id, []).append(value)
    return {name: values[0] for name, values in held.items() if stores.count(name) == 1 and name not in again}
