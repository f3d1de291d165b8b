# SPDX-License-Identifier: Apache-2.0
"""Facts about Python source text, read from its syntax tree."""

from __future__ import annotations

import ast
import os
import re
import tokenize
from pathlib import Path

_DECLARED = re.compile(r"^([ \t\f]*#.*?coding[:=][ \t]*)[-\w.]+")
"""PEP 263: in one of the first two lines."""


def text_of(path: Path) -> str:
    """A Python file, read by the encoding that it declares. The text declares utf-8 instead, as which it is kept.
    Raises OSError, SyntaxError (of an encoding that nobody knows) and UnicodeDecodeError."""
    with tokenize.open(path) as file:  # which takes the mark of some editors too
        text = file.read()
    if file.encoding.startswith("utf-8"):
        return text
    lines = text.split("\n", 2)
    lines[:2] = [_DECLARED.sub(r"\1utf-8", line) for line in lines[:2]]
    return "\n".join(lines)


def unreachable(place: Path) -> str:
    """Why there is nothing at a path (no such name, a link to nothing, a name too long); or an empty string."""
    try:
        place.stat()
    except (OSError, ValueError) as error:
        link = os.path.islink(place)
        if isinstance(error, FileNotFoundError | NotADirectoryError) and not link:
            return f"{place} does not exist"
        shown = f"{str(place)[:200]}..." if len(str(place)) > 200 else str(place)
        return f"{shown}: {getattr(error, 'strerror', None) or error}" + (" (a symbolic link)" if link else "")
    return ""


def top_level_names(text: str) -> set[str]:
    """Every name a module binds at top level: definitions, assignments and imports, also under if and try."""
    return _bound(ast.parse(text).body)


def classes(text: str) -> list[str]:
    """Names of top-level classes in order."""
    return [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]


def imported_modules(text: str) -> set[str]:
    """The first part of every absolutely imported module, anywhere in the text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def sibling_imports(folder: Path, text: str) -> tuple[str, ...]:
    """``(folder,)`` when the text imports a module that lies beside it, else ``()``.

    Only then: a folder on ``sys.path`` for nothing could shadow a library module with a file of its name.
    """
    beside = any((folder / f"{name}.py").is_file() or (folder / name).is_dir() for name in imported_modules(text))
    return (str(folder.resolve()),) if beside else ()


def bound_names(node: ast.stmt) -> set[str]:
    """Names one statement binds in its own scope."""
    return _bound([node])


def _bound(body: list[ast.stmt]) -> set[str]:
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for part in ("body", "orelse", "finalbody"):
                found |= _bound(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                found |= _bound(handler.body)
        else:
            found |= {
                name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
    return found
