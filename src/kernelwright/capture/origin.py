# SPDX-License-Identifier: Apache-2.0
"""Where a live object's source lies, the part of it that is needed, and the folders its imports come from."""

from __future__ import annotations

import inspect
import sys
import tokenize
from pathlib import Path

from kernelwright.errors import TaskError
from kernelwright.load.slicing import absolute, needed_source
from kernelwright.load.source import sibling_imports


def source(target: object, names: set[str]) -> tuple[str, tuple[str, ...]]:
    """What ``names`` need of the file that defines ``target``, and the folders its imports need. Raises TaskError."""
    shown = getattr(target, "__qualname__", target)
    try:
        file = inspect.getsourcefile(target) or ""  # type: ignore[arg-type]  # a function or class by the callers' checks
        with tokenize.open(file) as opened:  # as Python decodes it
            text = opened.read()
    except (TypeError, OSError, SyntaxError, UnicodeDecodeError) as error:
        raise TaskError(
            f"The source of {shown} cannot be found.",
            got=str(error),
            expected="something defined in a .py file",
            what_next="write it to a file and import it",
        ) from error
    package = getattr(sys.modules.get(getattr(target, "__module__", "")), "__package__", None) or ""
    try:
        sliced = needed_source(absolute(text, package), names)
    except (SyntaxError, ImportError) as error:
        raise TaskError(
            f"The source of {shown} cannot be read.",
            got=str(error),
            expected="the file as it was imported",
            what_next="import it again after editing it; import modules of its package by their full names",
        ) from error
    return sliced, sibling_imports(_root(Path(file), package), sliced)


def sources(kinds: set[type]) -> tuple[str, tuple[str, ...]]:
    """What these classes need of all their files; classes of installed packages are imported instead."""
    files: dict[str, tuple[type, set[str]]] = {}
    for kind in sorted(kinds, key=lambda kind: kind.__qualname__):
        try:
            file = inspect.getsourcefile(kind) or ""
        except TypeError:
            file = ""
        files.setdefault(file, (kind, set()))[1].add(kind.__name__)
    parts: list[str] = []
    imports: tuple[str, ...] = ()
    for file, (kind, names) in files.items():
        if "site-packages" in file:
            parts.append(f"from {kind.__module__} import {', '.join(sorted(names))}")
        else:
            sliced, found = source(kind, names)
            parts.append(sliced)
            imports = tuple(dict.fromkeys(imports + found))
    return "\n\n".join(parts), imports


def _root(file: Path, package: str) -> Path:
    """The folder that absolute imports of a file start from: that of its outermost package, or its own."""
    top = package.partition(".")[0]
    places = list(getattr(sys.modules.get(top), "__path__", ())) if top else []
    return Path(places[0]).parent if places else file.parent
